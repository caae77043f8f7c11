"""What Figures 4 and 11 of beaglehole2024 share: their runs and what is read of them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import (
    change_between,
    last_rows,
    spread_over,
)
from feature_alignment.pipeline.figures.make import Arrays, Runs
from feature_alignment.pipeline.spec import Point

EXPERIMENT = "beaglehole2024_slo"
OPTIMIZERS = {"gd": "gradient descent", "slo": "SLO"}
LAYER = "layers.0"


def optimizer_points() -> list[Point]:
    """One point for each optimizer, with all initialisation scales."""
    return [Point(EXPERIMENT, name, {"optimizer": name}) for name in OPTIMIZERS]


def scales_of(frame: pd.DataFrame) -> list[float]:
    """The initialisation scales of the first layer, from large to small."""
    return sorted(frame["scale"].dropna().unique(), reverse=True)


def first_layer_rows(runs: Runs, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of some metrics, of both optimizers."""
    frame = runs.metrics
    return frame[frame["metric"].isin(metrics)].reset_index(drop=True)


def effect_of_scale(frame: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """How the last values of some metrics depend on the initialisation scale.

    Returns:
        Rows `<metric>_gain`, the value at the smallest scale minus that at the largest, and
        `<metric>_scale_spread`, the largest minus the smallest value among all scales.
    """
    last = last_rows(frame[frame["metric"].isin(metrics)])
    scales = scales_of(frame)
    group = ["point", "seed", "layer", "split", "metric"]
    gain = change_between(last, "scale", scales[0], scales[-1], group, "gain")
    return pd.concat([gain, spread_over(last, "scale", group)], ignore_index=True)


def last_matrix(arrays: Arrays, scale: float, name: str) -> np.ndarray:
    """A matrix of seed 0 after the last step, for one scale."""
    prefix = f"seed0/scale{scale:g}/{name}/step"
    (stored,) = (key for key in arrays if key.startswith(prefix))
    return arrays[stored]

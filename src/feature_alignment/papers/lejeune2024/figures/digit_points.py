"""What the figures on the regression of two digit classes share."""

from typing import TYPE_CHECKING

from feature_alignment.papers.lejeune2024.parameters import DigitRegression
from feature_alignment.pipeline.figures.figure import Point, Settings
from feature_alignment.pipeline.figures.table import rows_where

if TYPE_CHECKING:
    import pandas as pd

TARGETS = ("linear", "binarised")


def target_points(settings: Settings) -> list[Point]:
    """One point for each kind of target."""
    return [Point(targets, settings[DigitRegression].but(targets=targets)) for targets in TARGETS]


def fewer_images(settings: Settings) -> DigitRegression:
    """Training on binarised targets of the kernel's images only."""
    parameters = settings[DigitRegression]
    return parameters.but(targets="binarised", train_samples=parameters.kernel_samples)


def similarity_difference(
    metrics: "pd.DataFrame", name: str, first: str, second: str
) -> "pd.DataFrame":
    """Rows of the metric `name`: each seed's label similarity at one point minus another's."""
    similarity = rows_where(metrics, metric="label_similarity").set_index("seed")
    minuend, subtrahend = (rows_where(similarity, point=point) for point in (first, second))
    difference = minuend["value"] - subtrahend["value"]
    rows = minuend.assign(point="comparison", metric=name, value=difference).reset_index()
    return rows[["point", "seed", "step", "layer", "split", "metric", "value"]]

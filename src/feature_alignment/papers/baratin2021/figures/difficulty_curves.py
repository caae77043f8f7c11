"""Alignment curves on easy and difficult examples: summed up in numbers, and drawn.

Shared by Figures 4 and 13 of baratin2021, and free of matplotlib at import.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.figures.training_curves import (
    Curve,
    Numbers,
    iteration_axis,
)
from feature_alignment.pipeline.figures.drawing import draw_curve
from feature_alignment.pipeline.figures.style import COLOURS
from feature_alignment.pipeline.figures.table import rows_where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPLITS = ("easy", "difficult")


def hierarchy_numbers(curve: Curve) -> Numbers:
    """Numbers that sum up how the alignment on easy examples differs from that on difficult ones.

    With A_e(t) and A_d(t) the label alignments, and "reached" meaning the first measured step:

    - `maximum`, of each split; `rise`, maximum minus A(0); `half_rise_step`, where A has made
      half of its rise;
    - `ratio_of_maxima`, max A_e / max A_d; `largest_ratio`, max over t of A_e(t)/A_d(t);
    - `half_rise_delay`: the half-rise step of the difficult examples minus that of the easy ones;
    - `accuracy_lead`: training accuracy on easy minus difficult examples, mean over measured
      steps after 0, which are about equally spaced in log t;
    - `ratio_high_iterations`, `ratio_high_decades`: for how long A_e/A_d is above half its
      maximum, in iterations and in decades of 1 + t, from the first to the last such step. Where
      it still is at the last measured step, `ratio_high_censored` is 1, and how long it would
      stay there is not known: the whole run counts, so that such runs tie at the top;
    - `onset_step`, where A_e has made 10 % of its rise; `rise_decades`, log10 of (1 + step) at
      90 % minus that at 10 %; where these are two steps, `rise_rate`, the increase of A_e from
      the one to the other per decade.

    The split is "both" where it is neither. Source: baratin2021, Section 3.4 ("the ratio between
    both alignments") and caption of Figure 13; the definitions are this project's.
    """
    easy, difficult = (curve("label_alignment", split=split) for split in SPLITS)
    found = {}
    for split, alignment in zip(SPLITS, (easy, difficult), strict=True):
        found[split, "maximum"] = alignment.max()
        found[split, "rise"] = alignment.max() - alignment[0]
        found[split, "half_rise_step"] = _reached(alignment, 0.5)
    easily, hardly = (curve("accuracy", split=split) for split in SPLITS)
    values = _comparison(easy, difficult)
    values["accuracy_lead"] = (easily - hardly).drop(index=0).mean()
    return found | {("both", metric): value for metric, value in values.items()}


def _comparison(easy: pd.Series, difficult: pd.Series) -> dict[str, float]:
    ratio = easy / difficult
    high = ratio.index[ratio >= ratio.max() / 2]
    censored = high[-1] == ratio.index[-1]
    begin = 0 if censored else high[0]
    onset, late = _reached(easy, 0.1), _reached(easy, 0.9)
    decades = np.log10((1 + late) / (1 + onset))
    values = {
        "ratio_of_maxima": easy.max() / difficult.max(),
        "largest_ratio": ratio.max(),
        "half_rise_delay": _reached(difficult, 0.5) - _reached(easy, 0.5),
        "ratio_high_iterations": high[-1] - begin,
        "ratio_high_decades": np.log10((1 + high[-1]) / (1 + begin)),
        "ratio_high_censored": float(censored),
        "onset_step": onset,
        "rise_decades": decades,
    }
    # A coarse schedule can have the whole rise between two measurements.
    return {**values, "rise_rate": (easy[late] - easy[onset]) / decades} if decades else values


def _reached(curve: pd.Series, share: float) -> int:
    """The first step at which a curve has made a share of its rise from step 0 to its maximum."""
    level = curve[0] + share * (curve.max() - curve[0])
    return int(curve.index[curve >= level][0])


def draw_splits(ax: "Axes", rows: pd.DataFrame) -> None:
    """One metric of one point on easy and on difficult examples, by iteration."""
    iteration_axis(ax, rows["step"].max())
    for split in SPLITS:
        draw_curve(ax, rows_where(rows, split=split), COLOURS[split], f"{split} examples")


def draw_ratio(ax: "Axes", alignment: pd.DataFrame) -> None:
    """Ratio of one point's alignment on easy examples to that on difficult ones."""
    iteration_axis(ax, alignment["step"].max())
    wide = alignment.pivot(index=["seed", "step"], columns="split", values="value")
    ratio = (wide["easy"] / wide["difficult"]).rename("value").reset_index()
    draw_curve(ax, ratio, COLOURS["paper"])
    ax.set_ylim(bottom=0)

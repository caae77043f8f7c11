"""Alignment curves on easy and difficult examples: summed up in numbers, and drawn.

Shared by Figures 4 and 13 of baratin2021, and free of matplotlib at import.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.figures.classification_curves import iteration_axis
from feature_alignment.pipeline.figures.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXPERIMENT = "baratin2021_difficulty"
SPLITS = ("easy", "difficult")


def curves(frame: pd.DataFrame, metric: str, split: str, point: str) -> pd.DataFrame:
    """One metric of one point over training: steps in rows, seeds in columns.

    Raises:
        KeyError: if there is no such row.
    """
    chosen = (frame["metric"] == metric) & (frame["split"] == split) & (frame["point"] == point)
    if not chosen.any():
        raise KeyError(f"the table has no {metric} on {split} of {point}")
    return frame[chosen].pivot(index="step", columns="seed", values="value")


def hierarchy_summary(metrics: pd.DataFrame) -> pd.DataFrame:
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

    Source: baratin2021, Section 3.4 ("the ratio between both alignments") and caption of
    Figure 13; the definitions are this project's.

    Args:
        metrics: tidy metrics of `baratin2021_difficulty`, with the columns point and seed.

    Returns:
        Tidy rows at the last step of their run; the split is "both" where it is neither.
    """
    rows = []
    for (point, seed), run in metrics.groupby(["point", "seed"], sort=False):
        at = {"point": point, "seed": seed, "step": run["step"].max(), "layer": "all"}
        alignment = {split: curves(run, "label_alignment", split, point)[seed] for split in SPLITS}
        for split, curve in alignment.items():
            values = {
                "maximum": curve.max(),
                "rise": curve.max() - curve[0],
                "half_rise_step": _reached(curve, 0.5),
            }
            rows += [{**at, "split": split, "metric": m, "value": v} for m, v in values.items()]
        accuracy = {split: curves(run, "accuracy", split, point)[seed] for split in SPLITS}
        values = _comparison(alignment["easy"], alignment["difficult"])
        lead = (accuracy["easy"] - accuracy["difficult"]).drop(index=0).mean()
        values["accuracy_lead"] = lead
        rows += [{**at, "split": "both", "metric": m, "value": v} for m, v in values.items()]
    return pd.DataFrame(rows)


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


def draw_mean(ax: "Axes", values: pd.DataFrame, colour: str, label: str | None = None) -> None:
    """Mean over seeds (columns), with a band of one standard deviation (n − 1) around it."""
    mean = values.mean(axis=1)
    ax.plot(values.index, mean, color=colour, label=label)
    if values.shape[1] > 1:
        deviation = values.std(axis=1, ddof=1)
        ax.fill_between(
            values.index, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0
        )


def draw_alignments(ax: "Axes", frame: pd.DataFrame, point: str) -> None:
    """Label alignment on easy and on difficult examples of one point."""
    for split in SPLITS:
        values = curves(frame, "label_alignment", split, point)
        draw_mean(ax, values, COLOURS[split], f"{split} examples")
    iteration_axis(ax, values.index[-1])
    ax.set_ylim(bottom=0)


def draw_ratio(ax: "Axes", frame: pd.DataFrame, point: str) -> None:
    """Ratio of the alignment on easy examples to that on difficult ones, for each seed."""
    easy, difficult = (curves(frame, "label_alignment", split, point) for split in SPLITS)
    ax.plot(easy.index, easy / difficult, color=COLOURS["reference"], linewidth=0.8)
    ax.plot(easy.index, (easy / difficult).mean(axis=1), color=COLOURS["paper"])
    iteration_axis(ax, easy.index[-1])
    ax.set_ylim(bottom=0)

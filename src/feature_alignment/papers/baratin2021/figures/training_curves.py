"""Training curves: reading them from tables, summarising them, drawing them.

Shared by Figures 2–4 and 11–14 of baratin2021. Importing this does not import matplotlib.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from feature_alignment.papers.baratin2021.parameters import Classification, ClassificationMLP
from feature_alignment.pipeline.figures.drawing import draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, rows_where

SPLITS = {"train": "-", "test": "--"}  # the paper's line styles of a classifier's splits
AXIS_BEGIN = 10  # where the iteration axis of the paper's plots begins


def vgg19(
    settings: Settings, share: float, learning_rate: float = 0.01, late: bool = False
) -> Point:
    """VGG19 on CIFAR-10 with a share of random labels, or the narrower one trained further."""
    name = f"vgg19-random{100 * share:.0f}"
    if learning_rate != 0.01:
        name += f"-lr{learning_rate:g}"
    columns = {"random_label_share": share, "learning_rate": learning_rate}
    narrow = settings[Classification].late if late else None
    changes = {} if narrow is None else narrow.plain()
    name += "-late" if changes else ""
    return Point(name, classifier(settings, model="vgg19", **columns, **changes), columns)


def classifier(settings: Settings, **changes: object) -> Classification:
    """The classifier's settings with changes, and without those of other networks."""
    return settings[Classification].but(mlp=ClassificationMLP(), late=None, **changes)


Curve = Callable[..., pd.Series]
"""One metric of a run, values by step: `curve(metric, split="train", layer="all")`."""
Numbers = Mapping[tuple[str, str], float]  # summaries of a run's curves, by split and metric


def summary(
    metrics: pd.DataFrame,
    numbers: Callable[[Curve], Numbers],
    by: Sequence[str] = ("point", "seed"),
) -> pd.DataFrame:
    """Summaries of each run's curves, as tidy rows at its last step; `by` identifies a run."""
    rows = []
    for names, run in metrics.groupby(list(by), sort=False):
        at = dict(zip(by, names, strict=True)) | {"step": run["step"].max(), "layer": "all"}
        for (split, metric), value in numbers(partial(_curve, run)).items():
            rows.append({**at, "split": split, "metric": metric, "value": value})
    return pd.DataFrame(rows)


def _curve(
    run: pd.DataFrame, metric: str, *, split: str = "train", layer: str = "all"
) -> pd.Series:
    return rows_where(run, metric=metric, split=split, layer=layer).set_index("step")["value"]


def with_summary(
    metrics: pd.DataFrame, numbers: Callable[[Curve], Mapping[str, float]]
) -> FigureTable:
    """The classifiers' metrics, and `numbers` of each split, to which `curve` then defaults."""

    def of_both(curve: Curve) -> Numbers:
        return {
            (split, metric): value
            for split in SPLITS
            for metric, value in numbers(partial(curve, split=split)).items()
        }

    return FigureTable(pd.concat([metrics, summary(metrics, of_both)], ignore_index=True))


def layers_of(frame: pd.DataFrame) -> list[str]:
    """Names of the measured layers, from input to output."""
    return [layer for layer in frame["layer"].unique() if layer != "all"]


def layers_peak_share(curve: Curve, layers: Sequence[str]) -> float:
    """Share of layers whose alignment is highest when the test accuracy is, to a factor of two."""
    best = peak(curve("accuracy", split="test"))
    peaks = [peak(curve("label_alignment", layer=layer)) for layer in layers]
    return sum(0.5 <= step / best <= 2 for step in peaks) / len(peaks)


def peak(values: pd.Series) -> int:
    """One more than the step of the highest value, so that ratios do not divide by zero."""
    return 1 + int(values.index.to_numpy()[values.to_numpy().argmax()])


def draw_accuracy(ax: Axes, run: pd.DataFrame) -> None:
    """Training and test accuracy of one point."""
    for split, line in SPLITS.items():
        rows = rows_where(run, metric="accuracy", split=split)
        draw_curve(ax, rows, split, split, linestyle=line)
    ax.set_ylim(0, 1.02)

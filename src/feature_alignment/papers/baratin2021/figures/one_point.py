"""What figures share whose experiment has one point, with the paper's setting."""

from feature_alignment.pipeline.figures.figure import Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, Runs
from feature_alignment.pipeline.parameters import Parameters

POINT = "default"


def one_point(settings: Settings, kind: type[Parameters]) -> list[Point]:
    """The point of an experiment's setting."""
    return [Point(POINT, settings[kind])]


def all_metrics(runs: Runs) -> FigureTable:
    """All metrics of that point."""
    return FigureTable(runs[POINT].metrics)

import torch

from feature_alignment.papers.baratin2021.experiments.theory import run_seed
from feature_alignment.papers.baratin2021.figures.fig_theory import EQUATIONS, INEQUALITIES
from feature_alignment.papers.baratin2021.parameters import Theory
from feature_alignment.pipeline.run import SeedRun


def rows_of(seed):
    return run_seed(SeedRun(seed, Theory(), torch.device("cpu"))).rows


def test_every_check_is_a_row_that_the_figure_shows():
    by_metric = {metric: set() for metric in ("relative_deviation", "bound_ratio")}
    for row in rows_of(0):
        by_metric[row["metric"]].add(row["statement"])
    assert by_metric["relative_deviation"] == set(EQUATIONS)
    assert by_metric["bound_ratio"] == set(INEQUALITIES)


def test_cases_differ_between_seeds():
    first, second = (rows_of(seed) for seed in (0, 1))
    assert [row["value"] for row in first] != [row["value"] for row in second]

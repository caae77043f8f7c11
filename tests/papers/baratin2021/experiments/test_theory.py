import torch

from feature_alignment.papers.baratin2021.experiments.theory import run_seed
from feature_alignment.papers.baratin2021.figures.fig_theory import EQUATIONS, INEQUALITIES


def test_every_check_is_a_row_that_the_figure_shows():
    rows = run_seed(0, {}, torch.device("cpu"), None, "test").rows
    by_metric = {metric: set() for metric in ("relative_deviation", "bound_ratio")}
    for row in rows:
        by_metric[row["metric"]].add(row["statement"])
    assert by_metric["relative_deviation"] == set(EQUATIONS)
    assert by_metric["bound_ratio"] == set(INEQUALITIES)


def test_cases_differ_between_seeds():
    first, second = (run_seed(s, {}, torch.device("cpu"), None, "").rows for s in (0, 1))
    assert [row["value"] for row in first] != [row["value"] for row in second]

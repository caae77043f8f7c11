"""What differs between the results of two checkouts is told file by file."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def sides(tmp_path):
    """Two results of a run each, which are the same."""
    for side in ("old", "new"):
        run = tmp_path / side / "runs" / "coin" / "fair"
        run.mkdir(parents=True)
        rows = pd.DataFrame({"metric": ["heads", "tails"], "value": [2.0, 4.0]})
        rows.to_csv(run / "metrics.csv", index=False)
        np.savez(run / "arrays.npz", throws=np.array([0.0, 1.0]))
        claims = pd.DataFrame({"id": ["a", "b"], "verdict": "partly", "ours": [0.1, 0.2]})
        claims.to_csv(tmp_path / side / "claims.csv", index=False)
    return tmp_path / "old", tmp_path / "new"


def test_the_same_results_differ_in_nothing(tool, sides):
    assert tool.differences(*sides) == []


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    "arrays",
    [
        {"throws": np.array([0.0, 1.0]), "more": np.zeros(1)},
        {"throws": np.array([0.0, 1.0]), "more": np.array([np.nan])},
    ],
)
def test_an_array_on_one_side_only_is_told(tool, sides, arrays, order):
    np.savez(sides[0] / "runs/coin/fair/arrays.npz", **arrays)
    assert tool.differences(*sides[::order]) == ["runs/coin/fair/arrays.npz: more"]


@pytest.mark.parametrize(
    "array",
    [
        [0.0, 1.5],
        [[0.0, 1.0]],
        np.float32([0, 1]),
        np.array([0.0, 1.0]).view(np.int64),  # of the same bytes
        [-0.0, 1.0],
    ],
)
def test_an_array_of_other_values_shape_or_type_is_told(tool, sides, array):
    np.savez(sides[1] / "runs/coin/fair/arrays.npz", throws=np.array(array))
    assert tool.differences(*sides) == ["runs/coin/fair/arrays.npz: throws"]


@pytest.mark.parametrize("order", [1, -1])
def test_runs_values_and_claims_that_differ_are_told(tool, sides, order):
    old = sides[0]
    (old / "runs/coin/bent").mkdir()
    (old / "runs/coin/bent/metrics.csv").touch()
    rows = pd.DataFrame({"metric": ["heads", "tails"], "value": [2.0, 5.0]})
    rows.to_csv(old / "runs/coin/fair/metrics.csv", index=False)
    claims = pd.DataFrame({"id": ["a", "b", "c"], "verdict": "partly", "ours": [0.1, 0.3, 0.2]})
    claims.to_csv(old / "claims.csv", index=False)
    only, values, claim, ours = tool.differences(*sides[::order])
    assert only == "only in one: runs/coin/bent"
    share = 0.2 if order == 1 else 0.25  # of the first side's value
    assert values == f"runs/coin/fair/metrics.csv: values differ by up to {share}"
    assert claim == "claims.csv: claim only in one: c"
    assert ours.startswith("claims.csv: b: ours: ")

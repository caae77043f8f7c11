import numpy as np
import pandas as pd
import pytest
import yaml

from feature_alignment.papers.lejeune2024.figures import fig4
from feature_alignment.pipeline.papers import paper_folder

SIZES = (100, 400, 1600)


class Runs(dict):
    """Runs of one seed with the same given errors by model for every dataset and sampling."""

    def __init__(self, **errors):
        self.metrics = pd.DataFrame(
            {"point": "any", "dataset": dataset, "sampling": sampling, "model": model}
            | {"seed": 0, "step": 1, "layer": "all", "split": "test", "metric": "test_error"}
            | {"n": n, "value": value}
            for dataset in fig4.DATASETS
            for sampling in fig4.SAMPLINGS
            for model in fig4.MODELS
            for n, value in zip(SIZES, errors[model], strict=True)
        )


def ledger():
    path = paper_folder("lejeune2024") / "claims.yaml"
    return yaml.safe_load(path.read_text("utf-8"))["claims"]


def savings(adaptive, fixed):
    frame = fig4.table(Runs(adaptive=adaptive, fixed=fixed, full=(0.1, 0.1, 0.1))).frame
    chosen = frame[(frame["dataset"] == "mnist") & (frame["sampling"] == "kept")]
    by_metric = chosen.set_index("metric")["value"]
    return 10 ** by_metric["sample_saving_decades"]


def test_who_needs_more_samples_is_found_in_either_direction():
    good, bad = (0.4, 0.3, 0.2), (0.8, 0.4, 0.2)
    assert savings(adaptive=good, fixed=bad) == pytest.approx(4)
    assert savings(adaptive=bad, fixed=good) == pytest.approx(1 / 4)
    assert savings(adaptive=good, fixed=good) == pytest.approx(1)
    # Halfway between 0.8 and 0.2 in the logarithm of the error is halfway in that of n.
    assert savings(adaptive=(0.4, 0.3, 0.2), fixed=(0.8, 0.2, 0.1)) == pytest.approx(2)


def test_an_error_that_is_never_reached_gives_a_bound():
    assert savings(adaptive=(0.1, 0.1, 0.1), fixed=(0.8, 0.4, 0.2)) == pytest.approx(16)
    assert savings(adaptive=(0.8, 0.4, 0.2), fixed=(0.0, 0.0, 0.0)) == pytest.approx(1 / 16)


def test_the_authors_own_curve_saves_an_order_of_magnitude_as_the_ledger_reads_it():
    curve = pd.DataFrame(fig4.PUBLISHED).sort_index()
    assert fig4._saving(curve) == pytest.approx(4.27, abs=0.01)
    assert fig4._saving(curve.loc[500:]) == pytest.approx(2.74, abs=0.01)
    claims = {claim["id"]: claim for claim in ledger()}
    saving = claims["lejeune2024.fig4.saving_mnist_redrawn"]["paper_value"]
    assert saving == pytest.approx(np.log10(fig4._saving(curve)), abs=0.005)
    for sampling in fig4.SAMPLINGS:
        claim = claims[f"lejeune2024.fig4.order_of_magnitude_mnist_{sampling}"]
        assert claim["criterion"]["low"] < saving


def test_the_crosses_are_the_ledgers_numbers():
    found = {model: {} for model in fig4.MODELS}
    for claim in ledger():
        select = claim["select"]
        if select["metric"] == "test_error" and "paper_value" in claim:
            found[select["model"]][select["n"]] = claim["paper_value"]
    assert found == fig4.PUBLISHED


def test_the_first_size_with_the_wanted_error_counts():
    errors = pd.Series([0.4, 0.2, 0.2, 0.3, 0.1], index=[1, 2, 4, 8, 16])
    assert fig4._needed(errors, 0.2) == pytest.approx(2)
    assert fig4._needed(errors, 0.15) == pytest.approx(8 * 2 ** (np.log(4 / 3) / np.log(2)))
    assert fig4._needed(errors, 0.5) == pytest.approx(1)
    assert fig4._needed(errors, 0.01) == pytest.approx(16)

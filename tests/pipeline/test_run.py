import sys
import types

import numpy as np
import pytest

from feature_alignment.data.canonical import content_sha256, save
from feature_alignment.pipeline.run import SeedResult, run_experiment
from feature_alignment.training.checkpoint import Checkpoints


@pytest.fixture
def dataset_file(tmp_path):
    def make(name):
        arrays = {"y_train": np.arange(3)}
        path = tmp_path / f"{name}.npz"
        save(path, arrays, {"name": name, "sha256": content_sha256(arrays)})
        return str(path)

    return make


@pytest.fixture
def spec():
    return {
        "experiment": "fake",
        "point": "default",
        "parameters": {"seeds": 2},
        "threads": 1,
        "device": "cpu",
    }


@pytest.fixture
def calls(monkeypatch):
    found = []

    def run_seed(seed, parameters, device, dataset, label, **further):
        found.append((dataset, further))
        result = SeedResult()
        result.add("seed_squared", seed**2, step=0)
        return result

    monkeypatch.setitem(sys.modules, "fake_experiment", types.SimpleNamespace(run_seed=run_seed))
    return found


def test_datasets_reach_the_experiment_under_their_names(spec, calls, dataset_file):
    spec |= {"dataset": {"name": "mnist"}, "difficult_dataset": {"name": "kmnist"}}
    files = [dataset_file("mnist"), dataset_file("kmnist")]
    result = run_experiment(spec, "fake_experiment", *files)
    dataset, further = calls[0]
    assert dataset.info["name"] == "mnist"
    assert {key: value.info["name"] for key, value in further.items()} == {
        "difficult_dataset": "kmnist"
    }
    assert result.metrics["value"].tolist() == [0, 1]


def test_an_experiment_without_data_gets_none(spec, calls):
    run_experiment(spec, "fake_experiment")
    assert calls[0] == (None, {})


def test_each_dataset_needs_its_file(spec, calls, dataset_file):
    spec["dataset"] = {"name": "mnist"}
    with pytest.raises(ValueError, match="shorter"):
        run_experiment(spec, "fake_experiment")
    with pytest.raises(ValueError, match="longer"):
        run_experiment(spec, "fake_experiment", dataset_file("mnist"), dataset_file("kmnist"))


def test_seeds_that_are_done_are_not_run_again(spec, calls, tmp_path):
    def run(identity):
        checkpoints = Checkpoints(tmp_path / "scratch", identity)
        return run_experiment(spec, "fake_experiment", checkpoints=checkpoints)

    first = run("a")
    assert len(calls) == 2
    assert run("a").metrics.equals(first.metrics)
    assert len(calls) == 2
    run("b")
    assert len(calls) == 4

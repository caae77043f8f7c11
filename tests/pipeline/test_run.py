import random
import sys
import types

import numpy as np
import pytest
import torch

from feature_alignment.data.canonical import content_sha256, save
from feature_alignment.determinism import stream
from feature_alignment.errors import UserError
from feature_alignment.pipeline import run
from feature_alignment.pipeline.contracts import PaperError
from feature_alignment.pipeline.papers import experiment_module
from feature_alignment.pipeline.parameters import Parameters
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


class Thing(Parameters):
    """Parameters of a made-up experiment."""

    width: int = 3


@pytest.fixture
def spec():
    return {
        "experiment": "fake2020_thing",
        "point": "default",
        "parameters": {"seeds": 2, "width": 4},
        "threads": 1,
        "device": "cpu",
        "data": {},
    }


@pytest.fixture
def runs(monkeypatch):
    found = []

    def run_seed(seed_run):
        found.append(seed_run)
        result = SeedResult()
        result.add("seed_squared", seed_run.seed**2, step=0)
        return result

    module = types.SimpleNamespace(run_seed=run_seed)
    monkeypatch.setitem(sys.modules, experiment_module("fake2020_thing"), module)
    monkeypatch.setattr(run, "parameters_of", {"fake2020_thing": Thing}.__getitem__)
    return found


def test_a_seed_is_given_its_typed_parameters_and_streams(spec, runs):
    result = run_experiment(spec)
    first, second = runs
    assert first.parameters == Thing(seeds=2, width=4)
    assert first.datasets == {}
    assert (first.device.type, first.dtype) == ("cpu", torch.float64)
    assert first.stream("data").random() == stream(0, "data").random()
    assert second.stream("data").random() == stream(1, "data").random()
    assert first.checkpoint("training") is None
    assert result.metrics["value"].tolist() == [0, 1]


def test_what_draws_from_global_generators_repeats_and_depends_on_the_seed(spec, runs, monkeypatch):
    drawn = []

    def run_seed(_):
        drawn.append((float(torch.rand(())), np.random.rand(), random.random()))  # noqa: NPY002
        result = SeedResult()
        result.add("one", 1, step=0)
        return result

    monkeypatch.setattr(sys.modules[experiment_module("fake2020_thing")], "run_seed", run_seed)
    run_experiment(spec)
    run_experiment(spec)
    assert drawn[:2] == drawn[2:]
    assert all(a != b for a, b in zip(*drawn[:2], strict=True))


def test_datasets_reach_the_experiment_under_their_names(spec, runs, dataset_file):
    spec["data"] = {"difficult_dataset": {"name": "kmnist"}, "dataset": {"name": "mnist"}}
    run_experiment(spec, dataset_file("mnist"), dataset_file("kmnist"))
    assert runs[0].dataset.info["name"] == "mnist"
    assert runs[0].datasets["difficult_dataset"].info["name"] == "kmnist"


def test_each_dataset_needs_its_file(spec, runs, dataset_file):
    spec["data"] = {"dataset": {"name": "mnist"}}
    with pytest.raises(ValueError, match="shorter"):
        run_experiment(spec)
    with pytest.raises(ValueError, match="longer"):
        run_experiment(spec, dataset_file("mnist"), dataset_file("kmnist"))


def test_seeds_that_are_done_are_not_run_again(spec, runs, tmp_path):
    def attempt(identity):
        checkpoints = Checkpoints(tmp_path / "scratch", identity)
        return run_experiment(spec, checkpoints=checkpoints)

    first = attempt("a")
    assert len(runs) == 2
    assert attempt("a").metrics.equals(first.metrics)
    assert len(runs) == 2
    attempt("b")
    assert len(runs) == 4


def test_a_metric_that_is_not_finite_is_an_error(spec, runs, monkeypatch):
    def run_seed(seed_run):
        result = SeedResult()
        result.add("loss", float("nan"), step=3)
        return result

    module = types.SimpleNamespace(run_seed=run_seed)
    monkeypatch.setitem(sys.modules, experiment_module("fake2020_thing"), module)
    with pytest.raises(UserError, match=r"^fake2020_thing/default: metric loss is nan at seed 0"):
        run_experiment(spec)


@pytest.mark.parametrize(
    ("run_seed", "says"),
    [
        (lambda run: None, "returned a NoneType"),
        (lambda run: SeedResult(), "returned a SeedResult without rows"),
        (
            lambda run: SeedResult([{"value": 1.0}], {"words": np.array(["a"])}),
            "returned an array 'words' of <U1, not numbers",
        ),
        (lambda run: 1 / 0, r"failed \(ZeroDivisionError: division by zero\)"),
        (None, "failed .AttributeError: .*run_seed"),
    ],
)
def test_what_run_seed_does_wrong_is_told_in_one_sentence(spec, runs, monkeypatch, run_seed, says):
    name = experiment_module("fake2020_thing")
    module = types.SimpleNamespace(**({"run_seed": run_seed} if run_seed else {}))
    monkeypatch.setitem(sys.modules, name, module)
    where = f"fake2020_thing/default: run_seed of {name} {says}.*; it takes a SeedRun and returns"
    with pytest.raises(PaperError, match=where):
        run_experiment(spec)


def test_a_users_mistake_that_run_seed_finds_is_told_as_it_is(spec, runs, monkeypatch):
    def attempt(words):
        def run_seed(seed_run):
            raise UserError(words)

        module = types.SimpleNamespace(run_seed=run_seed)
        monkeypatch.setitem(sys.modules, experiment_module("fake2020_thing"), module)
        with pytest.raises(UserError) as caught:
            run_experiment(spec)
        return str(caught.value)

    key = "experiments.fake2020_thing.width: too wide."
    assert attempt(key) == key
    assert attempt("the loss is nan.") == "fake2020_thing/default: the loss is nan."

"""Every experiment at its smallest size, for the test files that run them all."""

from contextlib import contextmanager

import pytest

from feature_alignment.data.canonical import save
from feature_alignment.data.prepare import prepare_dataset
from feature_alignment.pipeline.papers import all_parameters
from feature_alignment.pipeline.spec import dataset_keys
from feature_alignment.training.checkpoint import Checkpoints

# They take long, and train as others do.
EXHAUSTIVE = {
    "baratin2021_classification",
    "baratin2021_difficulty",
    "baratin2021_perturbation",
    "beaglehole2024_adaptive_slo",
    "beaglehole2024_celeba",
    "beaglehole2024_character_gpt",
    "beaglehole2024_image_vgg",
    "beaglehole2024_propositions",
    "beaglehole2024_slo",
    "beaglehole2024_spectra",
    "lejeune2024_low_rank",
    "lejeune2024_theory",
    "synthesis_runs",
}


def pytest_generate_tests(metafunc):
    """One test for each experiment."""
    if "experiment" in metafunc.fixturenames:
        names = sorted(all_parameters())
        assert {*names} > EXHAUSTIVE
        marked = [pytest.param(n, marks=pytest.mark.exhaustive) for n in names if n in EXHAUSTIVE]
        metafunc.parametrize("experiment", [n for n in names if n not in EXHAUSTIVE] + marked)


@pytest.fixture
def smoke_run(experiment, smoke_plan, tmp_path):
    """The arguments of `run_experiment` for one of the experiment's points, by number of seeds."""
    spec = [spec for (name, _), spec in sorted(smoke_plan.specs.items()) if name == experiment][-1]
    files = []
    for key in dataset_keys(spec):
        files.append(tmp_path / f"{key}.npz")
        options = {name: value for name, value in spec["data"][key].items() if name != "name"}
        save(files[-1], *prepare_dataset(spec["data"][key]["name"], options))

    def arguments(seeds):
        parameters = spec["parameters"] | {"seeds": seeds}
        if "augmentation" in parameters:
            parameters["augmentation"] = True  # its random numbers are part of the state
        return spec | {"parameters": parameters}, *files

    return arguments


class Killed(BaseException):
    """Stands for the end of the process: like that, no `except Exception` sees it."""


@pytest.fixture
def killed(monkeypatch):
    """Runs inside save after every update; after so many times they are killed."""
    save_state = Checkpoints.save
    left = []

    def counting_save(self, name, content):
        save_state(self, name, content)
        if left:
            left[0] -= 1
            if left[0] == 0:
                left.pop()
                raise Killed

    monkeypatch.setattr(Checkpoints, "save", counting_save)
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)

    @contextmanager
    def after(saves):
        left.append(saves)
        with pytest.raises(Killed):
            yield

    return after

"""Every experiment that is killed twice and begun again ends with the same numbers."""

from pathlib import Path

import pandas as pd
import pytest

from feature_alignment.config import resolve_config
from feature_alignment.data.canonical import save
from feature_alignment.data.prepare import prepare_dataset
from feature_alignment.experiments.run import run_experiment
from feature_alignment.plan import make_plan
from feature_alignment.spec import dataset_keys
from feature_alignment.training.checkpoint import Checkpoints

PLAN = make_plan(resolve_config({"preset": "smoke"}, Path(__file__).parents[2] / "workflow"))
FURTHER = {"baratin2021_classification": {"augmentation": True}}


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def killer(monkeypatch):
    """Checkpoints after every update; the run is killed after some of them."""
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
    return left.append


@pytest.mark.slow
@pytest.mark.parametrize("experiment", sorted({experiment for experiment, _ in PLAN.specs}))
def test_a_killed_run_ends_with_the_same_numbers(experiment, killer, tmp_path):
    spec = [spec for (name, _), spec in sorted(PLAN.specs.items()) if name == experiment][-1]
    parameters = spec["parameters"] | {"seeds": 4} | FURTHER.get(experiment, {})
    spec = spec | {"parameters": parameters}
    files = []
    for key in dataset_keys(spec):
        files.append(tmp_path / f"{key}.npz")
        options = {name: value for name, value in spec[key].items() if name != "name"}
        save(files[-1], *prepare_dataset(spec[key]["name"], options))
    module = f"feature_alignment.experiments.{experiment}"
    expected = run_experiment(spec, module, *map(str, files))
    scratch = tmp_path / "scratch"

    def store():
        return Checkpoints(scratch, "the same in every attempt")

    for saves in (1, 3):
        killer(saves)
        with pytest.raises(Killed):
            run_experiment(spec, module, *map(str, files), checkpoints=store())
    assert list(scratch.iterdir())
    found = run_experiment(spec, module, *map(str, files), checkpoints=store())
    pd.testing.assert_frame_equal(found.metrics, expected.metrics, check_exact=True)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert (found.arrays[name] == array).all(), name

"""Every experiment that is killed twice and begun again ends with the same numbers."""

import pandas as pd
import pytest

from feature_alignment.experiments.run import run_experiment
from feature_alignment.training.checkpoint import Checkpoints


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
def test_a_killed_run_ends_with_the_same_numbers(smoke_run, killer, tmp_path):
    arguments = smoke_run(seeds=4)
    expected = run_experiment(*arguments)
    scratch = tmp_path / "scratch"

    def store():
        return Checkpoints(scratch, "the same in every attempt")

    for saves in (1, 3):
        killer(saves)
        with pytest.raises(Killed):
            run_experiment(*arguments, checkpoints=store())
    assert list(scratch.iterdir())
    found = run_experiment(*arguments, checkpoints=store())
    pd.testing.assert_frame_equal(found.metrics, expected.metrics, check_exact=True)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert (found.arrays[name] == array).all(), name

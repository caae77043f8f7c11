"""Every experiment that is killed twice and begun again ends with the same numbers."""

import pandas as pd
import pytest

from feature_alignment.pipeline.run import run_experiment
from feature_alignment.training.checkpoint import Checkpoints


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_numbers(smoke_run, killed, tmp_path):
    arguments = smoke_run(seeds=4)
    expected = run_experiment(*arguments)
    scratch = tmp_path / "scratch"

    def store():
        return Checkpoints(scratch, "the same in every attempt")

    for saves in (1, 3):
        with killed(saves):
            run_experiment(*arguments, checkpoints=store())
    assert list(scratch.iterdir())
    found = run_experiment(*arguments, checkpoints=store())
    pd.testing.assert_frame_equal(found.metrics, expected.metrics, check_exact=True)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert (found.arrays[name] == array).all(), name
        assert found.arrays[name].flags.fnc == array.flags.fnc, name  # as it is written

"""Every experiment that is killed twice and begun again ends with the same numbers."""

import pandas as pd
import pytest

from feature_alignment.pipeline.run import run_experiment
from feature_alignment.training.checkpoint import Checkpoints

ONCE = {
    "baratin2021_fourier",
    "baratin2021_interpolators",
    "baratin2021_perturbation",
    "baratin2021_supernat",
    "baratin2021_theory",
    "beaglehole2024_alignment_reversing",
    "beaglehole2024_aspect_ratios",
    "beaglehole2024_depth_prediction",
    "beaglehole2024_propositions",
    "beaglehole2024_theorem9",
    "example2030_coin",
    "lejeune2024_theory",
}
"""Those that save at the end of a seed, at most once before."""


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_numbers(experiment, smoke_run, killed, tmp_path):
    # Killed twice within the first seed, or after each of two; then there is one more.
    seeds, kills = (3, (1, 1)) if experiment in ONCE else (2, (1, 3))
    arguments = smoke_run(seeds)
    expected = run_experiment(*arguments)
    scratch = tmp_path / "scratch"

    def store():
        return Checkpoints(scratch, "the same in every attempt")

    for saves in kills:
        with killed(saves):
            run_experiment(*arguments, checkpoints=store())
    assert list(scratch.iterdir())
    found = run_experiment(*arguments, checkpoints=store())
    pd.testing.assert_frame_equal(found.metrics, expected.metrics, check_exact=True)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert (found.arrays[name] == array).all(), name
        assert found.arrays[name].flags.fnc == array.flags.fnc, name  # as it is written

from types import SimpleNamespace

import pandas as pd

from feature_alignment.papers.lejeune2024.figures import digit_kernels


class Runs(dict):
    """Runs whose arrays are their own names."""

    metrics = pd.DataFrame({"metric": ["loss"], "value": [0.0]})

    def __init__(self):
        points = digit_kernels.TARGETS
        super().__init__(
            {p: SimpleNamespace(array=lambda name, p=p: f"{p}: {name}") for p in points}
        )


def test_kernels_are_those_of_their_targets_and_the_diagonal_is_that_of_the_binarised_ones():
    assert digit_kernels.kernel_table(Runs()).arrays == {
        f"{targets}/{kernel}": f"{targets}: kernel/{kernel}"
        for targets in ("linear", "binarised")
        for kernel in ("initial", "adapted", "label")
    }
    assert digit_kernels.difficulty_table(Runs()).arrays == {
        "target": "binarised: target",
        "kernel_diagonal": "binarised: kernel_diagonal",
    }

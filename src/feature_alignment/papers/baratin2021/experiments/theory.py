"""Numerical checks of the paper's statements and misprints, each seed another random case.

Source: baratin2021, Section 4.1 and Appendices A and B.
"""

from typing import Any

import torch

from feature_alignment.determinism import stream
from feature_alignment.papers.baratin2021.checks.complexity_checks import complexity_checks
from feature_alignment.papers.baratin2021.checks.spectral_checks import spectral_checks
from feature_alignment.pipeline.run import SeedResult

Parameters = dict[str, Any]


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Check every statement on one random case.

    Args:
        seed: the seed of the case.
        parameters: the section `baratin2021_theory` of the config; none but `seeds`.
        device: not used; everything is done in NumPy.
        dataset: none is used.
        label: not used; a seed takes less than a second.

    Returns:
        One row for each statement and form of it, with the further columns `statement` and
        `form`.
    """
    checks = [
        *spectral_checks(stream(seed, "spectral")),
        *complexity_checks(stream(seed, "complexity")),
    ]
    result = SeedResult()
    for check in checks:
        columns = {"statement": check.statement, "form": check.form}
        result.add(check.metric, check.value, step=0, split="all", **columns)
    return result

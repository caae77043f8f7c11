"""baratin2021, Section 4.1, Appendices A and B: numerical checks of statements and misprints."""

import itertools

from feature_alignment.papers.baratin2021.checks.complexity_checks import complexity_checks
from feature_alignment.papers.baratin2021.checks.spectral_checks import spectral_checks
from feature_alignment.papers.baratin2021.parameters import Theory
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[Theory]) -> SeedResult:
    """Check every statement on one random case: one row for each statement and `form`."""
    result = SeedResult()
    checks = spectral_checks(run.stream("spectral")), complexity_checks(run.stream("complexity"))
    for check in itertools.chain(*checks):
        result.add(check.metric, check.value, step=0, split="all", **check.columns)
    return result

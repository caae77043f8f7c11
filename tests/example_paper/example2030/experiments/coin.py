"""Throws of a coin.

Source: example2030, Figure 1.
"""

from feature_alignment.papers.example2030.parameters import Coin
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[Coin]) -> SeedResult:
    """Throw the coin and count.

    Returns:
        The share of heads, at the step of the last throw.
    """
    p = run.parameters
    heads = run.stream("throws").random(p.throws) < p.probability
    result = SeedResult()
    result.add("heads_share", heads.mean(), step=p.throws)
    return result

"""Numerical checks of beaglehole2024's propositions and equations.

Source: beaglehole2024, Propositions 2, 3, 12 and 16, the proof of Theorem 9, Lemma 13, eq. 4, 7,
10-15, 19, 20, 22 and 26-28, the EGOP of Section 2.1, and Sections 4.1 and 5.1.
"""

from typing import Any

import torch

from feature_alignment.free_probability.random_features import sample_r
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.checks import identities, statements
from feature_alignment.papers.beaglehole2024.checks.theorem9 import SAMPLE_SIZES
from feature_alignment.papers.beaglehole2024.parameters import Propositions
from feature_alignment.pipeline.run import SeedResult, SeedRun

CHAIN_LENGTHS = (3, 4, 5)
DIMENSIONS = (16, 32, 64, 128)  # input dimensions d for statements about growing d


def run_seed(run: SeedRun[Propositions]) -> SeedResult:
    """Measure how much the two sides of each statement differ (metrics.yaml)."""
    p, result = run.parameters, SeedResult()
    for rank in CHAIN_LENGTHS:
        egop = statements.egop_of_chain(rank, p.dimension, run.stream(f"egop/{rank}"))
        _add(result, egop, rank=rank)
    for d in DIMENSIONS:
        n = round(SAMPLE_SIZES["4d log d"](d))
        rests = statements.linearisation_rests(n, d, run.stream(f"linearisation/{d}"))
        _add(result, rests, dimension=d, samples=n)
        n = round(SAMPLE_SIZES["d log³d"](d))
        on_sphere = statements.sphere_statements(n, d, run.stream(f"lemma 13/{d}"))
        _add(result, on_sphere, dimension=d, samples=n)

    generator = run.torch_stream("identities")
    x, y = (_normal(run, generator, p.samples, columns) for columns in (p.dimension, 1))
    sizes = (p.dimension, [p.dimension] * 2, 1)
    model = MLP(*sizes, "erf", bias=False, generator=generator, dtype=run.dtype).to(run.device)
    _add(result, identities.identity_errors(model, x, y))
    _add(result, identities.homogeneity_errors(x))
    _add(result, {"projection": identities.projection_error(x, y[:, 0], generator)})
    r = sample_r(p.dimension, p.dimension, generator, run.device)
    _add(result, statements.expansion_errors(x, y[:, 0], r))
    generator = run.torch_stream("kernel of the quadratic")
    _add(result, identities.quadratic_kernel_errors(x, p.dimension, generator))

    for width in p.widths:
        generator = run.torch_stream(f"proposition 16/{width}")
        x = _normal(run, generator, p.samples, p.dimension)
        y = _normal(run, generator, p.samples)
        _add(result, statements.proposition_16(x, y, width, p.networks, generator), width=width)

    generator = run.torch_stream("equations")
    x = _normal(run, generator, p.matrix_size, p.matrix_size)
    y = _normal(run, generator, p.matrix_size)
    _add(result, statements.trace_errors(x, y, p.matrix_networks, generator))
    return result


def _normal(run: SeedRun[Propositions], generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, dtype=run.dtype).to(run.device)


def _add(result: SeedResult, found: dict[str, float], **where: Any) -> None:
    for metric, value in found.items():
        result.add(metric, value, step=0, **where)

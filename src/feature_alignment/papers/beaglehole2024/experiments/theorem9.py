"""beaglehole2024, Theorem 9: the C-NFC at initialisation, on the sphere in growing dimension."""

from functools import partial

import torch

from feature_alignment.data.synthetic import uniform_sphere
from feature_alignment.models.mlp import ACTIVATIONS
from feature_alignment.papers.beaglehole2024.checks import theorem9 as check
from feature_alignment.papers.beaglehole2024.parameters import Theorem9
from feature_alignment.pipeline.run import SeedResult, SeedRun

METRIC = "one_minus_correlation"


def run_seed(run: SeedRun[Theorem9]) -> SeedResult:
    """Measure 1 − ρ with the infinite-width kernel, for one dimension also with a wide network."""
    p, result = run.parameters, SeedResult()
    for d in p.dimensions:
        for size, rule in check.SAMPLE_SIZES.items():
            n = round(rule(d))
            if n > p.most_samples:
                continue
            x = _sphere(run, n, d)
            targets = {name: target(x[:, 0]) for name, target in check.TARGETS.items()}
            for name, value in check.deviations(x, targets, p.activation).items():
                add = partial(result.add, step=0, dimension=d, sample_size=size)
                add(METRIC, value, target=name, samples=n)
    if p.activation in ACTIVATIONS:
        d, size = p.network_dimension, "4d log d"
        x = _sphere(run, round(check.SAMPLE_SIZES[size](d)), d)
        generator = run.torch_stream("init")
        found = check.network_deviations(x, x[:, 0], p.network_width, p.activation, generator)
        for method, value in found.items():
            add = partial(result.add, step=0, dimension=d, sample_size=size, target="linear")
            add(f"{METRIC}_of_network", value, samples=len(x), method=method)
    return result


def _sphere(run: SeedRun[Theorem9], n: int, d: int) -> torch.Tensor:
    """Inputs uniform on the sphere of radius √d; by symmetry, targets use β = e_1, that is x_1."""
    return torch.tensor(uniform_sphere(n, d, d**0.5, run.stream(f"data/{d}")), device=run.device)

"""Time the PTK feature covariances of all layers of an MLP against `vmap(jacrev)`.

Both are measured in the same process on the same inputs and must agree. The alternatives
differentiate the outputs by a perturbation added to the pre-activations, one sample at a time
under `torch.func.vmap`, and then contract the Jacobians:

- "vmap(jacrev), layer by layer": one such pass for each layer, as the released code of
  beaglehole2024 does for its figures;
- "vmap(jacrev), all layers": one pass for all of them, kinder than the released code.

Run from the root of the checkout:

    PYTHONPATH=src python benchmarks/feature_covariance.py --output benchmarks/feature_covariance.csv
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

from feature_alignment.determinism import configure, torch_stream
from feature_alignment.kernels.feature_covariance import layer_feature_matrices
from feature_alignment.models.mlp import ACTIVATIONS, MLP

Covariances = dict[str, torch.Tensor]


def ours(model: MLP, x: torch.Tensor, chunk_size: int) -> Covariances:
    """Covariances from c backward passes for all samples of a chunk."""
    found = layer_feature_matrices(model, x, chunk_size=chunk_size)
    return {name: matrices.covariance for name, matrices in found.items()}


def by_jacobians_of_all_layers(model: MLP, x: torch.Tensor, chunk_size: int) -> Covariances:
    """Covariances from the Jacobians by perturbations of all pre-activations together."""
    return _contract(model, x, chunk_size, list(range(len(model.layers))))


def by_jacobians_layer_by_layer(model: MLP, x: torch.Tensor, chunk_size: int) -> Covariances:
    """Covariances from the Jacobian by a perturbation of one pre-activation after the other."""
    found: Covariances = {}
    for index in range(len(model.layers)):
        found |= _contract(model, x, chunk_size, [index])
    return found


def _contract(model: MLP, x: torch.Tensor, chunk_size: int, indices: list[int]) -> Covariances:
    zeros = {i: torch.zeros(model.layers[i].out_features, dtype=x.dtype) for i in indices}

    def outputs(perturbations: dict[int, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        h = sample
        for i, layer in enumerate(model.layers):
            h = layer(h)
            if i in perturbations:
                h = h + perturbations[i]
            if i + 1 < len(model.layers):
                h = ACTIVATIONS[model.activation](h)
        return h

    jacobians = torch.func.vmap(torch.func.jacrev(outputs), in_dims=(None, 0))
    sums = {i: torch.zeros(len(z), len(z), dtype=torch.float64) for i, z in zeros.items()}
    with torch.no_grad():
        for chunk in x.split(chunk_size):
            for i, jacobian in jacobians(zeros, chunk).items():  # (n, c, k)
                rows = jacobian.flatten(0, 1)
                sums[i] += (rows.T @ rows).double()
    return {f"layers.{i}": (total / len(x)).to(x.dtype) for i, total in sums.items()}


WAYS: dict[str, Callable[[MLP, torch.Tensor, int], Covariances]] = {
    "ours: one forward, c backward passes": ours,
    "vmap(jacrev), all layers": by_jacobians_of_all_layers,
    "vmap(jacrev), layer by layer": by_jacobians_layer_by_layer,
}


def main() -> None:
    """Measure every way and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--inputs", type=int, default=3072, help="d; 3072 is a CIFAR-10 image")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=5, help="hidden layers")
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--chunks", type=int, nargs="+", default=[100, 500, 2000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="the table, CSV")
    options = parser.parse_args()
    configure(options.threads)
    widths = [options.width] * options.hidden
    init = torch_stream(0, "init")
    model = MLP(options.inputs, widths, options.outputs, "relu", False, init)
    x = torch.randn(options.samples, options.inputs, generator=torch_stream(0, "data"))
    reference = ours(model, x[:200], 200)
    rows = []
    for way, compute in WAYS.items():
        for name, covariance in compute(model, x[:200], 100).items():
            torch.testing.assert_close(covariance, reference[name], rtol=1e-4, atol=1e-7)
        for chunk_size in options.chunks:
            seconds = []
            for _ in range(options.repeats):
                start = time.perf_counter()
                compute(model, x, chunk_size)
                seconds.append(time.perf_counter() - start)
            rows.append((way, chunk_size, statistics.median(seconds)))
            print(f"{way:40} chunk {chunk_size:5} {rows[-1][2]:8.2f} s", flush=True)
    # Every way at the chunk size that suits it best.
    table = pd.DataFrame(rows, columns=["way", "chunk_size", "seconds"])
    best = table.loc[table.groupby("way", sort=False)["seconds"].idxmin()].reset_index(drop=True)
    best["ratio_to_ours"] = (best["seconds"] / best["seconds"][0]).round(2)
    best["seconds"] = best["seconds"].round(3)
    best["model"] = f"{options.inputs}-{'-'.join(map(str, widths))}-{options.outputs} ReLU"
    best["samples"] = options.samples
    best["threads"] = options.threads
    best["torch"] = torch.__version__
    best["python"] = platform.python_version()
    best["processor"] = platform.machine()
    best.to_csv(options.output, index=False)
    print(best.to_string(index=False))


if __name__ == "__main__":
    main()

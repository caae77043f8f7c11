"""Time the PTK feature covariances of all layers of an MLP against `vmap(jacrev)`.

Both are measured in the same process on the same inputs and must agree. The alternatives
differentiate the outputs with respect to a perturbation added to the pre-activations, one sample at
a time under `torch.func.vmap`, and then contract the Jacobians:

- "vmap(jacrev), layer by layer": one such pass for each layer, as the released code of
  beaglehole2024 does for its figures;
- "vmap(jacrev), all layers": one pass for all of them, more favourable than the released code.

Every way is listed at its best chunk size, in CPU seconds, with the operations of its matrix
products and the share that it reaches of the machine's rate for a large product, measured in the
same run.

The operations bound the gain, since all ways spend their time in the same kind of products. For n
samples, d inputs, L hidden layers of width k and c outputs (2 per multiplication, without those of
the readout):

- ours: n(2dk + 2(L−1)k²) forward, c·n·2(L−1)k² backward, and 5/8 of c·n·2Lk² for the covariances,
  whose lower triangle is mostly not computed;
- layer by layer: L+1 times the forward pass, L(L−1)/2 layers' backward passes in place of L−1,
  c·n·2Lk² for the covariances.

With n = 10,000, d = 3072, L = 5, k = 256: 30 against 145 GFLOP for c = 1, 114 against 322 for
c = 10, so 4.8 and 2.8 times as many. A ratio of 5 would need the alternative to run at a lower
share of the machine's rate than ours, and for c = 10 at about half of it, which it does not.

Run from the root of the checkout:

    PYTHONPATH=src python benchmarks/feature_covariance.py --output table.csv
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from floor import product_rate
from measuring import made_with

from feature_alignment.determinism import configure, torch_stream
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.models.mlp import ACTIVATIONS, MLP

Covariances = dict[str, torch.Tensor]


def ours(model: MLP, x: torch.Tensor, chunk_size: int) -> Covariances:
    """Covariances from c backward passes for all samples of a chunk."""
    found = layer_feature_matrices(model, x, chunk_size=chunk_size)
    return {name: matrices.covariance for name, matrices in found.items()}


def by_jacobians_of_all_layers(model: MLP, x: torch.Tensor, chunk_size: int) -> Covariances:
    """Covariances from the Jacobians with respect to perturbations of all pre-activations."""
    return _contract(model, x, chunk_size, list(range(len(model.layers))))


def by_jacobians_layer_by_layer(model: MLP, x: torch.Tensor, chunk_size: int) -> Covariances:
    """Covariances from the Jacobians with respect to one perturbation after the other."""
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
    """Measure every way for every number of outputs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--inputs", type=int, default=3072, help="d; 3072 is a CIFAR-10 image")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=5, help="hidden layers")
    parser.add_argument("--outputs", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--chunks", type=int, nargs="+", default=[100, 500, 2000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="the table, CSV")
    options = parser.parse_args()
    configure(options.threads)
    x = torch.randn(options.samples, options.inputs, generator=torch_stream(0, "data"))
    tables = []
    for outputs in options.outputs:
        widths = [options.width] * options.hidden
        init = torch_stream(0, "init")
        model = MLP(options.inputs, widths, outputs, "relu", False, init)
        require_agreement(model, x[:200])
        table = best_times(model, x, options.chunks, options.repeats)
        table.insert(0, "outputs", outputs)
        tables.append(table)
    table = pd.concat(tables)
    table["hidden_layers"] = f"{options.hidden} x {options.width}, ReLU"
    table["inputs"] = options.inputs
    table["samples"] = options.samples
    table["threads"] = options.threads
    table["load"] = round(os.getloadavg()[0], 1)
    table["torch"] = torch.__version__
    table = table.assign(**made_with())
    table.to_csv(options.output, index=False)
    print(table.to_string(index=False))


def require_agreement(model: MLP, x: torch.Tensor) -> None:
    """Stop if the ways do not give the same covariances."""
    reference = ours(model, x, len(x))
    for compute in WAYS.values():
        for name, covariance in compute(model, x, 100).items():
            torch.testing.assert_close(covariance, reference[name], rtol=1e-4, atol=1e-7)


def best_times(model: MLP, x: torch.Tensor, chunks: list[int], repeats: int) -> pd.DataFrame:
    """Median CPU seconds of each way at its best chunk size; the ways take turns."""
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        for chunk_size in chunks:
            for way, compute in WAYS.items():
                start = time.process_time()
                compute(model, x, chunk_size)
                elapsed = time.process_time() - start
                seconds.setdefault((way, chunk_size), []).append(elapsed)
    best = []
    for way in WAYS:
        medians = {chunk: statistics.median(seconds[way, chunk]) for chunk in chunks}
        chunk_size = min(medians, key=medians.__getitem__)
        best.append({"way": way, "chunk_size": chunk_size, "seconds": medians[chunk_size]})
    table = pd.DataFrame(best).rename(columns={"seconds": "cpu_seconds"})
    table["ratio_to_ours"] = (table["cpu_seconds"] / table["cpu_seconds"][0]).round(2)
    table["gflop"] = [round(gflop(way, model, len(x))) for way in table["way"]]
    table["share_of_peak"] = (table["gflop"] / table["cpu_seconds"] / product_rate()).round(2)
    table["cpu_seconds"] = table["cpu_seconds"].round(2)
    return table


def gflop(way: str, model: MLP, n: int) -> float:
    """Operations of a way's matrix products, in units of 10⁹, without those of the readout."""
    d, k = model.layers[0].in_features, model.layers[0].out_features
    hidden, c = len(model.layers) - 1, model.layers[-1].out_features
    forward, square = 2 * d * k + 2 * (hidden - 1) * k**2, 2 * k**2
    backward, covariance = (hidden - 1) * square, hidden * square
    if way.endswith("layer by layer"):
        forward, backward = (hidden + 1) * forward, hidden * (hidden - 1) / 2 * square
    if way.startswith("ours"):
        covariance *= 5 / 8
    return n * (forward + c * (backward + covariance)) / 1e9


if __name__ == "__main__":
    main()

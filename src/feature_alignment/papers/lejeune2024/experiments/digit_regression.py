"""lejeune2024, Figures 1 and 3, Section 3.2, Appendix B.1: regression on two digit classes."""

import math
from typing import Any

import torch

from feature_alignment.kernels.average_features import (
    average_tangent_features,
    copy_parameters,
    label_kernel,
)
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.lejeune2024.experiments import kernel_measures
from feature_alignment.papers.lejeune2024.experiments.two_digits import fit, two_digits
from feature_alignment.papers.lejeune2024.parameters import DigitRegression
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.evaluation import evaluate, outputs_in_chunks
from feature_alignment.training.losses import mse


def run_seed(run: SeedRun[DigitRegression]) -> SeedResult:
    """Train one network on one kind of target and measure its adapted kernel.

    Both kinds of target share images, initial weights and the linear function.

    Raises:
        TrainingDivergedError: if a kernel is zero (no unit is active) or not finite after training.
    """
    p = run.parameters
    needs = ("train_samples", "kernel_samples")
    x, classes = two_digits(run, "train", p.train_samples, needs=needs)
    x, classes = x.to(**run.to), classes.to(**run.to)
    linear = _linear_targets(run, x, classes)
    y = torch.sign(linear) if p.targets == "binarised" else linear.clone()
    flipped = torch.randperm(len(y), generator=run.torch_stream("targets/flips"))
    y[flipped[: round(p.label_flips * len(y))]] *= -1
    model = _network(run, "init", x.shape[1], bias=p.bias)
    initial = copy_parameters(model)
    step = fit(run, model, x, y, p.epochs, momentum=p.momentum, annealing=p.annealing)
    shown = slice(0, p.kernel_samples)
    order = torch.argsort(linear[shown, 0], stable=True)
    images, target = x[shown][order], linear[shown][order, 0]
    final = copy_parameters(model)
    average = average_tangent_features(model, initial, final, images, p.path_points)
    first = average_tangent_features(model, initial, initial, images, 2)
    kernels = {
        "initial": kernel_measures.kernel_of(first),
        "adapted": kernel_measures.kernel_of(average),
        "final": tangent_kernel(model, images),
    }
    for name, kernel in kernels.items():
        if not 0 < float(kernel.total.norm()) < math.inf:
            raise TrainingDivergedError(
                f"training diverged: the {name} kernel is zero or not finite; lower learning_rate "
                f"(now {p.learning_rate:g})."
            )
    with torch.no_grad():
        start = torch.func.functional_call(model, initial, (images,))
        label = label_kernel(model(images) - start)
    totals = {name: kernels[name].total for name in ("initial", "adapted")}
    result = SeedResult()
    result.add("target_accuracy", (torch.sign(linear) == classes).double().mean(), step=0)
    kernel_measures.compare(kernels, label, step, result)
    last = f"layers.{p.hidden_layers}"
    moved = {name: final[name] - before for name, before in initial.items()}
    double = (totals["adapted"].double(), totals["initial"].double(), target.double())
    change = {name: average[name] - phi for name, phi in first.items()}
    residual = (y[shown][order] - start)[:, 0]
    # The gradient of the one output with respect to the last layer: z(x), and 1 for its bias.
    z = torch.cat([phi for name, phi in first.items() if name.startswith(f"{last}.")], dim=1)
    for metric, value in {
        "loss": evaluate(model, x, y, {"loss": mse})["loss"],
        **kernel_measures.parts_of_prediction(average, moved, last, target, residual),
        **kernel_measures.last_features(z, target.double()),
        **kernel_measures.locate(*double),
        **kernel_measures.transformation(totals["initial"], change, residual),
    }.items():
        result.add(metric, value, step=step)
    result.arrays["target"] = target.cpu().numpy()
    result.arrays["kernel_diagonal"] = totals["adapted"].diagonal().cpu().numpy()
    if run.seed == 0:  # the matrices are large, and the figure shows one seed
        for name, matrix in {**totals, "label": label}.items():
            result.arrays[f"kernel/{name}"] = matrix.float().cpu().numpy()
    return result


def _network(run: SeedRun[DigitRegression], stream: str, input_dim: int, *, bias: bool) -> MLP:
    p = run.parameters
    widths, generator = [p.width] * p.hidden_layers, run.torch_stream(stream)
    model = MLP(input_dim, widths, 1, "relu", bias, generator, p.initialisation, dtype=run.dtype)
    return model.to(run.device)


def _linear_targets(
    run: SeedRun[DigitRegression], x: torch.Tensor, classes: torch.Tensor
) -> torch.Tensor:
    """Targets y = z(x)·b*: a fit of the classes by the last layer of a random network."""
    # SGD stops short of least squares, whose accuracy is .98; the paper states .952.
    p = run.parameters
    bias = p.bias and p.target_bias
    *hidden, last = _network(run, "targets/init", x.shape[1], bias=bias).layers
    features = x
    with torch.no_grad():
        for layer in hidden:
            features = torch.relu(layer(features))  # (n, width)
    if p.target_fit == "least-squares":
        # "gelsy", the default of older PyTorch, finds no rank if a unit is never active.
        found = torch.linalg.lstsq(features.cpu(), classes.cpu(), driver="gelsd")
        return features @ found.solution.to(x)
    options: dict[str, Any] = {"momentum": p.momentum, "annealing": p.annealing}
    options["annealing_epochs"] = p.target_annealing_epochs
    fit(run, last, features, classes, p.target_epochs, "targets/batches", "targets", **options)
    return outputs_in_chunks(last, features)

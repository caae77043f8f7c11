"""Deviation of the weights by the adaptive solver, by factorised training and by full training.

Source: lejeune2024, Sections 3.2 and 4, a comparison that the paper does not make: its theory says
that the deviation is nearly of low rank.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.adaptive.adaptive_features import AdaptiveTangentFeatures
from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.errors import UserError
from feature_alignment.features.feature_matrices import cosine_similarity
from feature_alignment.kernels.spectrum import effective_rank
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.models.feedforward import sequential_mlp
from feature_alignment.models.tangent_models import TangentModel
from feature_alignment.pipeline.run import SeedResult
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.optimizers import cosine_rate, make_optimizer
from feature_alignment.training.progress import Progress

Parameters = dict[str, Any]
Weights = dict[str, torch.Tensor]
TASKS = ("single-index", "digits")
MODELS = ("ridgeless", "solver", "factorised", "full")
"""Minimum-norm interpolation with K₀, the adaptive solver, and two networks trained by SGD."""


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Fit one task by each model from the same initial network.

    Args:
        seed: the seed.
        parameters: the section `lejeune2024_low_rank` of the config, and `task`, one of `TASKS`:
            the second Hermite polynomial of one direction of Gaussian inputs, or two digit classes.
        device: where to compute.
        dataset: the digits.
        label: names the run in its progress lines.

    Returns:
        For each model (column `model`) the test error, nmse and share of wrong signs; for each
        layer its share of ‖B‖² and the effective rank of its deviation; for the solver how the
        kernel changes; and the singular values as arrays. For the digits also of the solver on
        targets that are linear in the last layer's features, `solver-linear` in those of another
        random network and `solver-own` in those of the network itself.
    """
    if parameters["task"] == "single-index":
        parts = _gaussian(seed, parameters)
    else:
        parts = _digits(seed, parameters, dataset)
    task = _Task(*(part.to(device, torch.float32) for part in parts))
    widths = [parameters["width"]] * parameters["hidden_layers"]
    network = sequential_mlp(task.x.shape[1], widths, 1, torch_stream(seed, "init"), "kaiming").to(
        device
    )
    result = SeedResult()
    for structure, model in (("none", "ridgeless"), ("layers", "solver")):
        _solve(network, task, structure, model, result)
    if parameters["task"] == "digits":
        other = sequential_mlp(
            task.x.shape[1], widths, 1, torch_stream(seed, "targets/init"), "kaiming"
        ).to(device)
        for source, model in ((other, "solver-linear"), (network, "solver-own")):
            _solve(network, _linear_task(task, source), "layers", model, result)
    for model in ("factorised", "full"):
        _train(network, task, model, seed, parameters, result, f"{label} {model}")
    return result


@dataclass(frozen=True)
class _Task:
    """Inputs (n, d) and targets (n, 1) to train on, and others to test on."""

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def _gaussian(seed: int, parameters: Parameters) -> list[torch.Tensor]:
    n, d = parameters["samples"], parameters["dimension"]
    generator = stream(seed, "data")
    x = generator.standard_normal((n + parameters["test_samples"], d))
    direction = generator.standard_normal(d)
    z = x @ direction / np.linalg.norm(direction)
    y = torch.as_tensor((z**2 - 1) / np.sqrt(2))[:, None]
    inputs = torch.as_tensor(x / np.sqrt(d))
    return [inputs[:n], y[:n], inputs[n:], y[n:]]


def _digits(seed: int, parameters: Parameters, dataset: Dataset) -> list[torch.Tensor]:
    negative, positive = parameters["classes"]
    parts = []
    for split, wanted in (("train", parameters["samples"]), ("test", parameters["test_samples"])):
        images, labels = dataset.split(split)
        chosen = np.flatnonzero((labels == negative) | (labels == positive))
        if wanted > len(chosen) and split == "train":
            raise UserError(
                f"experiments.lejeune2024_low_rank.samples: found {wanted}, but "
                f"{dataset.info['description']} has only {len(chosen)} training images of the "
                f"classes {negative} and {positive}; lower samples."
            )
        chosen = stream(seed, f"data/{split}").permutation(chosen)[:wanted]
        pixels = images[chosen].reshape(len(chosen), -1).astype(np.float64)
        pixels -= pixels.mean(axis=1, keepdims=True)
        pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
        signs = np.where(labels[chosen] == positive, 1.0, -1.0)
        parts += [torch.as_tensor(pixels), torch.as_tensor(signs)[:, None]]
    return parts


def _linear_task(task: _Task, source: nn.Sequential) -> _Task:
    """The same inputs with the least-squares fit of the targets by a network's last layer.

    Source: lejeune2024, Section 3.2: y = z(x)·b*.
    """
    hidden = source[:-1]
    with torch.no_grad():
        z, z_test = hidden(task.x).double(), hidden(task.x_test).double()  # (n, width)
    weights = torch.linalg.lstsq(z.cpu(), task.y.double().cpu(), driver="gelsd").solution.to(z)
    return replace(task, y=(z @ weights).to(task.y), y_test=(z_test @ weights).to(task.y))


def _solve(
    network: nn.Sequential, task: _Task, structure: str, model: str, result: SeedResult
) -> None:
    solver = AdaptiveTangentFeatures(network, structure=structure).fit(task.x, task.y)
    predictions = torch.as_tensor(solver.predict(task.x_test)).to(task.y_test)
    # The last column of each matrix belongs to the bias.
    weights = {layer: b[:, :-1] for layer, b in solver.coefficients_.items()}
    _record(model, predictions, weights, task, solver.n_iter_, result)
    with torch.no_grad():
        change = (task.y - network(task.x)).flatten().double()
    initial = tangent_kernel(network, task.x).total.double()
    kernel = torch.as_tensor(solver.adapted_kernel(task.x)).to(initial)
    label = torch.outer(change, change)
    for metric, matrix in (("initial_label_similarity", initial), ("label_similarity", kernel)):
        similarity = cosine_similarity(matrix, label)
        result.add(metric, similarity, step=solver.n_iter_, model=model)


def _train(
    network: nn.Sequential,
    task: _Task,
    model: str,
    seed: int,
    parameters: Parameters,
    result: SeedResult,
    label: str,
) -> None:
    initial = {name: layer.weight.detach().clone() for name, layer in _linear_layers(network)}
    trained = network if model == "full" else TangentModel(network, model)
    per_epoch = steps_per_epoch(len(task.x), parameters["batch_size"])
    steps = parameters["epochs"] * per_epoch
    settings = {"name": "momentum", "lr": parameters["learning_rate"], "momentum": 0.9}
    train(
        trained,
        task.x,
        task.y,
        loss=mse,
        optimizer=make_optimizer([p for p in trained.parameters() if p.requires_grad], settings),
        steps=steps,
        batch_size=parameters["batch_size"],
        batches=torch_stream(seed, "batches"),
        schedule=cosine_rate(steps, per_epoch),
        progress=Progress(steps, label),
    )
    if isinstance(trained, TangentModel):
        weights = trained.deviations()
    else:
        weights = {
            name: layer.weight.detach() - initial[name] for name, layer in _linear_layers(network)
        }
    predictions = outputs_in_chunks(trained, task.x_test)
    fitted = outputs_in_chunks(trained, task.x)
    result.add("train_nmse", _nmse(fitted, task.y), step=steps, model=model)
    _record(model, predictions, weights, task, steps, result)


def _linear_layers(network: nn.Sequential) -> list[tuple[str, nn.Linear]]:
    return [(name, layer) for name, layer in network.named_children() if hasattr(layer, "weight")]


def _record(
    model: str,
    predictions: torch.Tensor,
    weights: Weights,
    task: _Task,
    step: int,
    result: SeedResult,
) -> None:
    y = task.y_test
    wrong = float((torch.sign(predictions) != torch.sign(y)).double().mean())
    result.add("nmse", _nmse(predictions, y), step=step, split="test", model=model)
    result.add("sign_error", wrong, step=step, split="test", model=model)
    total = sum(float(w.double().square().sum()) for w in weights.values())
    for layer, w in weights.items():
        values = torch.linalg.svdvals(w.double()).cpu().numpy()
        share = float((values**2).sum()) / total
        result.add("norm_share", share, step=step, layer=layer, model=model)
        rank = effective_rank(values**2)
        result.add("effective_rank", rank, step=step, layer=layer, model=model)
        result.arrays[f"{model}/{layer}"] = values


def _nmse(f: torch.Tensor, y: torch.Tensor) -> float:
    """Squared error over that of the mean."""
    return float((f - y).square().mean() / (y - y.mean()).square().mean())

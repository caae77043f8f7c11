"""Deviation of the weights under the adaptive solver, factorised training and full training.

Source: lejeune2024, Sections 3.2 and 4. The paper does not make this comparison; its theory says
that the deviation is approximately low rank.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.adaptive.adaptive_features import AdaptiveTangentFeatures
from feature_alignment.kernels.spectrum import effective_rank
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.layer_features.feature_matrices import cosine_similarity
from feature_alignment.models.mlp import sequential_mlp
from feature_alignment.models.tangent_models import TangentModel
from feature_alignment.papers.lejeune2024.experiments.two_digits import fit, two_digits
from feature_alignment.papers.lejeune2024.parameters import LowRank
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.probes import WHOLE_NETWORK

LARGE = 10  # factor that takes the targets beyond most of the penalty's quadratic part


def run_seed(run: SeedRun[LowRank]) -> SeedResult:
    """Fit one task by each model (column `model`, metrics.yaml) from the same initial network."""
    digits = run.parameters.task == "digits"
    parts = _digits(run) if digits else _gaussian(run)
    task = _Task(*(part.to(run.device, torch.float32) for part in parts))
    network = _network(run, "init", task)
    result = SeedResult()
    solve = partial(_solve, network, result, penalty=run.parameters.penalty)
    noise = torch.randn(len(task.y), 1, generator=run.torch_stream("noise")).to(task.y)
    noisy = replace(task, y=task.y + run.parameters.noise * noise)
    large = [replace(t, y=LARGE * t.y, y_test=LARGE * t.y_test) for t in (task, noisy)]
    fits = [("none", "ridgeless", [task, noisy]), ("layers", "solver", [task, noisy])]
    for structure, model, tasks in fits if digits else [*fits, ("layers", "tail", large)]:
        clean, cost = (
            solve(t, m, structure=structure)
            for t, m in zip(tasks, (model, f"{model}-noisy"), strict=True)
        )
        result.add("noise_cost", cost - clean, step=0, split="test", model=model)
    if digits:
        other = _network(run, "targets/init", task)
        for source, model in ((other, "solver-linear"), (network, "solver-own")):
            solve(_linear_task(task, source), model, structure="layers")
    for model in ("factorised", "full"):
        _train(run, network, task, model, result)
    return result


@dataclass(frozen=True)
class _Task:
    """Inputs (n, d) and targets (n, 1) for training, and others for testing."""

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def _gaussian(run: SeedRun[LowRank]) -> tuple[torch.Tensor, ...]:
    p = run.parameters
    n, d, generator = p.samples, p.dimension, run.stream("data")
    x = generator.standard_normal((n + p.test_samples, d))
    direction = generator.standard_normal(d)
    z = x @ direction / np.linalg.norm(direction)
    y = torch.as_tensor((z**2 - 1) / np.sqrt(2))[:, None]
    inputs = torch.as_tensor(x / np.sqrt(d))
    return inputs[:n], y[:n], inputs[n:], y[n:]


def _digits(run: SeedRun[LowRank]) -> tuple[torch.Tensor, ...]:
    p = run.parameters
    order, order_test = run.stream("data/train"), run.stream("data/test")
    return (
        *two_digits(run, "train", p.samples, needs=("samples",), generator=order),
        *two_digits(run, "test", p.test_samples, generator=order_test),
    )


def _network(run: SeedRun[LowRank], stream: str, task: _Task) -> nn.Sequential:
    widths = [run.parameters.width] * run.parameters.hidden_layers
    generator, init = run.torch_stream(stream), run.parameters.initialisation
    return sequential_mlp(task.x.shape[1], widths, 1, generator, init).to(run.device)


def _linear_task(task: _Task, source: nn.Sequential) -> _Task:
    """The task with y replaced by its fit z(x)·b* in the source's last features (Section 3.2)."""
    hidden = source[:-1]
    with torch.no_grad():
        z, z_test = hidden(task.x).double(), hidden(task.x_test).double()  # (n, width)
    weights = torch.linalg.lstsq(z.cpu(), task.y.double().cpu(), driver="gelsd").solution.to(z)
    return replace(task, y=(z @ weights).to(task.y), y_test=(z_test @ weights).to(task.y))


def _solve(
    network: nn.Sequential, result: SeedResult, task: _Task, model: str, **options: Any
) -> float:
    """Fit, record the results, and return the `_nmse` on the test samples."""
    solver = AdaptiveTangentFeatures(network, **options)
    solver.fit(task.x, task.y)
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
        result.add(metric, cosine_similarity(matrix, label), step=solver.n_iter_, model=model)
    return _nmse(predictions, task.y_test)


def _train(
    run: SeedRun[LowRank], network: nn.Sequential, task: _Task, model: str, result: SeedResult
) -> None:
    initial = {name: weight.clone() for name, weight in _weights(network).items()}
    trained = network if model == "full" else TangentModel(network, model)
    steps = fit(run, trained, task.x, task.y, run.parameters.epochs, checkpoint=model)
    if isinstance(trained, TangentModel):
        weights = trained.deviations()
    else:
        weights = {name: weight - initial[name] for name, weight in _weights(network).items()}
    fitted = outputs_in_chunks(trained, task.x)
    result.add("train_nmse", _nmse(fitted, task.y), step=steps, model=model)
    _record(model, outputs_in_chunks(trained, task.x_test), weights, task, steps, result)


def _weights(network: nn.Sequential) -> dict[str, torch.Tensor]:
    layers = network.named_children()
    return {name: layer.weight.detach() for name, layer in layers if isinstance(layer, nn.Linear)}


def _record(
    model: str,
    predictions: torch.Tensor,
    weights: dict[str, torch.Tensor],
    task: _Task,
    step: int,
    result: SeedResult,
) -> None:
    y = task.y_test
    wrong = float((torch.sign(predictions) != torch.sign(y)).double().mean())
    result.add("nmse", _nmse(predictions, y), step=step, split="test", model=model)
    result.add("sign_error", wrong, step=step, split="test", model=model)
    spectra = {
        layer: torch.linalg.svdvals(w.double()).cpu().numpy() for layer, w in weights.items()
    }
    together = np.concatenate(list(spectra.values()))
    for layer, values in {**spectra, WHOLE_NETWORK: together}.items():
        result.add("effective_rank", effective_rank(values**2), step=step, layer=layer, model=model)
    for layer, values in spectra.items():
        share = float((values**2).sum() / (together**2).sum())
        result.add("norm_share", share, step=step, layer=layer, model=model)
        result.arrays[f"{model}/{layer}"] = values


def _nmse(f: torch.Tensor, y: torch.Tensor) -> float:
    """Squared error relative to that of predicting the mean."""
    return float((f - y).square().mean() / (y - y.mean()).square().mean())

"""Train a classifier until its training loss is small, and measure how complex it has become.

Source: baratin2021, Figure 6 and Section 4.2.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.complexity import measures as complexity
from feature_alignment.complexity.update_path import UpdatePath
from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.one_hidden_layer import one_hidden_layer_trace
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.models.mlp import MLP
from feature_alignment.models.vgg import VGG
from feature_alignment.papers.baratin2021.experiments.labelled_images import (
    CLASSES,
    check_kernel_samples,
    labelled_images,
)
from feature_alignment.pipeline.run import SeedResult, precision
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import cross_entropy
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress

Parameters = dict[str, Any]
Split = tuple[torch.Tensor, torch.Tensor]
CHUNK = 500
"""Images that are evaluated at a time."""


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one network to the loss that is the goal, and measure it there.

    The loss over all training samples is looked at every `check_every` updates. A run that does
    not reach the goal within `max_steps` is measured where it stops, with `goal_reached` 0.

    Args:
        seed: the seed; all points with the same dataset and size share images, those with the
            same share of random labels the labels.
        parameters: the section `baratin2021_complexity` of the config, with one of its parts `mlp`
            and `vgg19` merged into it, and from the figure `model`, `width`, `init`, `dataset` and
            `random_label_share`.
        device: where to train.
        dataset: images of ten classes.
        label: names the run in its progress lines.

    Returns:
        At the last step: losses, accuracies, margin, the generalisation gap in accuracy, the
        complexity C of eq. 18 (`path_complexity`) and the measures of `theory.complexity`, those
        from bounds on classifiers also divided by the margin.

    Raises:
        UserError: if the dataset has fewer images than are asked for, or the kernel is to be
            measured on more images than are trained on.
    """
    share = parameters["random_label_share"]
    splits = labelled_images(seed, parameters, device, dataset, share).splits
    x, y = splits["train"]
    number = parameters["kernel_samples"]
    check_kernel_samples(
        f"baratin2021_complexity.{parameters['model']}.kernel_samples",
        number,
        {"training images": len(x)},
    )
    model = _network(parameters, tuple(x.shape[1:]), torch_stream(seed, "init")).to(device)
    initial = complexity.layer_matrices(model)
    batch = x[:number]
    model.eval()
    trace_at_start = _trace(model, batch)
    model.train()
    path = UpdatePath(model, lambda network: _trace(network, batch))
    goal, steps = parameters["loss_goal"], parameters["max_steps"]
    settings = {
        "name": "momentum",
        "lr": parameters["learning_rate"],
        "momentum": parameters["momentum"],
    }
    recorder = train(
        model,
        x,
        y,
        loss=cross_entropy,
        optimizer=make_optimizer(model.parameters(), settings),
        steps=steps,
        batch_size=parameters["batch_size"],
        batches=torch_stream(seed, "batches"),
        measure_at={*range(0, steps, parameters["check_every"]), steps},
        stop_when=lambda step, record: record.value(step, "loss") < goal,
        after_update=path,
        progress=Progress(steps, label),
    )
    last = int(recorder.frame()["step"].max())
    result = SeedResult(seconds=recorder.seconds)
    model.eval()
    scores = _scores(model, splits)
    for (split, metric), value in scores.items():
        result.add(metric, value, step=last, split=split)
    gap = scores["train", "accuracy"] - scores["test", "accuracy"]
    result.add("generalisation_gap", gap, step=last, split="test")
    result.add("goal_reached", scores["train", "loss"] < goal, step=last)
    result.add("tangent_trace_ratio", _trace(model, batch) / trace_at_start, step=last)
    measures = {
        "path_complexity": path.complexity,
        "path_length": path.length,
        "fisher_rao_norm": complexity.fisher_rao_norm(model, x, y),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **_norms(model, initial, x, scores["train", "margin"]),
    }
    for metric, value in measures.items():
        result.add(metric, value, step=last)
    return result


def _norms(
    model: nn.Module, initial: complexity.Matrices, x: torch.Tensor, margin: float
) -> dict[str, float]:
    """Measures of the solution, those from bounds on classifiers also over the margin γ.

    Where the margin is not positive there is nothing to divide by, and only the norms are left.
    """
    weights = complexity.layer_matrices(model)
    norms = {
        "l1_infinity_product": complexity.l1_infinity_product(weights),
        "frobenius_product": complexity.frobenius_product(weights),
        "spectral_product": complexity.spectral_product(weights),
        "spectral_complexity": complexity.spectral_complexity(weights, initial),
        "pac_bayes_spectral": complexity.pac_bayes_spectral(weights, initial),
        "path_norm": complexity.path_norm(model, x.shape[1:]),
    }
    if isinstance(model, MLP):
        norms["unit_capacity"] = complexity.unit_capacity(weights, initial)
    found = norms | {"distance_from_start": complexity.distance_from_start(weights, initial)}
    if margin > 0:
        found |= {f"{name}_over_margin": value / margin for name, value in norms.items()}
        if isinstance(model, MLP):
            found["unit_capacity_bound"] = complexity.unit_capacity_bound(
                weights, initial, x, margin
            )
    return found


def _scores(model: nn.Module, splits: dict[str, Split]) -> dict[tuple[str, str], float]:
    """Loss, accuracy and margin by split and metric."""
    found = {}
    for split, (x, y) in splits.items():
        f = outputs_in_chunks(model, x, CHUNK)
        found[split, "loss"] = float(cross_entropy(f, y))
        found[split, "accuracy"] = float((f.argmax(dim=1) == y).double().mean())
        found[split, "margin"] = complexity.margin_quantile(f, y)
    return found


def _trace(model: nn.Module, batch: torch.Tensor) -> float:
    """Tr K on a batch; `model` is in evaluation mode."""
    if isinstance(model, MLP):
        hidden, readout = model.layers
        return one_hidden_layer_trace(hidden, readout, batch)
    return tangent_trace(model, batch)


def _network(
    parameters: Parameters, shape: tuple[int, int, int], generator: torch.Generator
) -> nn.Module:
    width = parameters["width"]
    options = {"init": parameters["init"], "dtype": precision(parameters)}
    if parameters["model"] == "mlp":
        return MLP(int(np.prod(shape)), [width], CLASSES, "relu", True, generator, **options)
    return VGG(19, width, CLASSES, generator, in_channels=shape[0], **options)

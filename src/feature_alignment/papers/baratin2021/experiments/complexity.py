"""baratin2021, Figure 6, eq. 18, Section 4.2: classifiers and measures of their complexity."""

import torch
from torch import nn

from feature_alignment.complexity import measures as complexity
from feature_alignment.complexity.path_norm import path_norm
from feature_alignment.complexity.update_path import UpdatePath
from feature_alignment.gradients.capture_plan import CapturePlan, plan_capture
from feature_alignment.kernels.tangent_trace import one_hidden_layer_trace, tangent_trace
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.parameters import Complexity
from feature_alignment.pipeline.labelled_images import (
    Splits,
    check_kernel_samples,
    image_classifier,
    labelled_images,
)
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import cross_entropy

CHUNK = 500  # images evaluated at a time


def run_seed(run: SeedRun[Complexity]) -> SeedResult:
    """Train one network to the goal loss, and measure it there, or where it stops at `max_steps`.

    All points with the same dataset and size share a seed's images; those with the same share of
    random labels also share labels.
    """
    p = run.parameters
    own = p.mlp if p.model == "mlp" else p.vgg19
    numbers = own.train_samples, own.test_samples
    splits, _ = labelled_images(run, *numbers, p.random_label_share, p.model)
    x, y = splits["train"]
    key = f"baratin2021_complexity.{p.model}.kernel_samples"
    check_kernel_samples(key, own.kernel_samples, {"train": (x, y)})
    model = image_classifier(run, p.model, x[0].shape, p.width, init=p.init)
    initial = complexity.layer_matrices(model)
    batch = x[: own.kernel_samples]
    model.eval()
    plan = None if isinstance(model, MLP) else plan_capture(model, batch)
    trace_at_start = _trace(model, batch, plan)
    model.train()
    path = UpdatePath(model, lambda network: _trace(network, batch, plan))
    recorder = train(
        model,
        *splits["train"],
        loss=cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), lr=own.learning_rate, momentum=p.momentum),
        **run.training(own.max_steps),
        batch_size=p.batch_size,
        measure_at={*range(0, own.max_steps, p.check_every), own.max_steps},
        stop_when=lambda step, record: record.value(step, "loss") < p.loss_goal,
        after_update=path,
    )
    last = int(recorder.frame()["step"].to_numpy().max())
    result = SeedResult()
    result.seconds.update(recorder.seconds)
    model.eval()
    scores = _scores(model, splits)
    for (split, metric), value in scores.items():
        result.add(metric, value, step=last, split=split)
    gap = scores["train", "accuracy"] - scores["test", "accuracy"]
    result.add("generalisation_gap", gap, step=last, split="test")
    for metric, value in {
        "goal_reached": scores["train", "loss"] < p.loss_goal,
        "tangent_trace_ratio": _trace(model, batch, plan) / trace_at_start,
        "path_complexity": path.complexity,
        "path_length": path.length,
        "fisher_rao_norm": complexity.fisher_rao_norm(model, x, y),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **_norms(model, initial, x, scores["train", "margin"]),
    }.items():
        result.add(metric, value, step=last)
    return result


def _norms(
    model: nn.Module, initial: complexity.Matrices, x: torch.Tensor, margin: float
) -> dict[str, float]:
    """Measures of the solution; those from margin bounds also divided by a positive margin γ."""
    weights = complexity.layer_matrices(model)
    norms = {
        "l1_infinity_product": complexity.l1_infinity_product(weights),
        "frobenius_product": complexity.frobenius_product(weights),
        "spectral_product": complexity.spectral_product(weights),
        "spectral_complexity": complexity.spectral_complexity(weights, initial),
        "pac_bayes_spectral": complexity.pac_bayes_spectral(weights, initial),
        "path_norm": path_norm(model, x.shape[1:]),
    }
    if isinstance(model, MLP):
        norms["unit_capacity"] = complexity.unit_capacity(weights, initial)
    found = norms | {"distance_from_start": complexity.distance_from_start(weights, initial)}
    if margin > 0:
        found |= {f"{name}_over_margin": value / margin for name, value in norms.items()}
        if isinstance(model, MLP):
            bound = complexity.unit_capacity_bound(weights, initial, x, margin)
            found["unit_capacity_bound"] = bound
    return found


def _scores(model: nn.Module, splits: Splits) -> dict[tuple[str, str], float]:
    """Loss, accuracy and margin by split and metric."""
    found = {}
    for split, (x, y) in splits.items():
        f = outputs_in_chunks(model, x, CHUNK)
        found[split, "loss"] = float(cross_entropy(f, y))
        found[split, "accuracy"] = float((f.argmax(dim=1) == y).double().mean())
        found[split, "margin"] = complexity.margin_quantile(f, y)
    return found


def _trace(model: nn.Module, batch: torch.Tensor, plan: CapturePlan | None) -> float:
    """Tr K on a batch, given a model in evaluation mode and the plan made for it."""
    if isinstance(model, MLP):
        hidden, readout = model.layers
        assert isinstance(hidden, nn.Linear)
        assert isinstance(readout, nn.Linear)
        return one_hidden_layer_trace(hidden, readout, batch)
    return tangent_trace(model, batch, plan=plan)

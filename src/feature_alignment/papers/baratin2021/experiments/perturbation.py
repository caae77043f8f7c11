"""baratin2021, Figure 7, Appendix A.4: output changes along directions of the parameters."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from feature_alignment.kernels.jacobian import Direction, top_singular_directions
from feature_alignment.papers.baratin2021.parameters import Perturbation
from feature_alignment.pipeline.labelled_images import image_classifier, labelled_images
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, cross_entropy

COMPARED = (1, 10, 50)  # ranks of the singular directions that are compared with random ones


def run_seed(run: SeedRun[Perturbation]) -> SeedResult:
    """Train a VGG11, record losses and accuracies, and `perturb` it before and after training."""
    p, held = run.parameters, run.parameters.test_samples
    splits, _ = labelled_images(run, p.train_samples, 2 * held)
    x_test, y_test = splits["test"]
    splits["test"] = x_test[:held], y_test[:held]
    splits["fresh"] = x_test[held:], y_test[held:]
    shape, init = x_test[0].shape, "kaiming_zero_bias"
    model = image_classifier(run, "vgg11", shape, p.base_width, init=init)
    steps = p.epochs * steps_per_epoch(len(splits["train"][0]), p.batch_size)
    images = {split: x for split, (x, _) in splits.items() if split != "train"}
    result = SeedResult()
    perturb(run, model, images, 0, result)
    recorder = train(
        model,
        *splits["train"],
        loss=cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), lr=p.learning_rate, momentum=p.momentum),
        **run.training(steps),
        batch_size=p.batch_size,
        measure_at=[0, steps],
        evaluate_on=splits,
        metrics={"accuracy": accuracy},
    )
    result.extend(recorder)
    perturb(run, model, images, steps, result)
    return result


def perturb(
    run: SeedRun[Perturbation],
    model: nn.Module,
    images: dict[str, torch.Tensor],
    step: int,
    result: SeedResult,
) -> None:
    """Move the parameters along each direction by the same distance ε = `perturbation`·‖w‖.

    The directions are the leading right singular vectors of the Jacobian on the images `test`
    (`direction` "singular") and as many uniformly random ones ("random"), the same at every step.
    By linear algebra, the ratio for rank 1 is at least `isotropic_floor`: along a random direction
    ‖Jv‖² is ‖J‖_F²/P on average, and σ_1² is at least ‖J‖_F² divided by the rank. The model is in
    evaluation mode, with outputs (n, c).

    Source: baratin2021, Figure 7 and eq. 42.
    """
    number = run.parameters.directions
    rng = run.stream(f"lanczos/step{step}")
    found = top_singular_directions(model, images["test"], number, rng)
    # In float64: changes along random directions are small compared with the outputs.
    network = copy.deepcopy(model).double()
    weights = dict(network.named_parameters())
    size = run.parameters.perturbation * _norm(weights)
    linear = size * found.values / len(images["test"]) ** 0.5
    for rank, change in enumerate(linear, start=1):
        result.add("linear_change", change, step=step, split="test", rank=rank)
    random = run.torch_stream("directions")
    directions = {
        "singular": ({name: v[j] for name, v in found.directions.items()} for j in range(number)),
        "random": (_random_direction(network, random) for _ in range(number)),
    }
    moved = {kind: [_moved(network, v, size) for v in group] for kind, group in directions.items()}
    for split, x in images.items():
        x = x.double()
        before = outputs_in_chunks(network, x)  # (n, c)
        changes: dict[str, list[float]] = {}
        at: dict[str, Any] = {"step": step, "split": split}
        for kind, others in moved.items():
            changes[kind] = [_output_change(network, other, x, before) for other in others]
            for rank, change in enumerate(changes[kind], start=1):
                result.add("output_change", change, **at, direction=kind, rank=rank)
        typical = torch.tensor(changes["random"]).square().mean().sqrt()
        for rank in (rank for rank in COMPARED if rank <= number):
            ratio = changes["singular"][rank - 1] / typical
            result.add(f"singular_{rank}_over_random", ratio, **at)
        if split == "test":
            dimension = sum(w.numel() for w in weights.values())
            result.add("isotropic_floor", (dimension / min(before.numel(), dimension)) ** 0.5, **at)


def _moved(network: nn.Module, direction: Direction, size: float) -> Direction:
    """The parameters after a step of the given size along a direction of norm one."""
    weights = network.named_parameters()
    return {name: w.detach() + size * direction[name].to(w.dtype) for name, w in weights}


def _random_direction(network: nn.Module, generator: torch.Generator) -> Direction:
    """A direction of norm one, uniform on the sphere of all parameters."""
    normal = {
        name: torch.randn(w.shape, generator=generator, dtype=torch.float64).to(w.device)
        for name, w in network.named_parameters()
    }
    norm = _norm(normal)
    return {name: v / norm for name, v in normal.items()}


def _norm(direction: Mapping[str, torch.Tensor]) -> float:
    return float(sum(v.detach().double().square().sum() for v in direction.values())) ** 0.5


def _output_change(
    network: nn.Module, moved: Direction, x: torch.Tensor, before: torch.Tensor
) -> float:
    with torch.no_grad():
        change = torch.func.functional_call(network, moved, (x,)) - before  # (n, c)
    return float(change.square().sum(dim=1).mean().sqrt())

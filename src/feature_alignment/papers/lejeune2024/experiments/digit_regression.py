"""Regression of linear and of binarised targets on two digit classes, and the adapted kernel.

Source: lejeune2024, Figures 1 and 3, Section 3.2 and Appendix B.1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import torch_stream
from feature_alignment.errors import UserError
from feature_alignment.features.feature_matrices import cosine_similarity
from feature_alignment.kernels.average_features import (
    adapted_kernel,
    copy_parameters,
    label_kernel,
)
from feature_alignment.kernels.tangent import TangentKernel, tangent_kernel
from feature_alignment.models.mlp import MLP
from feature_alignment.pipeline.run import SeedResult, precision
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.evaluation import evaluate, outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.optimizers import cosine_rate, make_optimizer
from feature_alignment.training.progress import Progress

Parameters = dict[str, Any]
TARGETS = ("linear", "binarised")


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one network on one kind of target and measure its adapted kernel.

    Args:
        seed: the seed; both kinds of target share images, targets and initial weights.
        parameters: the section `lejeune2024_digit_regression` of the config, and `targets`, one of
            `TARGETS`.
        device: where to train.
        dataset: the digits.
        label: names the run in its progress lines.

    Returns:
        Similarities of the adapted kernel with the label kernel and others; vectors over the
        kernel samples, and for seed 0 the kernels themselves, all in order of the target y.

    Raises:
        UserError: if the dataset has too few images of the two classes.
    """
    x, classes = _digits(dataset, parameters, device)
    linear = _linear_targets(seed, parameters, x, classes, label)
    binary = parameters["targets"] == "binarised"
    y = torch.sign(linear) if binary else linear
    y = y * _flips(seed, len(y), parameters["label_flips"]).to(y)
    model = _network(seed, "init", parameters, x.shape[1], bias=parameters["bias"]).to(device)
    initial = copy_parameters(model)
    _fit(model, x, y, seed, "batches", parameters, parameters["epochs"], label)

    shown = slice(0, parameters["kernel_samples"])
    order = torch.argsort(linear[shown, 0], stable=True)
    images, target = x[shown][order], linear[shown][order]
    kernels = _kernels(model, initial, images, parameters["path_points"])
    result = SeedResult()
    step = parameters["epochs"] * steps_per_epoch(len(x), parameters["batch_size"])
    agree = (torch.sign(linear) == classes).double().mean()
    result.add("target_accuracy", float(agree), step=0)
    result.add("loss", evaluate(model, x, y, {"loss": mse})["loss"], step=step)
    _compare(kernels, step, result)
    _locate(kernels.adapted.total.diagonal().double(), target[:, 0].double(), step, result)
    result.arrays["target"] = target[:, 0].cpu().numpy()
    result.arrays["kernel_diagonal"] = kernels.adapted.total.diagonal().cpu().numpy()
    if seed == 0:  # the matrices are large, and the figure shows one seed
        matrices = {
            "initial": kernels.initial.total,
            "adapted": kernels.adapted.total,
            "label": kernels.label,
        }
        for name, matrix in matrices.items():
            result.arrays[f"kernel/{name}"] = matrix.float().cpu().numpy()
    return result


@dataclass(frozen=True)
class _Kernels:
    """The kernels (n, n) that are compared, on the same images.

    Attributes:
        initial: K₀, at the initial parameters.
        adapted: K, of the average tangent features.
        final: the tangent kernel at the final parameters.
        label: K_ŷ.
    """

    initial: TangentKernel
    adapted: TangentKernel
    final: TangentKernel
    label: torch.Tensor


def _kernels(
    model: MLP, initial: dict[str, torch.Tensor], images: torch.Tensor, points: int
) -> _Kernels:
    with torch.no_grad():
        change = model(images) - torch.func.functional_call(model, initial, (images,))
    return _Kernels(
        initial=tangent_kernel(model, images, parameters=initial),
        adapted=adapted_kernel(model, initial, copy_parameters(model), images, points),
        final=tangent_kernel(model, images),
        label=label_kernel(change),
    )


def _digits(
    dataset: Dataset, parameters: Parameters, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first images of the two classes, each with mean 0 and norm 1, and labels ±1 (n, 1).

    Raises:
        UserError: if there are not enough of them.
    """
    images, labels = dataset.split("train")
    negative, positive = parameters["classes"]
    chosen = np.flatnonzero((labels == negative) | (labels == positive))
    wanted = parameters["train_samples"]
    if max(wanted, parameters["kernel_samples"]) > len(chosen):
        raise UserError(
            f"experiments.lejeune2024_digit_regression.train_samples: found {wanted}, but "
            f"{dataset.info['description']} has only {len(chosen)} training images of the classes "
            f"{negative} and {positive}; lower train_samples and kernel_samples."
        )
    chosen = chosen[:wanted]
    pixels = images[chosen].reshape(wanted, -1).astype(np.float64)
    pixels -= pixels.mean(axis=1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    signs = np.where(labels[chosen] == positive, 1.0, -1.0)[:, None]
    to = {"dtype": precision(parameters), "device": device}
    return torch.tensor(pixels, **to), torch.tensor(signs, **to)


def _flips(seed: int, n: int, share: float) -> torch.Tensor:
    """Factors (n, 1): −1 for that share of the samples, chosen at random, and 1 for the others."""
    order = torch.randperm(n, generator=torch_stream(seed, "targets/flips"))
    factors = torch.ones(n, 1)
    factors[order[: round(share * n)]] = -1
    return factors


def _network(
    seed: int, stream_name: str, parameters: Parameters, input_dim: int, *, bias: bool
) -> MLP:
    return MLP(
        input_dim,
        [parameters["width"]] * parameters["hidden_layers"],
        1,
        "relu",
        bias=bias,
        generator=torch_stream(seed, stream_name),
        init="kaiming",
        dtype=precision(parameters),
    )


def _linear_targets(
    seed: int, parameters: Parameters, x: torch.Tensor, classes: torch.Tensor, label: str
) -> torch.Tensor:
    """Targets y = z(x)·b*: SGD's fit of the classes by the last layer of a random network.

    SGD stops short of least squares, whose accuracy is .98 where the paper states .952.
    """
    random = _network(seed, "targets/init", parameters, x.shape[1], bias=False).to(x.device)
    *hidden, last = random.layers
    features = x
    with torch.no_grad():
        for layer in hidden:
            features = torch.relu(layer(features))  # (n, width)
    _fit(
        last,
        features,
        classes,
        seed,
        "targets/batches",
        parameters,
        parameters["target_epochs"],
        f"{label} targets",
    )
    return outputs_in_chunks(last, features)


def _fit(
    model: torch.nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    seed: int,
    stream_name: str,
    parameters: Parameters,
    epochs: int,
    label: str,
) -> None:
    per_epoch = steps_per_epoch(len(x), parameters["batch_size"])
    settings = {
        "name": "momentum",
        "lr": parameters["learning_rate"],
        "momentum": parameters["momentum"],
    }
    train(
        model,
        x,
        y,
        loss=mse,
        optimizer=make_optimizer(model.parameters(), settings),
        steps=epochs * per_epoch,
        batch_size=parameters["batch_size"],
        batches=torch_stream(seed, stream_name),
        schedule=cosine_rate(epochs * per_epoch, per_epoch),
        progress=Progress(epochs * per_epoch, label),
    )


def _compare(kernels: _Kernels, step: int, result: SeedResult) -> None:
    """How alike the kernels are, and which layers bring the change towards the label kernel."""
    adapted, initial, final = kernels.adapted.total, kernels.initial.total, kernels.final.total
    label = kernels.label
    result.add("label_similarity", cosine_similarity(adapted, label), step=step)
    result.add("initial_label_similarity", cosine_similarity(initial, label), step=step)
    result.add("final_average_cosine", cosine_similarity(final, adapted), step=step)
    result.add("final_average_scale", float(final.norm() / adapted.norm()), step=step)
    result.add("average_initial_cosine", cosine_similarity(adapted, initial), step=step)
    result.add("mixture_residual", _mixture_residual(adapted, initial, label), step=step)
    change = {
        name: float(((gram - kernels.initial.layers[name]) * label).sum())
        for name, gram in kernels.adapted.layers.items()
    }
    for name, part in change.items():
        result.add("label_change_share", part / sum(change.values()), step=step, layer=name)


def _locate(diagonal: torch.Tensor, y: torch.Tensor, step: int, result: SeedResult) -> None:
    """Whether the kernel's diagonal is large where the linear target y is far from sign y."""
    correlation = torch.corrcoef(torch.stack([diagonal, (torch.sign(y) - y).abs()]))[0, 1]
    result.add("pearson_diagonal_residual", float(correlation), step=step)
    near, far = diagonal[y.abs() < 0.25], diagonal[(y.abs() - 1).abs() < 0.25]
    # A small preset can leave either range empty; then there is no ratio to report.
    if len(near) and len(far):
        result.add("diagonal_ratio_near_boundary", float(near.mean() / far.mean()), step=step)


def _mixture_residual(adapted: torch.Tensor, initial: torch.Tensor, label: torch.Tensor) -> float:
    """Relative Frobenius residual of the best fit K ≈ aK₀ + bK_ŷ."""
    design = torch.stack([initial.flatten(), label.flatten()], dim=1).double()  # (n², 2)
    target = adapted.flatten().double()
    coefficients = torch.linalg.lstsq(design, target[:, None]).solution
    residual = target - (design @ coefficients)[:, 0]
    return float(residual.norm() / target.norm())

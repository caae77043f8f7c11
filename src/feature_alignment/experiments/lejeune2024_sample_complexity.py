"""Test error over training-set sizes with fixed, adaptive and learned tangent features.

Source: lejeune2024, earlier version, Figure 4, and released code.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.data.canonical import Dataset, to_float
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.errors import UserError
from feature_alignment.experiments.run import SeedResult
from feature_alignment.models.feedforward import sequential_mlp, small_cnn
from feature_alignment.models.tangent_models import TangentModel
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import cross_entropy
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress

Parameters = dict[str, Any]
MODES = {"fixed": "linearised", "adaptive": "factorised", "full": None}
"""The three curves of the figure, and the tangent model of each; None is the network itself."""
CHUNK = 500


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one kind of model on every training-set size.

    Args:
        seed: the seed; the kinds of model share initial weights and samples.
        parameters: the section `lejeune2024_sample_complexity` of the config, with `model`, one of
            `MODES`; `sampling`, kept or redrawn; and `network`, mlp or cnn.
        device: where to train.
        dataset: the images.
        label: names the run in its progress lines.

    Returns:
        For each size the test error at the best epoch, that epoch, and how many different images
        were seen; column `n`.

    Raises:
        UserError: if the dataset has too few images.
    """
    x, y = _tensors(*dataset.split("train"), device)
    draw = dataset.draw("test", parameters["test_samples"], stream(seed, "test"))
    test = _tensors(*draw, device)
    if max(parameters["train_sizes"]) > len(x):
        raise UserError(
            f"experiments.lejeune2024_sample_complexity.train_sizes: found "
            f"{max(parameters['train_sizes'])}, but {dataset.info['description']} has only "
            f"{len(x)} training images; leave out larger sizes."
        )
    result = SeedResult()
    for n in parameters["train_sizes"]:
        _train_on(n, seed, parameters, (x, y), test, result, f"{label}, n = {n}")
    return result


def _tensors(
    images: np.ndarray, labels: np.ndarray, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, channels first, pixels / 255, and their labels."""
    x = torch.as_tensor(to_float(images)).permute(0, 3, 1, 2).contiguous()
    return x.to(device), torch.as_tensor(labels.astype(np.int64)).to(device)


def _network(seed: int, parameters: Parameters, shape: torch.Size, classes: int) -> nn.Sequential:
    generator, init = torch_stream(seed, "init"), "lecun"
    channels, side, _ = shape
    if parameters["network"] == "cnn":
        return small_cnn(side, channels, parameters["cnn_width"], classes, generator, init)
    widths = [parameters["mlp_width"]] * (parameters["mlp_depth"] - 1)
    return sequential_mlp(shape.numel(), widths, classes, generator, init)


def _train_on(
    n: int,
    seed: int,
    parameters: Parameters,
    data: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
    result: SeedResult,
    label: str,
) -> None:
    """Train until the test accuracy has not improved for `patience` epochs, and record the best.

    Choosing the epoch on the test set is the released code's way.
    """
    x, y = data
    network = _network(seed, parameters, x.shape[1:], int(y.max()) + 1).to(x.device)
    mode = MODES[parameters["model"]]
    model = network if mode is None else TangentModel(network, mode)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(trained, _optimizer_settings(parameters))
    # The samples of a smaller n are among those of a larger one.
    draws = torch_stream(seed, "samples")
    kept = torch.randperm(len(x), generator=draws)[:n]
    batches = torch_stream(seed, f"batches/{n}")
    batch = min(parameters["batch_size"], n // 5)
    seen = torch.zeros(len(x), dtype=torch.bool)
    errors: list[float] = []
    progress = Progress(parameters["max_epochs"], label)
    while len(errors) < parameters["max_epochs"]:
        redrawn = parameters["sampling"] == "redrawn"
        chosen = torch.randperm(len(x), generator=draws)[:n] if redrawn else kept
        seen[chosen] = True
        chosen = chosen.to(x.device)
        train(
            model,
            x[chosen],
            y[chosen],
            loss=cross_entropy,
            optimizer=optimizer,
            steps=n // batch,
            batch_size=batch,
            batches=batches,
            drop_incomplete=True,
        )
        right = outputs_in_chunks(model, test[0], CHUNK).argmax(dim=1) == test[1]
        errors.append(1 - float(right.double().mean()))
        progress.update(len(errors), right.new_tensor(errors[-1], dtype=torch.float64))
        best = int(np.argmin(errors))
        if len(errors) - 1 - best >= parameters["patience"]:
            break
    progress.close()
    step = len(errors) * (n // batch)
    result.add("test_error", errors[best], step=step, split="test", n=n)
    result.add("best_epoch", best + 1, step=step, n=n)
    result.add("images_seen", int(seen.sum()), step=step, n=n)


def _optimizer_settings(parameters: Parameters) -> dict[str, Any]:
    """The released code's: SGD with momentum for the MLP, Adam for the CNN."""
    if parameters["network"] == "cnn":
        return {"name": "adam", "lr": parameters["adam_rate"]}
    return {"name": "momentum", "lr": parameters["sgd_rate"], "momentum": parameters["momentum"]}

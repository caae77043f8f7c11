"""The three networks with their data: what a training and its probes need of each."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from feature_alignment.data.corruption import random_labels
from feature_alignment.data.standardise import standardise
from feature_alignment.errors import UserError
from feature_alignment.models.gpt import GPT
from feature_alignment.models.mlp import MLP
from feature_alignment.models.vgg import VGG
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.losses import (
    Loss,
    accuracy,
    cross_entropy,
    sequence_cross_entropy,
)

if TYPE_CHECKING:
    from feature_alignment.papers.synthesis.parameters import Runs

CLASSES = 10
Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """A network and what it is trained on.

    Attributes:
        model: the network.
        splits: inputs and targets that are trained on (`train`, random labels included) and tested
            on (`test`, true labels).
        classes: number of classes, or of characters.
        loss: of outputs and targets.
        accuracy: of outputs and targets.
        layers: names of the layers whose NFC is measured: all products with a weight but the last.
        output: which of the model's outputs kernels are of, see `tangent_kernel`.
        feature_options: further arguments of the NFC's probe.
    """

    model: nn.Module
    splits: dict[str, Pair]
    classes: int
    loss: Loss
    accuracy: Loss
    layers: list[str]
    output: Callable[[torch.Tensor], torch.Tensor] | None
    feature_options: dict[str, Any]


def image_task(run: "SeedRun[Runs]") -> Task:
    """The MLP or the VGG11, on standardised images.

    Raises:
        UserError: if the dataset has fewer images than are asked for.
    """
    p = run.parameters
    own = p.mlp if p.network == "mlp" else p.vgg
    drawn = {
        split: run.dataset.draw(split, number, run.stream(f"data/{split}"))
        for split, number in (("train", own.train_samples), ("test", own.test_samples))
    }
    labels = {"train": _partly_random(run, drawn["train"][1], CLASSES), "test": drawn["test"][1]}
    images = standardise(drawn["train"][0], drawn["test"][0])
    splits = {
        split: (torch.tensor(x, **run.to), torch.tensor(labels[split], device=run.device))
        for split, x in zip(labels, images, strict=True)
    }
    shape = splits["train"][0].shape[1:]
    generator = run.torch_stream("init")
    options: dict[str, Any] = {"init": "kaiming_zero_bias", "dtype": run.dtype}
    if p.network == "mlp":
        widths = [p.mlp.width] * p.mlp.hidden_layers
        model: nn.Module = MLP(
            math.prod(shape), widths, CLASSES, "relu", True, generator, **options
        )
    else:
        model = VGG(11, p.vgg.base_width, CLASSES, generator, in_channels=shape[0], **options)
    weighted = nn.Conv2d, nn.Linear
    *layers, _ = (name for name, part in model.named_modules() if isinstance(part, weighted))
    model = model.to(run.device)
    return Task(model, splits, CLASSES, cross_entropy, accuracy, layers, None, {})


def text_task(run: "SeedRun[Runs]") -> Task:
    """The transformer, on texts that do not overlap; it predicts each text's every next character.

    Kernels are those of the logits after a text's last character.

    Raises:
        UserError: if the dataset has fewer texts than are asked for.
    """
    own = run.parameters.gpt
    vocabulary = len(run.dataset.vocabulary)
    splits = {}
    for split, number in (("train", own.train_samples), ("test", own.test_samples)):
        windows = _windows(run, split, number)
        targets = windows[:, 1:]
        if split == "train":
            shape = targets.shape
            targets = _partly_random(run, targets.ravel(), vocabulary).reshape(shape)
        splits[split] = tuple(
            torch.tensor(t, device=run.device) for t in (windows[:, :-1], targets)
        )
    model = GPT(
        vocabulary,
        own.blocks,
        own.heads,
        own.width,
        own.context,
        run.torch_stream("init"),
        dtype=run.dtype,
    ).to(run.device)
    layers = [
        f"blocks.{block}.attention.{name}"
        for block in range(own.blocks)
        for name in ("query", "key", "value")
    ]
    return Task(
        model,
        splits,
        vocabulary,
        sequence_cross_entropy,
        lambda f, y: accuracy(f.flatten(0, 1), y.flatten()),
        layers,
        lambda f: f[:, -1],
        {"output_samples": own.output_samples, "generator": run.torch_stream("probe/outputs")},
    )


def _windows(run: "SeedRun[Runs]", split: str, number: int) -> np.ndarray:
    """So many texts with the character that follows each, int64 (number, context + 1).

    Raises:
        UserError: if there are fewer.
    """
    context = run.parameters.gpt.context
    codes = run.dataset.text(split).astype(np.int64)
    starts = np.arange(0, len(codes) - context, context)
    if number > len(starts):
        raise UserError(
            f"experiments.synthesis_runs.gpt.{split}_samples: found {number}, at most "
            f"{len(starts)} is allowed, the texts of {context} characters in the {split} part of "
            f"{run.dataset.info['description']}."
        )
    chosen = run.stream(f"data/{split}").permutation(starts)[:number]
    return codes[chosen[:, None] + np.arange(context + 1)]


def _partly_random(run: "SeedRun[Runs]", labels: np.ndarray, classes: int) -> np.ndarray:
    """The labels, of which the run's share is drawn anew, once and for all."""
    share = run.parameters.random_label_share
    return random_labels(labels, share, classes, run.stream("random_labels"))[0]

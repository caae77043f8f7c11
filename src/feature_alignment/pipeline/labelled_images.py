"""Tensors that classifiers train on: images of ten classes with labels, some of them random."""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.data.transforms import random_labels, standardise
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.probes.kernel_probe import Batch

CLASSES = 10
Splits = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Images (n, channels, height, width) and labels (n,) by split."""


def check_kernel_samples(key: str, wanted: int, splits: Splits) -> None:
    """Refuse to measure a kernel on more images than there are; a slice would silently shrink.

    `key` is the key of the configuration, below `experiments`, that sets how many are wanted.

    Raises:
        UserError: if a split has fewer.
    """
    for split, (x, _) in splits.items():
        if wanted > len(x):
            raise UserError(
                f"experiments.{key}: found {wanted}, at most {len(x)} is allowed, the number of "
                f"{'training' if split == 'train' else split} images."
            )


def kernel_batches(splits: Splits, number: int) -> dict[str, Batch]:
    """The first images of each split, with one-hot labels, to measure a kernel on."""
    return {
        split: Batch(x[:number], nn.functional.one_hot(y[:number], CLASSES).to(x.dtype))
        for split, (x, y) in splits.items()
    }


def labelled_images(
    run: SeedRun[Any],
    train_samples: int | None,
    test_samples: int | None,
    random_label_share: float = 0.0,
    section: str = "",
) -> tuple[Splits, float]:
    """Draw the images of a seed; they are the same for all shares of random labels.

    None for a number of images takes all of them. `section` is the section of the experiment's keys
    that contains the numbers. Returns the splits and the share of wrong training labels. Images are
    standardised by channel with the training images' statistics. The labels in `train` are the ones
    to train on, a share of them redrawn at random; those in `test` are the true ones.
    """
    drawn = {}
    for split, number in (("train", train_samples), ("test", test_samples)):
        number = len(run.dataset.split(split)[1]) if number is None else number
        own = filter(None, (run.parameters.experiment, section, f"{split}_samples"))
        key = ".".join(("experiments", *own))
        drawn[split] = run.dataset.draw(split, number, run.stream(f"data/{split}"), key)
    true = drawn["train"][1]
    trained_on, _ = random_labels(true, random_label_share, CLASSES, run.stream("random_labels"))
    labels = {"train": trained_on, "test": drawn["test"][1]}
    images = standardise(drawn["train"][0], drawn["test"][0])
    splits = {
        split: (torch.tensor(x, **run.to), torch.tensor(labels[split], device=run.device))
        for split, x in zip(labels, images, strict=True)
    }
    return splits, float(np.mean(trained_on != true))


def image_classifier(
    run: SeedRun[Any], name: str, shape: torch.Size, width: int, hidden: int = 1, **options: Any
) -> nn.Module:
    """A new network for images of the shape (channels, height, width), with ten outputs.

    `name` is mlp, resnet18, vgg11 or vgg19. `width` is that of the `hidden` hidden layers of the
    MLP, or of the first convolution. The options are passed to the model.
    """
    generator, options = run.torch_stream("init"), {"dtype": run.dtype, **options}
    if name == "mlp":
        sizes = math.prod(shape), [width] * hidden, CLASSES
        model = MLP(*sizes, "relu", True, generator, **options)
    elif name == "resnet18":
        model = ResNet18(width, CLASSES, generator, in_channels=shape[0], **options)
    else:
        depth = int(name.removeprefix("vgg"))
        model = VGG(depth, width, CLASSES, generator, in_channels=shape[0], **options)
    return model.to(run.device)

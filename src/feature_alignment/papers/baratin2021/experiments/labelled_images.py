"""Images of ten classes with labels as tensors, some of them random, as baratin2021 trains on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.data.corruption import random_labels
from feature_alignment.data.standardise import standardise
from feature_alignment.determinism import stream
from feature_alignment.errors import UserError
from feature_alignment.pipeline.run import precision

CLASSES = 10


def check_kernel_samples(key: str, wanted: int, available: Mapping[str, int]) -> None:
    """Refuse to measure a kernel on more images than there are; a slice would silently shrink.

    Args:
        key: the configuration key that says how many, below `experiments`.
        wanted: how many.
        available: how many there are, by name.

    Raises:
        UserError: if there are fewer.

    Example:
        >>> check_kernel_samples("digits.kernel_samples", 30, {"training images": 40})
    """
    name, least = min(available.items(), key=lambda item: item[1])
    if wanted > least:
        raise UserError(
            f"experiments.{key}: found {wanted}, at most {least} is allowed, the number of {name}."
        )


@dataclass(frozen=True)
class LabelledImages:
    """Standardised images (n, channels, height, width) and labels (n,).

    Attributes:
        splits: images and labels that are trained on (`train`, random labels included) or tested
            on (`test`, true labels).
        wrong: share of the training labels that are not the true ones.
    """

    splits: dict[str, tuple[torch.Tensor, torch.Tensor]]
    wrong: float


def labelled_images(
    seed: int,
    parameters: Mapping[str, Any],
    device: torch.device,
    dataset: Dataset,
    random_label_share: float = 0.0,
) -> LabelledImages:
    """Draw the images of a seed; the same for all shares of random labels.

    Source: baratin2021, Sections 3 and 4.2, Appendix C; per-channel statistics of the training
    images, as in the released code.

    Args:
        seed: the seed; it chooses the images and the random labels.
        parameters: `train_samples` and `test_samples`, null for all there are, and `precision`.
        device: where the tensors go.
        dataset: images of ten classes.
        random_label_share: share of the training labels that are drawn anew.

    Raises:
        UserError: if the dataset has fewer images than are asked for.
    """
    drawn = {}
    for split in ("train", "test"):
        number = parameters[f"{split}_samples"]
        if number is None:
            number = len(dataset.split(split)[1])
        drawn[split] = dataset.draw(split, number, stream(seed, f"data/{split}"))
    true = drawn["train"][1]
    trained_on, _ = random_labels(true, random_label_share, CLASSES, stream(seed, "random_labels"))
    labels = {"train": trained_on, "test": drawn["test"][1]}
    images = standardise(drawn["train"][0], drawn["test"][0])
    to = {"dtype": precision(parameters), "device": device}
    splits = {
        split: (torch.tensor(x, **to), torch.tensor(labels[split], device=device))
        for split, x in zip(("train", "test"), images, strict=True)
    }
    return LabelledImages(splits, float(np.mean(trained_on != true)))

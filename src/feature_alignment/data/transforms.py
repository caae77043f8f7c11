"""Transformations of images and labels before training: standardisation and random labels."""

import numpy as np

from feature_alignment.data.canonical import to_float
from feature_alignment.errors import UserError, check_whole


def standardise(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Shift and scale each channel by its mean and deviation over the training images.

    From uint8 (n, height, width, channels) to float32 (n, channels, height, width), the training
    images first. Pixels are scaled to [0, 1] beforehand, and a channel that is constant over the
    training images is not scaled further.

    Source: Baratin et al. 2021, released code, with CIFAR-10's published means and deviations; here
    those of the training images in use.

    Example:
        >>> images = np.array([0, 255], dtype=np.uint8).reshape(1, 1, 2, 1)
        >>> standardise(images)[0].tolist()
        [[[[-1.0, 1.0]]]]
    """
    pixels = to_float(train)
    # In float64, because a float32 sum over all pixels of a large set loses digits.
    mean = pixels.mean(axis=(0, 1, 2), dtype=np.float64)
    deviation = pixels.std(axis=(0, 1, 2), dtype=np.float64)
    deviation[deviation == 0] = 1
    return [
        np.ascontiguousarray(
            ((to_float(images) - mean) / deviation).astype(np.float32).transpose(0, 3, 1, 2)
        )
        for images in (train, *others)
    ]


def random_labels(
    labels: np.ndarray, share: float, classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Redraw round(share · n) of the labels (n,) from all classes; also return their mask (n,).

    A random label may be the true one: with c classes, (c − 1)/c of the chosen examples get a wrong
    label on average, 45 % of all for ten classes and a share of one half. The generator chooses the
    examples, then draws their labels.

    Source: Baratin et al. 2021, Figures 2, 4, 6, 13 and 14.

    Raises:
        UserError: if the share is outside [0, 1], or there are no classes, or more than the labels'
            type holds.

    Example:
        >>> new, chosen = random_labels(np.zeros(10, int), 0.4, 3, np.random.default_rng(0))
        >>> int(chosen.sum()), bool((new[~chosen] == 0).all())
        (4, True)
    """
    if not 0 <= share <= 1:
        raise UserError(f"share of random labels: {share}, wanted a number from 0 to 1.")
    check_whole("classes", classes, 1)
    new = np.array(labels)
    if np.array(classes - 1).astype(new.dtype) != classes - 1:
        raise UserError(f"classes: {classes} do not fit into {new.dtype} labels; widen these.")
    number = round(share * len(labels))
    index = rng.choice(len(labels), size=number, replace=False)
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[index] = True
    new[index] = rng.integers(classes, size=number)
    return new, chosen

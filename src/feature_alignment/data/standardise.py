"""Images as a network takes them: channels first, each with mean 0 and standard deviation 1."""

import numpy as np

from feature_alignment.data.canonical import to_float


def standardise(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Shift and scale each channel by its mean and deviation over the training images.

    Source: Baratin et al. 2021, released code, with CIFAR-10's published means and deviations; here
    they are those of the training images that are used.

    Args:
        train: uint8 (n, height, width, channels).
        others: images that are shifted and scaled alike, such as the test images.

    Returns:
        float32 (n, channels, height, width), the training images first. A channel that is
        constant over all training images is only shifted.

    Example:
        >>> images = np.array([0, 255], dtype=np.uint8).reshape(1, 1, 2, 1)
        >>> standardise(images)[0].tolist()
        [[[[-1.0, 1.0]]]]
    """
    pixels = to_float(train)
    # In float64: a float32 sum over all pixels of a large set loses digits.
    mean = pixels.mean(axis=(0, 1, 2), dtype=np.float64)
    deviation = pixels.std(axis=(0, 1, 2), dtype=np.float64)
    deviation[deviation == 0] = 1
    return [
        np.ascontiguousarray(
            ((to_float(images) - mean) / deviation).astype(np.float32).transpose(0, 3, 1, 2)
        )
        for images in (train, *others)
    ]

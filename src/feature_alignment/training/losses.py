"""Losses and accuracy, as functions of outputs f and targets y that return a scalar tensor.

Each checks shapes first: PyTorch would silently broadcast (n, 1) against (n,) to (n, n).
"""

from collections.abc import Callable

import torch
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def mse(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error (1/nc) Σ_{i,y} (f_iy − y_iy)² of f and y, both (n, c), without factor ½.

    Source: Beaglehole et al. 2024, Section 4 (MSE).

    Raises:
        ValueError: if f and y have different shapes.
    """
    _check_same_shape(f, y)
    return functional.mse_loss(f, y)


def bce(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy, mean of log(1 + exp(−y f)) in nats, of log-odds f for y = ±1, (n, c).

    Source: Baratin et al. 2021, Section 2 (the disk experiment of Figure 1).

    Raises:
        ValueError: if f and y have different shapes, or a label is neither −1 nor 1.
    """
    _check_same_shape(f, y)
    if not (y.abs() == 1).all():
        raise ValueError("bce: a label is neither −1 nor 1; give these, as 2y − 1 of 0 and 1.")
    return functional.softplus(-y * f).mean()


def cross_entropy(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy, mean of log Σ_k exp(f_ik) − f_{i y_i} in nats, of f (n, c) and classes y (n,).

    Source: Baratin et al. 2021, Section 3.1.

    Raises:
        ValueError: if the labels are not one int64 index per sample, or one is not of an output.
    """
    return _mean_cross_entropy("cross_entropy", f, y, 2, "one int64 class index per sample")


def sequence_cross_entropy(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy, mean in nats, of logits f (n, T, V) for the characters y (n, T) that follow.

    Source: Beaglehole et al. 2024, Appendix J (the loss of nanoGPT).

    Raises:
        ValueError: if the labels are not one int64 index per sample and position, or one is not of
            an output.
    """
    wanted = "one class index per sample and position, int64, for outputs (n, T, V)"
    return _mean_cross_entropy("sequence_cross_entropy", f, y, 3, wanted)


def accuracy(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Share of correctly classified samples: those whose largest output is that of their class.

    For outputs f (n, c), y are class indices (n,), int64, or targets (n, c), largest at the class.
    The prediction of a single output is its sign, for labels −1 or 1; zero is always wrong, and so
    are outputs or targets with NaN.

    Raises:
        ValueError: if y is neither, a class is not that of an output, or a label is 0 for a single
            output.
    """
    indices = y.dtype == torch.int64
    if f.ndim != 2 or y.shape != (f.shape[:1] if indices else f.shape):
        raise ValueError(
            f"accuracy: targets of shape {tuple(y.shape)} and type {y.dtype} for outputs "
            f"{tuple(f.shape)}; give one int64 class index per sample, or targets (n, c)."
        )
    if f.shape[1] == 1:
        if not y.all():
            raise ValueError("accuracy: a label is 0; for a single output give labels −1 and 1.")
        return (f * y.reshape(f.shape) > 0).double().mean()
    if indices and ((y < 0) | (y >= f.shape[1])).any():
        raise ValueError(_no_outputs("accuracy", f, y))
    right = f.argmax(dim=1) == (y if indices else y.argmax(dim=1))
    unclear = f.isnan() if indices else f.isnan() | y.isnan()  # the largest of NaN is the first
    return (right & ~unclear.any(dim=1)).double().mean()


def _mean_cross_entropy(
    name: str, f: torch.Tensor, y: torch.Tensor, axes: int, wanted: str
) -> torch.Tensor:
    if f.ndim != axes or y.shape != f.shape[:-1] or y.dtype != torch.int64:
        raise ValueError(
            f"{name}: labels of shape {tuple(y.shape)} and type {y.dtype} for outputs "
            f"{tuple(f.shape)}; give {wanted}."
        )
    f, y = f.flatten(0, -2), y.flatten()
    try:  # a check beforehand would make a GPU wait
        # By default −100 would be left out; this is no label.
        return functional.cross_entropy(f, y, ignore_index=torch.iinfo(torch.int64).min)
    except IndexError as error:
        raise ValueError(_no_outputs(name, f, y)) from error


def _no_outputs(name: str, f: torch.Tensor, y: torch.Tensor) -> str:
    return (
        f"{name}: classes from {y.min()} to {y.max()} for {f.shape[1]} outputs; they count from 0."
    )


def _check_same_shape(f: torch.Tensor, y: torch.Tensor) -> None:
    if f.shape != y.shape:
        raise ValueError(
            f"outputs have shape {tuple(f.shape)} and targets {tuple(y.shape)}; "
            "give targets the outputs' shape (n, c)."
        )

"""Real numbers, given as tensors or NumPy arrays."""

import numpy as np
import torch

Matrix = torch.Tensor | np.ndarray


def real_array(name: str, values: Matrix) -> np.ndarray:
    """Real numbers as a float64 array; tensors are detached.

    Raises:
        ValueError: if they are complex or not an array of numbers; the message starts with `name`.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.numpy() if values.is_complex() else values.double().numpy()
    try:
        if np.iscomplexobj(values):
            raise ValueError("it is complex")
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        why = error if str(error) == "it is complex" else "it is not an array of numbers"
        cure = "its `total` or `centred`" if hasattr(values, "centred") else "real numbers"
        raise ValueError(f"{name}: {why}; give {cure}.") from error


def real_tensor(name: str, values: Matrix, like: torch.Tensor | None = None) -> torch.Tensor:
    """Real numbers as a tensor like `like`; without it, integers and arrays become float64.

    Raises:
        ValueError: as in `real_array`.
    """
    if not isinstance(values, torch.Tensor):  # PyTorch takes no negative strides, or read-only ones
        values = torch.from_numpy(np.require(real_array(name, values), requirements=["C", "W"]))
    if values.is_complex():
        raise ValueError(f"{name}: it is complex; give real numbers.")
    if like is not None:
        return values.to(like)
    return values if values.is_floating_point() else values.double()

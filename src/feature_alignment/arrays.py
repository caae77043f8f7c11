"""Real numbers, given as tensors or as NumPy's arrays."""

import numpy as np
import torch

Matrix = torch.Tensor | np.ndarray


def real_array(name: str, values: Matrix) -> np.ndarray:
    """Real numbers in float64, of a tensor without its graph.

    Raises:
        ValueError: if they are complex or no array of numbers, under this name.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.numpy() if values.is_complex() else values.double().numpy()
    try:
        if np.iscomplexobj(values):
            raise ValueError("it is complex")
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        why = error if str(error) == "it is complex" else "it is no array of numbers"
        raise ValueError(f"{name}: {why}; give real numbers.") from error


def real_tensor(name: str, values: Matrix, like: torch.Tensor | None = None) -> torch.Tensor:
    """Real numbers as a tensor like another, or as they are, where integers become float64.

    Raises:
        ValueError: as `real_array`.
    """
    if not isinstance(values, torch.Tensor):  # PyTorch has no place for reversed axes or bytes
        values = torch.from_numpy(np.ascontiguousarray(real_array(name, values)))
    if values.is_complex():
        raise ValueError(f"{name}: it is complex; give real numbers.")
    if like is not None:
        return values.to(like)
    return values if values.is_floating_point() else values.double()

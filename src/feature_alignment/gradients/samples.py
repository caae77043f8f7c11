"""Inputs of a model in any form that PyTorch models take, with n samples along the first axes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from feature_alignment.errors import shortened

Index = slice | Sequence[int]


@dataclass(frozen=True)
class Samples:
    """Arguments of a model, and which of them contain samples along their first axis."""

    entries: Mapping[int | str, Any]  # the arguments by position (an integer) or keyword
    sampled: frozenset[int | str]  # the entries that contain samples
    n: int  # how many

    def __len__(self) -> int:
        """Number of samples."""
        return self.n

    def __getitem__(self, index: Index) -> "Samples":
        """The samples selected by a slice or a list of indices."""
        n = len(range(*index.indices(self.n))) if isinstance(index, slice) else len(index)
        at = index if isinstance(index, slice) else torch.tensor(index)
        entries = {
            key: value[at] if key in self.sampled else value for key, value in self.entries.items()
        }
        return replace(self, entries=entries, n=n)

    def few(self) -> "Samples":
        """At most eight samples, from the first to the last, for checking a model."""
        return self[spread(self.n, 8)]

    def kept(
        self, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> "Samples":
        """A copy on `device`, floating-point numbers as `dtype`; None for the tensors' own.

        It does not change when the original tensors are written to.
        """

        def copied(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            kind = dtype if value.is_floating_point() else None
            return value.detach().clone().to(device, kind or value.dtype)

        return replace(self, entries={key: copied(value) for key, value in self.entries.items()})

    def copied(self) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments, tensors as detached copies."""
        copies = self.kept().entries
        positions = [value for key, value in copies.items() if isinstance(key, int)]
        return positions, {key: value for key, value in copies.items() if isinstance(key, str)}


def spread(n: int, number: int) -> list[int]:
    """At most `number` of n indices, from the first to the last."""
    return sorted({i * (n - 1) // (number - 1) for i in range(number)})


# What a model may be given: a tensor or array, or several in a sequence or by keyword.
ModelInput = torch.Tensor | np.ndarray | Sequence[Any] | Mapping[str, Any] | Samples


def as_samples(
    x: ModelInput,
    inputs: str | Collection[str | int] | None = None,
    like: torch.Tensor | None = None,
) -> Samples:
    """Convert inputs to the form that the engine uses.

    Args:
        x: a tensor or NumPy array; or several, in a sequence (positional arguments) or a mapping
            (keyword arguments), maybe with other values, which are passed on as they are.
        inputs: for a mapping or sequence, the entries that contain samples along their first axis,
            None for all tensors and arrays. For a tensor, the keyword to pass it as.
        like: a parameter; NumPy arrays are moved to its device, floating-point ones in its
            precision. None to keep precision and memory.

    Raises:
        ValueError: if there are no samples, entries differ in their number of samples, or a single
            tensor has several `inputs`.
    """
    if isinstance(x, Samples):
        return x
    names = None if inputs is None else [inputs] if isinstance(inputs, str | int) else list(inputs)
    entries: dict[int | str, Any]
    if isinstance(x, Mapping):
        entries = {**x}
    elif isinstance(x, torch.Tensor | np.ndarray):
        key, *others = names or [0]
        if others:
            raise ValueError(f"inputs: {shortened(names)} for a single tensor; give one of them.")
        entries = {key if isinstance(key, str) else 0: x}
    elif isinstance(x, Sequence) and not isinstance(x, str):
        entries = dict(enumerate(x))
    else:
        raise ValueError(f"x: a {type(x).__name__}; give a tensor or array, or several of them.")
    entries = {key: _as_tensor(value, like) for key, value in entries.items()}
    tensors = {key for key, value in entries.items() if isinstance(value, torch.Tensor)}
    sampled = tensors if names is None else set(names)
    if unknown := sorted(map(repr, sampled - tensors)):
        raise ValueError(
            f"inputs: {unknown[0]} is no tensor among x's entries "
            f"{', '.join(map(repr, entries))}; name those that hold samples."
        )
    sizes = {key: value.shape[:1] for key, value in entries.items() if key in sampled}
    if len(set(sizes.values())) != 1 or not next(iter(sizes.values())):
        found = ", ".join(f"{key!r} has shape {tuple(entries[key].shape)}" for key in sizes)
        raise ValueError(
            f"x: {found or 'there is no tensor'}; the samples run along the first axis of one "
            "tensor, or of several of one length: name these in `inputs`."
        )
    n = next(iter(sizes.values()))[0]
    if n == 0:
        raise ValueError("x: there are no samples.")
    return Samples(entries, frozenset(sampled), n)


def _as_tensor(value: Any, like: torch.Tensor | None) -> Any:
    if isinstance(value, torch.Tensor) and (value.is_nested or value.layout != torch.strided):
        raise ValueError("x: a sparse or nested tensor; give a dense one (to_dense).")
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "biufc":
        raise ValueError(f"x: an array of {value.dtype}; give one of numbers.")
    if value.dtype.kind in "fc" and value.dtype.itemsize > 8 * (1 + (value.dtype.kind == "c")):
        value = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    # Without negative strides or foreign byte orders, which PyTorch does not support.
    tensor = torch.from_numpy(np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("=")))
    if like is None:
        return tensor
    return tensor.to(like if tensor.is_floating_point() else like.device)

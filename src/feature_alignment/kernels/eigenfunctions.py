"""Eigenfunctions of a kernel on its samples, and how much of the labels they hold."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch

from feature_alignment.kernels.centring import centre_labels

# Below this share of the spectrum, LAPACK's subset driver is faster than the full one.
_SUBSET_SHARE = 0.25


@dataclass(frozen=True)
class Eigenfunctions:
    """Leading eigenfunctions of a kernel, sampled.

    Attributes:
        eigenvalues: (m,), of the Gram matrix, in nonincreasing order. Those of the integral
            operator are these divided by n.
        functions: (n·c, m); column j holds u_j(x_i)[y] at index i·c + y.
    """

    eigenvalues: np.ndarray
    functions: np.ndarray


def eigenfunctions(
    kernel: torch.Tensor | np.ndarray, number: int | None = None, outputs: int = 1
) -> Eigenfunctions:
    """Leading eigenfunctions u_j of a kernel: K u_j = λ_j u_j with mean over x of ‖u_j(x)‖² = 1.

    Computed in float64. The sign is fixed: the first entry among the largest in magnitude is
    positive (entries within 1e-6 of the largest count as equally large). Within an eigenspace of
    several dimensions the basis is arbitrary.

    Source: Baratin et al. 2021, footnote 2 and Proposition 4.

    Args:
        kernel: symmetric Gram matrix (n·c, n·c), sample-major.
        number: m, how many; None for all n·c.
        outputs: c.

    Raises:
        ValueError: if the kernel is not square, finite and symmetric (to 1e-4 of its largest
            entry), or m is out of range.

    Example:
        >>> eigenfunctions(np.array([[2.0, 0.0], [0.0, 1.0]]), 1).functions.round(4)
        array([[1.4142],
               [0.    ]])
    """
    gram = _float64(kernel)
    size = len(gram)
    if gram.shape != (size, size) or size % outputs:
        raise ValueError(
            f"kernel of shape {gram.shape} with {outputs} outputs; "
            "it must be (n·c, n·c) with c outputs."
        )
    if not np.isfinite(gram).all():
        raise ValueError("the kernel holds values that are not finite.")
    if np.abs(gram - gram.T).max() > 1e-4 * np.abs(gram).max():
        raise ValueError("the kernel is not symmetric; its eigenfunctions are not defined.")
    number = size if number is None else number
    if not 1 <= number <= size:
        raise ValueError(f"number: {number} eigenfunctions of a kernel of size {size}.")
    gram = (gram + gram.T) / 2
    if number <= _SUBSET_SHARE * size:
        values, vectors = scipy.linalg.eigh(gram, subset_by_index=[size - number, size - 1])
    else:
        values, vectors = scipy.linalg.eigh(gram, driver="evd")
    values, vectors = values[::-1][:number], vectors[:, ::-1][:, :number]
    vectors = vectors * fixed_signs(vectors) * np.sqrt(size // outputs)
    return Eigenfunctions(eigenvalues=values.copy(), functions=vectors)


def label_energy(
    functions: np.ndarray, y: torch.Tensor | np.ndarray, k: int | None = None
) -> float:
    """Share of the centred labels' squared norm that the first k eigenfunctions hold.

    Σ_{j≤k} ⟨u_j/‖u_j‖, Y⟩² / ‖Y‖² with Y the labels centred over samples for each output.

    Source: Baratin et al. 2021, Section 2 (the modes of Figure 1); the number itself is this
    project's.

    Args:
        functions: orthogonal columns (n·c, m), as `eigenfunctions` gives them.
        y: labels (n, c), or (n,) for one output.
        k: how many columns; None for all.

    Raises:
        ValueError: if the labels do not fit, are the same for all samples, or k is out of range.

    Example:
        >>> round(label_energy(np.array([[1.0], [-1.0]]), np.array([3.0, 1.0])), 6)
        1.0
    """
    labels = torch.as_tensor(_float64(y))
    size = float(labels.norm())
    labels = centre_labels(labels.reshape(len(labels), -1)).flatten().numpy()  # (n·c,)
    if len(labels) != len(functions):
        raise ValueError(f"{len(labels)} label entries for functions of {len(functions)}.")
    given: int = functions.shape[1]
    k = given if k is None else k
    if not 1 <= k <= given:
        raise ValueError(f"k: {k} eigenfunctions of {given} given.")
    norm = labels @ labels
    if norm <= (1e-12 * size) ** 2:
        raise ValueError("the labels are the same for all samples, so they have no energy.")
    leading = functions[:, :k] / np.linalg.norm(functions[:, :k], axis=0)
    return float(((labels @ leading) ** 2).sum() / norm)


def _float64(values: torch.Tensor | np.ndarray) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def fixed_signs(vectors: np.ndarray) -> np.ndarray:
    """±1 for each column, so that its first largest entry becomes positive."""
    magnitude = np.abs(vectors)
    first = np.argmax(magnitude >= (1 - 1e-6) * magnitude.max(axis=0), axis=0)
    return np.sign(vectors[first, np.arange(vectors.shape[1])])

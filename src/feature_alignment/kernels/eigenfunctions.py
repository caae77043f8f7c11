"""Eigenfunctions of a kernel on its samples, and the share of the labels that they capture."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch

from feature_alignment.arrays import real_array
from feature_alignment.errors import check_whole
from feature_alignment.kernels.alignment import centre_labels
from feature_alignment.kernels.spectrum import symmetric_gram

# Below this share of the spectrum, LAPACK's subset driver is faster than the full one.
_SUBSET_SHARE = 0.25


@dataclass(frozen=True)
class Eigenfunctions:
    """Leading eigenfunctions of a kernel, at its samples."""

    eigenvalues: np.ndarray  # (m,), of the Gram matrix, nonincreasing: n times the operator's
    functions: np.ndarray  # (n·c, m); column j holds u_j(x_i)[y] at index i·c + y


def eigenfunctions(
    kernel: torch.Tensor | np.ndarray, number: int | None = None, outputs: int = 1
) -> Eigenfunctions:
    """Leading m eigenfunctions u_j of a kernel: K u_j = λ_j u_j with mean over x of ‖u_j(x)‖² = 1.

    The kernel is a symmetric Gram matrix (n·c, n·c), sample-major; `number` is m, None for all.
    Computed in float64, with the signs of `fixed_signs`. The basis of an eigenspace of several
    dimensions is arbitrary.

    Source: Baratin et al. 2021, footnote 2 and Proposition 4.

    Raises:
        ValueError: if the kernel is not square, finite and symmetric (to 1e-4 of its largest
            entry), its size is not a multiple of c = `outputs`, or m is out of range.

    Example:
        >>> eigenfunctions(np.array([[2.0, 0.0], [0.0, 1.0]]), 1).functions.round(4)
        array([[1.4142],
               [0.    ]])
    """
    gram = symmetric_gram(kernel, 1e-4)
    size = len(gram)
    check_whole("outputs", outputs, 1)
    if size % outputs:
        raise ValueError(f"kernel of {size} rows with {outputs} outputs; it must be (n·c, n·c).")
    number = size if number is None else number
    check_whole("number", number, 1, size)
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
    """Share of the centred labels' squared norm that the first k eigenfunctions capture; None: all.

    Σ_{j≤k} ⟨u_j/‖u_j‖, Y⟩² / ‖Y‖² with Y the labels, (n, c) or (n,), centred over samples for each
    output, and u_j orthogonal columns (n·c, m), as from `eigenfunctions`.

    Source: Baratin et al. 2021, Section 2 (the modes of Figure 1); the quantity itself is this
    project's.

    Raises:
        ValueError: if there are no labels, they do not fit, or are the same for all samples, k is
            out of range, an eigenfunction is zero, or a value is not finite.
    """
    labels = torch.from_numpy(np.ascontiguousarray(real_array("y", y)))
    if not labels.numel():
        raise ValueError("y: there are no labels.")
    size = float(labels.norm())
    labels = centre_labels(labels.reshape(len(labels), -1)).flatten().numpy()  # (n·c,)
    if len(labels) != len(functions):
        raise ValueError(f"{len(labels)} label entries for functions of {len(functions)}.")
    if not all(np.isfinite(values).all() for values in (functions, labels)):
        raise ValueError("functions and y: they must be finite.")
    given: int = functions.shape[1]
    k = given if k is None else k
    check_whole("k", k, 1, given)
    norm = labels @ labels
    if norm <= (1e-12 * size) ** 2:
        raise ValueError("the labels are the same for all samples, so they have no energy.")
    lengths = np.linalg.norm(functions[:, :k], axis=0)
    if not lengths.all():
        raise ValueError("one of the eigenfunctions is zero, so it has no direction.")
    leading = functions[:, :k] / lengths
    return float(((labels @ leading) ** 2).sum() / norm)


def fixed_signs(vectors: np.ndarray) -> np.ndarray:
    """±1 per column, to make positive the first of its entries that are largest to within 1e-6."""
    magnitude = np.abs(vectors)
    first = np.argmax(magnitude >= (1 - 1e-6) * magnitude.max(axis=0), axis=0)
    return np.sign(vectors[first, np.arange(vectors.shape[1])])

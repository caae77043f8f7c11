"""A tangent kernel as the Gram matrices of its layers, and what is measured on them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch

from feature_alignment.arrays import Matrix
from feature_alignment.errors import check_whole
from feature_alignment.kernels.alignment import LabelAlignmentForm, centre_kernel, label_alignment
from feature_alignment.kernels.spectrum import effective_rank, kernel_eigenvalues


@dataclass(frozen=True, repr=False, eq=False)
class TangentKernel:
    """Gram matrix of tangent features between two sets of samples; for arithmetic, use `total`.

    Source: Baratin et al. 2021, eq. 1.

    Attributes:
        layers: the Gram matrix (n·c, n₂·c) of each layer's features, in units of f² per parameter².
        outputs: c.

    Raises:
        ValueError: if there is no layer.

    Example:
        >>> from torch import nn
        >>> from feature_alignment.kernels.tangent import tangent_kernel
        >>> tangent_kernel(nn.Linear(2, 3), torch.eye(2))
        TangentKernel(2 samples, 3 outputs; 6 × 6, float32; trace 12; 1 layer)
    """

    layers: dict[str, torch.Tensor]
    outputs: int

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers: there are none; give the Gram matrix of one layer or more.")

    def __repr__(self) -> str:
        rows, columns = (size // self.outputs for size in self._shape)
        grams = self.layers.values()
        parts = [
            f"{rows}{'' if rows == columns else f' by {columns}'} samples, "
            f"{self.outputs} output{'s' * (self.outputs > 1)}",
            f"{self._shape[0]} × {self._shape[1]}, {str(next(iter(grams)).dtype)[6:]}",
            f"{len(grams)} layer{'s' * (len(grams) > 1)}",
        ]
        if rows == columns:
            parts.insert(2, f"trace {sum(float(gram.trace()) for gram in grams):.4g}")
        return f"TangentKernel({'; '.join(parts)})"

    def __getitem__(self, layer: str) -> "TangentKernel":
        """The kernel of one layer, as in kernel["0"].effective_rank().

        Raises:
            KeyError: if there is no such layer.
        """
        return TangentKernel({layer: self.layers[layer]}, self.outputs)

    def __iter__(self) -> Iterator[str]:
        """The layers' names."""
        return iter(self.layers)

    @property
    def _shape(self) -> torch.Size:
        return next(iter(self.layers.values())).shape

    @property
    def total(self) -> torch.Tensor:
        """The kernel of all parameters, the sum over layers: (n·c, n₂·c)."""
        first, *others = self.layers.values()
        dtype = reduce(torch.promote_types, (gram.dtype for gram in others), first.dtype)
        total = first.to(dtype, copy=True)
        for gram in others:
            total += gram
        return total

    @property
    def centred(self) -> torch.Tensor:
        """The kernel of all features, centred over the samples for each output, in float64.

        Raises:
            ValueError: if it is a kernel between two different sets of samples, of a single sample
                or not finite, or only rounding errors of the raw kernel remain after centring.
        """
        total = self._of_one_set()
        if len(total) == self.outputs:
            raise ValueError("a single sample has no centred kernel; give several.")
        centred = centre_kernel(total, self.outputs)
        share = _share(centred, total)
        if 0 < share < 10 * self._rounding:
            raise ValueError(
                f"once centred, the kernel is {share:.1g} of what it was, which is rounding: the "
                "features are the same for all samples"
                + (" in float32; try model.double()." if self._single else ".")
            )
        return centred

    @property
    def _single(self) -> bool:
        return torch.float32 in {gram.dtype for gram in self.layers.values()}

    @property
    def _rounding(self) -> float:
        return 8 * torch.finfo(torch.float32 if self._single else torch.float64).eps

    def _of_one_set(self) -> torch.Tensor:
        """The total in float64; a ValueError if not finite, or not symmetric to rounding."""  # noqa: DOC501
        total = self.total.double()
        if not total.isfinite().all():
            raise ValueError("the kernel holds values that are not finite.")
        rounding = 1e-6 * float(total.abs().max())
        if total.shape[0] != total.shape[1] or not torch.allclose(total, total.T, atol=rounding):
            raise ValueError(
                "a kernel between two sets of samples has no centring, spectrum or alignment; "
                "take that of one set."
            )
        return total

    def spectrum(self, *, centred: bool = True) -> np.ndarray:
        """Eigenvalues λ_1 ≥ … ≥ 0, (n·c,) in float64, of the centred kernel or of the raw one.

        Source: Baratin et al. 2021, Sections 3.1 and 3.2.

        Raises:
            ValueError: if it is a kernel between two different sets of samples, it is zero (once
                centred), or rounding is over a hundredth of it, see `kernel_eigenvalues`.
        """
        # Kernels have the model's precision: float32 makes zero eigenvalues slightly negative, and
        # centring keeps the raw kernel's rounding errors.
        total = self._of_one_set()
        kernel = self.centred if centred else total
        share = _share(kernel, total)
        if not share > 0:  # NaN if the raw kernel is 0, too
            raise ValueError(
                "once centred, the kernel is 0: the features are the same for all samples."
                if centred
                else "the kernel is 0: the features of all samples are 0."
            )
        return kernel_eigenvalues(
            kernel, max(1e-4 if self._single else 1e-10, self._rounding / share)
        )

    def effective_rank(self, *, centred: bool = True) -> float:
        """Effective rank of `spectrum`: see `kernels.spectrum.effective_rank`.

        Raises:
            ValueError: as `spectrum`.
        """
        return effective_rank(self.spectrum(centred=centred))

    def alignment(
        self, y: Matrix, form: LabelAlignmentForm | str = LabelAlignmentForm.RELEASED
    ) -> float:
        """Alignment with labels (n, c) or class numbers (n,): see `label_alignment`.

        Of outputs with several axes, c counts all entries; give labels of tokens one-hot, (n, c).

        Raises:
            ValueError: if labels and samples, or columns and outputs, differ in number; or if it is
                a kernel between two different sets of samples.
        """
        shape, n = np.shape(y), len(self._of_one_set()) // self.outputs
        if shape[:1] != (n,) or shape[1:] not in ((), (self.outputs,)):
            raise ValueError(
                f"y: labels of shape {tuple(shape)} for {n} samples and {self.outputs} outputs; "
                "give (n,) or (n, c)."
            )
        return label_alignment(self.total, y, form)

    def by_block(self, depth: int = 1) -> "TangentKernel":
        """Sum the layers that share the first `depth` parts of their names.

        Raises:
            ValueError: if the depth is not a positive whole number.

        Example:
            >>> from torch import nn
            >>> from feature_alignment.kernels.tangent import tangent_kernel
            >>> block = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
            >>> kernel = tangent_kernel(nn.Sequential(block, nn.Linear(2, 1)), torch.eye(2))
            >>> list(kernel.layers), list(kernel.by_block(1).layers)
            (['0.0', '0.1', '1'], ['0', '1'])
        """
        check_whole("depth", depth, 1)
        blocks: dict[str, torch.Tensor] = {}
        for layer, gram in self.layers.items():
            block = ".".join(layer.split(".")[:depth])
            blocks[block] = blocks[block] + gram if block in blocks else gram.clone()
        return TangentKernel(blocks, self.outputs)


def _share(part: torch.Tensor, whole: torch.Tensor) -> float:
    """‖part‖ / ‖whole‖, scaled if squares could over- or underflow; NaN if the whole is 0."""
    if not 1e-100 < whole.norm() < math.inf:
        largest = whole.abs().max()
        part, whole = part / largest, whole / largest
    return float(part.norm() / whole.norm())

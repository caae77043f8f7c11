"""Alignment of kernels with each other and with the labels.

Kernels are Gram matrices (n·c, n·c), sample-major: entry (i·c + y, j·c + y′). All sums are taken
in float64.
"""

import functools
import math
from collections.abc import Iterable
from enum import StrEnum

import torch

from feature_alignment.arrays import Matrix, real_tensor
from feature_alignment.errors import check_choice, check_whole, shortened


class UndefinedAlignmentError(ValueError):
    """The kernel or the labels are zero once centred, or not finite, so no alignment is defined."""


class LabelAlignmentForm(StrEnum):
    """Readings of "centred kernel alignment with the labels", for n samples and c classes.

    With Y (n·c,) the one-hot labels and K_c the kernel of features centred over the samples for
    each class, Y_c the labels centred for each class, and C = I − 11ᵀ/(n·c):

    Attributes:
        RELEASED: Y_cᵀ K_c Y_c / (‖K_c‖_F ‖Y_c‖²), as in the authors' released code, and the
            default here because Section 3.1 centres the features.
        EQUATION_7: Yᵀ K_c Y / (‖K_c‖_F ‖CY‖²), eq. 7 on the kernel of centred features. Its
            centring C no longer changes K_c; only the labels' norm differs from RELEASED, by
            nothing for balanced classes, by about 1 % on random batches of 100 from ten equally
            frequent ones, and by half with two at 15 and 85 %.
        EQUATION_7_RAW: Yᵀ CKC Y / (‖CKC‖_F ‖CY‖²), eq. 7 on the kernel of raw features: one
            mean for all classes. It is mostly lower than RELEASED and EQUATION_7, but not always.
        UNCENTRED: Yᵀ K Y / (‖K‖_F ‖Y‖²), Figure 12 with the label kernel of its caption, YYᵀ.
        UNCENTRED_KERNEL: Y_cᵀ K Y_c / (‖K‖_F ‖Y_c‖²), Figure 12 with the labels of Figure 11, whose
            caption has YYᵀ, too.
    """

    RELEASED = "released"
    EQUATION_7 = "equation_7"
    EQUATION_7_RAW = "equation_7_raw"
    UNCENTRED = "uncentred"
    UNCENTRED_KERNEL = "uncentred_kernel"


def kernel_alignment(a: Matrix, b: Matrix) -> float:
    """Cosine similarity of symmetric kernels (r, r), Tr[KK′] / (‖K‖_F ‖K′‖_F), without centring.

    Source: Baratin et al. 2021, Figure 12; LeJeune & Alemohammad 2024, Figure 1.

    Raises:
        ValueError: if the shapes differ or do not fit, or a kernel is zero, not finite or not
            symmetric (to 1e-4 of its largest entry).

    Example:
        >>> round(kernel_alignment(torch.eye(2), torch.ones(2, 2)), 6)
        0.707107
    """
    return _cosine(_symmetric(a), _symmetric(b))


def _cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    second = second.to(first.device)
    if first.shape != second.shape:
        raise ValueError(
            f"kernels of shapes {tuple(first.shape)} and {tuple(second.shape)} have no alignment."
        )
    units = [kernel / _frobenius_norm(kernel) for kernel in (first, second)]
    return float((units[0] * units[1]).sum())


def centred_kernel_alignment(a: Matrix, b: Matrix, outputs: int = 1) -> float:
    """CKA(K, K′) = Tr[K_c K′_c] / (‖K_c‖_F ‖K′_c‖_F) of symmetric kernels (r, r).

    With `outputs` = 1 this is eq. 7 to the letter, K_c = CKC with C = I − 11ᵀ/r. With c outputs, r
    must be a multiple of c, and each output's features are centred by their own mean (Section 3.1),
    as in the paper's measurements.

    Source: Baratin et al. 2021, eq. 7.

    Raises:
        ValueError: if the shapes differ or do not fit, a kernel is not symmetric (to 1e-4 of its
            largest entry), or a centred one is zero or not finite.

    Example:
        >>> two = torch.diag(torch.tensor([1.0, 1.0, 0.0]))
        >>> round(centred_kernel_alignment(torch.eye(3), two), 6)
        0.894427
    """
    return _cosine(_scaled(_centred(a, outputs)), _scaled(_centred(b, outputs)))


def label_alignment(
    kernel: Matrix, y: Matrix, form: LabelAlignmentForm | str = LabelAlignmentForm.RELEASED
) -> float:
    """Alignment of a kernel with the labels, CKA(K, YYᵀ), without forming YYᵀ.

    K is symmetric, (n·c, n·c); labels are (n, c), one-hot for classes, or class numbers (n,).
    Labels of a single output are used as they are, e.g. regression targets, or ±1 for two classes.

    Source: Baratin et al. 2021, eq. 7 and Section 3.3; for the forms see `LabelAlignmentForm`.

    Raises:
        ValueError: if shapes do not fit, the form is unknown, the kernel is not symmetric (to 1e-4
            of its largest entry), or kernel or labels are zero (once centred) or not finite.

    Example:
        >>> y = torch.eye(2)
        >>> round(label_alignment(torch.outer(y.flatten(), y.flatten()), y), 6)
        1.0
    """
    return label_alignments(kernel, y, [form])[_form(form)]


def _form(form: LabelAlignmentForm | str) -> LabelAlignmentForm:
    check_choice("form", form, map(str, LabelAlignmentForm))
    return LabelAlignmentForm(form)


def label_alignments(
    kernel: Matrix, y: Matrix, forms: Iterable[LabelAlignmentForm | str] = LabelAlignmentForm
) -> dict[LabelAlignmentForm, float]:
    """`label_alignment` in several forms, sharing the centring where possible.

    Raises:
        UndefinedAlignmentError: if the kernel or the labels are zero (once centred) or not finite.
        ValueError: if shapes do not fit, a form is unknown or the kernel is not symmetric.
    """
    gram = _symmetric(kernel)
    labels = _labels(y, len(gram)).to(gram.device)
    if labels.ndim != 2 or labels.numel() != len(gram):
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} for a kernel of {len(gram)} rows; "
            "labels must be (n, c), or class numbers (n,), and the kernel (n·c, n·c)."
        )
    if isinstance(forms, str):
        raise ValueError(f"forms: {shortened(str(forms))}; give a list of forms, as ['released'].")
    if not (forms := [_form(form) for form in forms]):
        return {}
    by_class, by_mean = centre_labels(labels), labels - labels.mean()
    # Centring is a projection, so YᵀK_cY is (CY)ᵀK(CY), and centred kernels are needed only for
    # their norms. Per form: the kernel's centring, the labels in YᵀKY, those in ‖Y‖².
    readings = {
        LabelAlignmentForm.RELEASED: (labels.shape[1], by_class, by_class),
        LabelAlignmentForm.EQUATION_7: (labels.shape[1], by_class, by_mean),
        LabelAlignmentForm.EQUATION_7_RAW: (1, by_mean, by_mean),
        LabelAlignmentForm.UNCENTRED: (None, labels, labels),
        LabelAlignmentForm.UNCENTRED_KERNEL: (None, by_class, by_class),
    }
    norm = functools.cache(lambda outputs: _frobenius_norm(_centred(kernel, outputs)))
    targets = torch.stack([readings[form][1].flatten() for form in forms], dim=1)
    squares = (targets * (gram @ targets)).sum(dim=0)
    found = {}
    for form, square in zip(forms, squares, strict=True):
        outputs, _, target = readings[form]
        size = target.norm()
        if not size > 1e-12 * labels.norm():  # also for NaN
            raise UndefinedAlignmentError(
                "the labels are zero once centred (all samples have the same label) or not finite; "
                "an alignment with them is not defined."
            )
        found[form] = float(square / size**2 / norm(outputs))
    return found


def centre_kernel(kernel: torch.Tensor, outputs: int = 1) -> torch.Tensor:
    """Gram matrix (n·c, n·c) of the features minus their mean over samples, from the raw features'.

    The features of each of the c outputs are centred by their own mean: K_c = CKC with
    C = (I_n − 11ᵀ/n) ⊗ I_c.

    Source: Baratin et al. 2021, Section 3.1.

    Raises:
        ValueError: if the kernel is not square or its size is not a multiple of c.
    """
    size = kernel.shape[0]
    check_whole("outputs", outputs, 1)
    if kernel.shape != (size, size) or size % outputs:
        raise ValueError(
            f"kernel of shape {tuple(kernel.shape)} with {outputs} outputs; "
            "it must be (n·c, n·c) with c outputs."
        )
    blocks = kernel.reshape(size // outputs, outputs, size // outputs, outputs)
    blocks = blocks - blocks.mean(dim=0, keepdim=True)
    blocks -= blocks.mean(dim=2, keepdim=True)  # in place, now that it is a copy
    return blocks.reshape(size, size)


def centre_labels(y: torch.Tensor) -> torch.Tensor:
    """Labels minus their mean over samples, for each output: (n, c) → (n, c)."""
    return y - y.mean(dim=0, keepdim=True)


def _centred(kernel: Matrix, outputs: int | None) -> torch.Tensor:
    """The centred kernel; uncentred for None outputs.

    Raises:
        UndefinedAlignmentError: if only rounding remains.
    """
    gram = _symmetric(kernel)
    if outputs is None:
        return gram
    centred = centre_kernel(gram, outputs)
    single = "float32" in str(getattr(kernel, "dtype", None))
    norm = gram.norm()
    if centred.norm() > (1e-5 if single else 1e-13) * norm or not 0 < norm < math.inf:
        return centred
    double = " in float32; if inputs are far from 0, subtract their mean, or try model.double()"
    raise UndefinedAlignmentError(
        "once centred, the kernel is zero to rounding, so its alignment is not defined: the "
        f"features are the same for all samples{double if single else ''}."
    )


def _frobenius_norm(gram: torch.Tensor) -> torch.Tensor:
    norm = gram.norm()
    if not (norm > 0 and torch.isfinite(norm)):
        raise UndefinedAlignmentError(
            "the kernel is zero or not finite; its alignment is not defined."
        )
    return norm


def _labels(y: Matrix, rows: int) -> torch.Tensor:
    values = real_tensor("y", y).detach().double()
    if values.ndim != 1:
        return _scaled(values)
    classes = rows // max(len(values), 1)
    if classes <= 1:
        return _scaled(values)[:, None]
    numbers = values.long()  # class numbers, to be made one-hot
    if (numbers != values).any() or (numbers < 0).any() or (numbers >= classes).any():
        raise ValueError(
            f"labels from {values.min():g} to {values.max():g} for a kernel of {classes} outputs; "
            f"class numbers must be whole numbers from 0 to {classes - 1}."
        )
    return torch.nn.functional.one_hot(numbers, classes).double()


def _symmetric(kernel: Matrix) -> torch.Tensor:
    gram = _scaled(real_tensor("kernel", kernel).detach().double())
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"kernel of shape {tuple(gram.shape)}; it must be square.")
    if gram.numel() and (gram - gram.T).abs().max() > 1e-4 * gram.abs().max():
        raise ValueError(
            "the kernel is not symmetric, as if between two sets of samples; it has no alignment."
        )
    return gram


def _scaled(values: torch.Tensor) -> torch.Tensor:
    """A multiple, whose alignments are the same, but whose squares do not over- or underflow."""
    largest = values.abs().max() if values.numel() else torch.zeros(())
    if not 0 < largest < math.inf:
        return values
    return torch.ldexp(values, -torch.frexp(largest).exponent)  # exact: by a power of 2

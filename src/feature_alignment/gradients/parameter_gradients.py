"""Per-sample gradients of one parameter, kept as their factors.

A module's weight has the gradient G_iy = Σ_t δ_iyt a_itᵀ for sample i and output y: a sum over the
positions t (one for a vector input, tokens of a sequence, output pixels of a convolution) of outer
products of a pre-activation gradient δ and an input a. The factors take n·c·P·k + n·P·d numbers,
the gradients themselves n·c·k·d.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch

from feature_alignment.gradients.blocks import BLOCK, spans
from feature_alignment.gradients.layer_inputs import Inputs, PatchInputs, TokenInputs, VectorInputs

COMMON = 100  # from here on, ‖ā‖² over the inputs' mean square around ā, ā is split off


@dataclass(frozen=True)
class Factors:
    """Σ_t δ_t a_tᵀ of one group of rows, for b samples."""

    inputs: torch.Tensor  # a as loaded, (b, P, …)
    deltas: torch.Tensor  # δ, (b, c, P, k)
    counts: torch.Tensor  # (P,), with Σ_t counts_t δ_t the sum over the layer's own positions

    def at(self, position: int) -> "Factors":
        """Those of one position alone."""
        here = slice(position, position + 1)
        return Factors(self.inputs[:, here], self.deltas[:, :, here], self.counts[here])


@dataclass(frozen=True)
class MatrixGradients:
    """Per-sample gradients Σ_t δ_t a_tᵀ of a matrix-shaped parameter, as their factors."""

    inputs: Inputs  # a
    deltas: torch.Tensor  # δ, (n, c, P, groups·k)

    @property
    def rows(self) -> int:
        """Rows of one group's weight."""
        return self.inputs.vocabulary if isinstance(self.inputs, TokenInputs) else self.width

    @property
    def width(self) -> int:
        """Width k of one group's δ."""
        return self.deltas.shape[3] // self.inputs.groups

    @property
    def in_weight_order(self) -> bool:
        """Whether the gradients' entries are in the weight's order."""
        return self.inputs.groups == 1 and not isinstance(self.inputs, PatchInputs)

    def signal(self, group: int, samples: slice) -> torch.Tensor:
        """The group's δ: (b, c, P, k)."""
        return self.deltas[samples, :, :, group * self.width : (group + 1) * self.width]

    def factors(self, group: int, samples: slice) -> Factors:
        """The factors of some samples, with products of which inner products can be formed.

        If most of the inputs is their mean ā over positions, it is split off as one more position:
        Σ_t δ_t a_tᵀ = Σ_t δ_t (a_t − ā)ᵀ + (Σ_t δ_t) āᵀ. Where Σ_t δ_t is small, products of the
        whole inputs would cancel but for their rounding errors, (‖ā‖/‖a − ā‖)² times as large.
        """
        a, delta = self.inputs.load(group, samples), self.signal(group, samples)
        positions = a.shape[1]
        counts = delta.new_ones(positions)
        if positions == 1 or isinstance(self.inputs, TokenInputs):
            return Factors(a, delta, counts)
        mean = a.mean(1, keepdim=True)
        common = positions * mean.square().sum()
        if bool(common <= COMMON * (a.square().sum() - common)):
            return Factors(a, delta, counts)
        a = torch.cat([a - mean, mean], dim=1)
        delta = torch.cat([delta, delta.sum(2, keepdim=True)], dim=2)
        return Factors(a, delta, torch.cat([torch.zeros_like(counts), counts[:1]]))

    def add_gradient_rows(
        self, out: torch.Tensor, group: int, rows: slice, beta: int, block: int = BLOCK
    ) -> None:
        """Replace `out` (n, c, number of rows, columns) by beta · out + rows of the gradients.

        `out` is contiguous, beta 0 or 1, and about `block` numbers are loaded at a time.
        """
        loaded = self.inputs.positions * self.inputs.columns
        for samples in spans(len(out), max(1, min(block, BLOCK) // loaded)):
            a, delta = self.inputs.load(group, samples), self.signal(group, samples)
            self.inputs.add_gradient_rows(out[samples], a, delta, rows, beta)

    def features(self, block: int = BLOCK) -> torch.Tensor:
        """The gradients themselves, entries in the parameter's order: (n, c, p)."""
        if self.inputs.groups > 1:
            found = self.of_groups(slice(0, self.inputs.groups), block)
            return self.inputs.weight_order(found).flatten(2)
        found = self.deltas.new_empty(*self.deltas.shape[:2], self.rows, self.inputs.columns)
        self.add_gradient_rows(found, 0, slice(0, self.rows), 0, block)
        return self.inputs.weight_order(found).flatten(2)

    def of_groups(self, groups: slice, block: int = BLOCK) -> torch.Tensor:
        """The gradients of some groups, rows in the order of patches: (n, c, groups, k, d).

        All at once, since many are small, as in depthwise convolutions; of about `block` numbers at
        a time, their inputs and the copy of δ that is multiplied with them.
        """
        deltas = self.deltas.unflatten(3, (self.inputs.groups, -1))[:, :, :, groups]
        loaded = self.inputs.positions * self.inputs.columns * deltas.shape[3]
        loaded += deltas[:1].numel()
        found = [
            torch.einsum(
                "nctgk,ntgd->ncgkd", deltas[samples], self.inputs.load_groups(groups, samples)
            )
            for samples in spans(len(deltas), max(1, min(block, BLOCK) // loaded))
        ]
        return torch.cat(found)

    def without_silent_positions(self) -> "MatrixGradients":
        """The same gradients of vector inputs without the positions at which δ is always zero.

        There are some if the outputs are those of a sequence's last token.
        """
        if len(self.deltas) == 0 or self.deltas[0, 0].any(1).all():
            return self  # the usual case: nothing to look for
        heard = (self.deltas != 0).any(3).any(1).any(0)
        heard[0] = True  # so that one remains
        inputs = replace(self.inputs, values=self.inputs.values[:, heard])
        return replace(self, inputs=inputs, deltas=self.deltas[:, :, heard])


@dataclass(frozen=True)
class VectorGradients:
    """Per-sample gradients (n, c, p) of a parameter with few entries, in full and in its order."""

    values: torch.Tensor

    def features(self, block: int = BLOCK) -> torch.Tensor:
        """The gradients: (n, c, p)."""
        return self.values


@dataclass(frozen=True)
class BiasGradients:
    """Per-sample gradients Σ_t δ_t of a bias, with δ (n, c, P, k)."""

    deltas: torch.Tensor

    def features(self, block: int = BLOCK) -> torch.Tensor:
        """The gradients: (n, c, k)."""
        return self.deltas.sum(dim=2)


Gradients = MatrixGradients | VectorGradients | BiasGradients


@dataclass(frozen=True)
class Part:
    """Gradients of some entries of a parameter, as sums over uses."""

    uses: Sequence[Gradients]  # gradients to be added, of one kind
    entries: torch.Tensor | None = None  # of the flat parameter; None for all in their order

    def to(self, dtype: torch.dtype) -> "Part":
        """The same gradients in another precision."""
        if all(_tensor(use).dtype == dtype for use in self.uses):
            return self
        return replace(self, uses=[VectorGradients(use.features().to(dtype)) for use in self.uses])

    def features(self, size: int, block: int = BLOCK) -> torch.Tensor:
        """Gradients of the whole parameter, of p = `size` entries: (n, c, p)."""
        found = summed_features(self.uses, block)
        if self.entries is None:
            return found
        whole = found.new_zeros(*found.shape[:2], size)
        whole[:, :, self.entries] = found
        return whole

    def add_features(self, out: torch.Tensor, block: int = BLOCK) -> None:
        """Add the gradients to those of the whole parameter (n, c, p), contiguous."""
        for use in self.uses:
            if self.entries is not None:
                out[:, :, self.entries] += use.features(block)
            elif isinstance(use, MatrixGradients) and use.in_weight_order:
                matrices = out.unflatten(2, (use.rows, use.inputs.columns))
                use.add_gradient_rows(matrices, 0, slice(0, use.rows), 1, block)
            else:
                out += use.features(block)


def _tensor(use: Gradients) -> torch.Tensor:
    return use.values if isinstance(use, VectorGradients) else use.deltas


def all_factors(uses: Sequence[Gradients]) -> TypeGuard[Sequence[MatrixGradients]]:
    """Whether all uses of a parameter are kept as factors."""
    return all(isinstance(use, MatrixGradients) for use in uses)


def of_one_kind(uses: Sequence[Gradients]) -> bool:
    """Whether the uses can be added as they are: all are factors of one shape, or none are."""
    if not all_factors(uses):
        return not any(isinstance(use, MatrixGradients) for use in uses)
    shapes = {(use.inputs.groups, use.rows, use.inputs.columns) for use in uses}
    # Patches' entries have channels last, so that their order depends on how many there are.
    channels = {isinstance(a, PatchInputs) and a.values.shape[2] for a in (u.inputs for u in uses)}
    return len(shapes) == len(channels) == 1


def merged_uses(uses: Sequence[Gradients]) -> Sequence[Gradients]:
    """The same sum in fewer uses: those of vector inputs become one with all their positions."""
    if len(uses) < 2 or not all_factors(uses):
        return uses
    vectors = [use for use in uses if isinstance(use.inputs, VectorInputs)]
    if len(vectors) < 2:
        return uses
    values = torch.cat([use.inputs.values for use in vectors], dim=1)
    deltas = joined_deltas([use.deltas for use in vectors])
    merged = MatrixGradients(VectorInputs(values, vectors[0].inputs.groups), deltas)
    return [merged, *(use for use in uses if not isinstance(use.inputs, VectorInputs))]


def joined_deltas(deltas: Sequence[torch.Tensor]) -> torch.Tensor:
    """δ (n, c, P, k) of several uses, positions concatenated; a view if adjacent in memory."""
    first = deltas[0]
    place = first.storage_offset()
    for delta in deltas:
        alike = delta.stride() == first.stride() and delta.shape[3] == first.shape[3]
        if not (alike and delta.storage_offset() == place and _storage(delta) == _storage(first)):
            return torch.cat([delta.transpose(1, 2) for delta in deltas], dim=1).transpose(1, 2)
        place += delta.shape[2] * delta.stride(2)
    n, c, _, k = first.shape
    positions = sum(delta.shape[2] for delta in deltas)
    return first.as_strided((n, c, positions, k), first.stride())


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def summed_features(uses: Sequence[Gradients], block: int = BLOCK) -> torch.Tensor:
    """Sum of several uses' gradients: (n, c, p)."""
    return functools.reduce(torch.add, (use.features(block) for use in uses))

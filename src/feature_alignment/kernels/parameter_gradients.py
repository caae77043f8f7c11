"""Per-sample gradients of one parameter, kept as the factors they are made of.

A module's weight has the gradient G_iy = Σ_t δ_iyt a_itᵀ for sample i and output y: a sum over the
positions t (one for a vector input, tokens of a sequence, output pixels of a convolution) of outer
products of a pre-activation gradient δ and an input a. n·c·P·k + n·P·d numbers describe it, where
the gradient itself has n·c·k·d.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch.nn import functional as F

from feature_alignment.kernels.blocks import BLOCK, spans


class Inputs(Protocol):
    """Inputs a of a matrix-shaped parameter at every position, for n samples.

    Attributes:
        values: what the module was given, samples first.
        positions: P.
        columns: d of one group's weight (k, d), in the order of `weight_order`.
        groups: independent parts of the weight's rows, each with inputs of its own.
    """

    values: torch.Tensor
    positions: int
    columns: int
    groups: int

    def load(self, group: int, samples: slice) -> torch.Tensor:
        """What `similarity` and `gradient_rows` take: (b, P, …) for b samples."""

    def similarity(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Inner products a_it·a_js of loaded inputs: (b, P, …), (b₂, P₂, …) → (b·P, b₂·P₂)."""

    def own_similarity(self, loaded: torch.Tensor) -> torch.Tensor:
        """Inner products a_it·a_is within each sample: (b, P, …) → (b, P, P)."""

    def gradient_rows(
        self, loaded: torch.Tensor, signal: torch.Tensor, start: int, stop: int
    ) -> torch.Tensor:
        """Rows of Σ_t δ_t a_tᵀ: loaded inputs, δ (b, c, P, k) → (b, c, stop − start, columns)."""

    def weight_order(self, rows: torch.Tensor) -> torch.Tensor:
        """Gradient rows (…, columns) with their entries in the order of the parameter's."""


class _OuterProducts:
    """What inputs that are loaded as vectors (b, P, d) have in common."""

    def similarity(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """See `Inputs`."""
        return first.flatten(0, 1) @ second.flatten(0, 1).T

    def own_similarity(self, loaded: torch.Tensor) -> torch.Tensor:
        """See `Inputs`."""
        return loaded @ loaded.transpose(1, 2)

    def gradient_rows(
        self, loaded: torch.Tensor, signal: torch.Tensor, start: int, stop: int
    ) -> torch.Tensor:
        """See `Inputs`: rows are the units, or the group's output channels, start to stop."""
        delta = signal[..., start:stop].transpose(2, 3)  # (b, c, k, P)
        if delta.is_contiguous():  # all outputs in one product per sample, as they share the inputs
            return torch.bmm(delta.flatten(1, 2), loaded).unflatten(1, delta.shape[1:3])
        return delta @ loaded[:, None]


@dataclass(frozen=True)
class VectorInputs(_OuterProducts):
    """Inputs of a linear layer at every position.

    Attributes:
        values: a, (n, P, d).
    """

    values: torch.Tensor
    groups: int = 1

    @property
    def positions(self) -> int:
        """P."""
        return self.values.shape[1]

    @property
    def columns(self) -> int:
        """D."""
        return self.values.shape[2]

    def load(self, group: int, samples: slice) -> torch.Tensor:
        """See `Inputs`: (b, P, d)."""
        return self.values[samples]

    def weight_order(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Inputs`."""
        return rows


@dataclass(frozen=True)
class PatchInputs(_OuterProducts):
    """Inputs of a convolution, unfolded into one patch per output position when loaded.

    A patch's entries run over the window first and the channels last, which copies fastest.

    Attributes:
        values: the layer's input (n, channels, …), one axis per spatial dimension.
        kernel: window size per spatial dimension; so are stride and dilation.
        stride: step between windows.
        dilation: step within a window.
        padding: numbers of entries added before and after each spatial dimension.
        padding_mode: "constant" (zeros), "reflect", "replicate" or "circular".
        groups: groups of channels.
    """

    values: torch.Tensor
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    padding_mode: str
    groups: int

    @property
    def positions(self) -> int:
        """P, the number of output positions."""
        number = 1
        for axis, size in enumerate(self.values.shape[2:]):
            span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            number *= (size + sum(self.padding[axis]) - span) // self.stride[axis] + 1
        return number

    @property
    def columns(self) -> int:
        """d, the entries of one group's patch."""
        return self.values.shape[1] // self.groups * torch.Size(self.kernel).numel()

    def load(self, group: int, samples: slice) -> torch.Tensor:
        """See `Inputs`: patches (b, P, d)."""
        channels = self.values.shape[1] // self.groups
        a = self.values[samples, group * channels : (group + 1) * channels]
        if any(sum(pair) for pair in self.padding):
            last_axis_first = [size for pair in reversed(self.padding) for size in pair]
            a = F.pad(a, last_axis_first, mode=self.padding_mode)
        a = a.movedim(1, -1).contiguous()  # (b, …, channels)
        axes = range(len(self.kernel))
        for axis in axes:
            span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            a = a.unfold(axis + 1, span, self.stride[axis])[..., :: self.dilation[axis]]
        a = a.movedim(1 + len(self.kernel), -1)  # (b, positions…, window…, channels)
        return a.reshape(a.shape[0], -1, self.columns)

    def weight_order(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Inputs`: channels first, as in the weight."""
        window = torch.Size(self.kernel).numel()
        return rows.unflatten(-1, (window, -1)).transpose(-1, -2).flatten(-2)


@dataclass(frozen=True)
class TokenInputs:
    """Inputs of an embedding: token t stands for the unit vector e_t, its gradient for e_t δᵀ.

    The roles are swapped: rows of the weight (V, k) belong to tokens, columns to δ.

    Attributes:
        values: tokens (n, P).
        vocabulary: V.
        columns: k, the embedding's width.
    """

    values: torch.Tensor
    vocabulary: int
    columns: int
    groups: int = 1

    @property
    def positions(self) -> int:
        """P."""
        return self.values.shape[1]

    def load(self, group: int, samples: slice) -> torch.Tensor:
        """See `Inputs`: tokens (b, P)."""
        return self.values[samples]

    def similarity(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """See `Inputs`: True where the tokens are equal."""
        return first.reshape(-1, 1) == second.reshape(1, -1)

    def own_similarity(self, loaded: torch.Tensor) -> torch.Tensor:
        """See `Inputs`: True where the tokens are equal."""
        return loaded[:, :, None] == loaded[:, None, :]

    def gradient_rows(
        self, loaded: torch.Tensor, signal: torch.Tensor, start: int, stop: int
    ) -> torch.Tensor:
        """See `Inputs`: rows are the tokens start to stop."""
        tokens = torch.arange(start, stop, device=loaded.device)
        chosen = (loaded[:, None, None, :] == tokens[:, None]).to(signal.dtype)  # (b, 1, V', P)
        return chosen @ signal  # (b, c, V', k)

    def weight_order(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Inputs`."""
        return rows


@dataclass(frozen=True)
class MatrixGradients:
    """Per-sample gradients Σ_t δ_t a_tᵀ of a matrix-shaped parameter, as their factors.

    Attributes:
        inputs: a.
        deltas: δ, (n, c, P, groups·k).
    """

    inputs: Inputs
    deltas: torch.Tensor

    @property
    def rows(self) -> int:
        """Rows of one group's weight."""
        if isinstance(self.inputs, TokenInputs):
            return self.inputs.vocabulary
        return self.width

    @property
    def width(self) -> int:
        """Width k of one group's δ."""
        return self.deltas.shape[3] // self.inputs.groups

    def signal(self, group: int, samples: slice) -> torch.Tensor:
        """The group's δ: (b, c, P, k)."""
        return self.deltas[samples, :, :, group * self.width : (group + 1) * self.width]

    def gradient_rows(self, group: int, samples: slice, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop of the group's weight gradients: (b, c, stop − start, columns)."""
        loaded = self.inputs.load(group, samples)
        return self.inputs.gradient_rows(loaded, self.signal(group, samples), start, stop)

    def numbers(self, outputs: int) -> int:
        """How many numbers these factors are for one sample and so many outputs."""
        return self.inputs.values[0].numel() + outputs * self.deltas[0, 0].numel()

    def features(self, block: int = BLOCK) -> torch.Tensor:
        """The gradients themselves, entries in the parameter's order: (n, c, p).

        Inputs are loaded about so many numbers at a time.
        """
        (n, c, positions, _), groups = self.deltas.shape, self.inputs.groups
        found = self.deltas.new_empty(n, c, groups, self.rows * self.inputs.columns)
        loaded = positions * self.inputs.columns
        for samples in spans(n, max(1, min(block, BLOCK) // loaded)):
            for group in range(groups):
                rows = self.gradient_rows(group, samples, 0, self.rows)
                found[samples, :, group] = self.inputs.weight_order(rows).flatten(2)
        return found.flatten(2)

    def without_silent_positions(self) -> "MatrixGradients":
        """The same gradients without positions where δ is zero for all samples and outputs.

        Where the outputs are those of a sequence's last token, say. Vector inputs only.
        """
        if len(self.deltas) == 0 or self.deltas[0, 0].any(1).all():
            return self  # the usual case: nothing to look for
        heard = (self.deltas != 0).any(3).any(1).any(0)
        heard[0] = True  # so that one is left
        inputs = replace(self.inputs, values=self.inputs.values[:, heard])
        return replace(self, inputs=inputs, deltas=self.deltas[:, :, heard])


@dataclass(frozen=True)
class VectorGradients:
    """Per-sample gradients of a parameter with few entries, in full.

    Attributes:
        values: (n, c, p), entries in the parameter's order.
    """

    values: torch.Tensor

    def features(self, block: int = BLOCK) -> torch.Tensor:
        """The gradients: (n, c, p)."""
        return self.values


@dataclass(frozen=True)
class BiasGradients:
    """Per-sample gradients Σ_t δ_t of a bias.

    Attributes:
        deltas: δ, (n, c, P, k).
    """

    deltas: torch.Tensor

    def features(self, block: int = BLOCK) -> torch.Tensor:
        """The gradients: (n, c, k)."""
        return self.deltas.sum(dim=2)


Gradients = MatrixGradients | VectorGradients | BiasGradients


def summed_features(uses: Sequence[Gradients], block: int = BLOCK) -> torch.Tensor:
    """Gradients of one parameter over all of its uses: (n, c, p)."""
    total = uses[0].features(block)
    for use in uses[1:]:
        total = total + use.features(block)
    return total

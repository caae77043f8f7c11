"""Inputs of matrix-shaped parameters at every position: vectors, patches of images, tokens."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch.nn import functional as F


class _ByPosition(ABC):
    """Inputs a of a matrix-shaped parameter at every position, for n samples: see `Inputs`.

    The methods here are for inputs that are loaded as vectors (b, P, d).
    """

    values: torch.Tensor

    @property
    def positions(self) -> int:
        """P."""
        return self.values.shape[1]

    @abstractmethod
    def load_groups(self, groups: slice, samples: slice) -> torch.Tensor:
        """What the methods take, for some groups, side by side: (b, P, groups, …)."""

    def load(self, group: int, samples: slice) -> torch.Tensor:
        """What the methods take, for one group: (b, P, …)."""
        return self.load_groups(slice(group, group + 1), samples)[:, :, 0]

    def similarity(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Inner products a_it·a_js of loaded inputs: (b, P, …), (b₂, P₂, …) → (b·P, b₂·P₂)."""
        return first.flatten(0, 1) @ second.flatten(0, 1).T

    def own_similarity(self, loaded: torch.Tensor) -> torch.Tensor:
        """Inner products a_it·a_is within each sample: (b, P, …) → (b, P, P)."""
        return loaded @ loaded.transpose(1, 2)

    def add_gradient_rows(
        self, out: torch.Tensor, loaded: torch.Tensor, signal: torch.Tensor, rows: slice, beta: int
    ) -> None:
        """Replace `out` by beta · out + rows of Σ_t δ_t a_tᵀ, with beta 0 or 1.

        `out` is (b, c, number of rows, columns) and contiguous, the signal δ (b, c, P, k); rows are
        units, the group's output channels or, in an embedding, tokens.
        """
        delta = signal[..., rows]  # (b, c, P, k)
        # All outputs in one product per sample, since they share the inputs; of the two memory
        # layouts, the one that needs no copy.
        if delta.stride(2) == 1:
            stacked = delta.transpose(2, 3).flatten(1, 2)  # (b, c·k, P)
        else:
            stacked = delta.transpose(1, 2).flatten(2).transpose(1, 2)
        out.flatten(1, 2).baddbmm_(stacked, loaded, beta=beta)

    def weight_order(self, rows: torch.Tensor) -> torch.Tensor:
        """Gradient rows (…, columns) with their entries in the parameter's order."""
        return rows


@dataclass(frozen=True)
class VectorInputs(_ByPosition):
    """Inputs of a linear layer at every position."""

    values: torch.Tensor  # a, (n, P, groups·d)
    groups: int = 1  # matrices side by side, each with its own inputs

    @property
    def columns(self) -> int:
        """d, the length of an input."""
        return self.values.shape[2] // self.groups

    def load_groups(self, groups: slice, samples: slice) -> torch.Tensor:
        """Inputs of some groups side by side: (b, P, groups, d)."""
        return self.values[samples].unflatten(2, (self.groups, -1))[:, :, groups]


@dataclass(frozen=True)
class PatchInputs(_ByPosition):
    """Inputs of a convolution, unfolded into one patch per output position when loaded.

    A patch's entries run over the window first and the channels last, which copies fastest. A
    sample may consist of several images.
    """

    values: torch.Tensor  # (n, images, channels, …): one axis per spatial dimension
    kernel: tuple[int, ...]  # window size per spatial dimension, as are the next three
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]  # zeros on each side
    groups: int  # groups of channels

    @property
    def positions(self) -> int:
        """P, the number of output positions of all images."""
        number = self.values.shape[1]
        for axis, size in enumerate(self.values.shape[3:]):
            span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            number *= (size + 2 * self.padding[axis] - span) // self.stride[axis] + 1
        return number

    @property
    def columns(self) -> int:
        """d, the entries of one group's patch."""
        return self.values.shape[2] // self.groups * torch.Size(self.kernel).numel()

    def load_groups(self, groups: slice, samples: slice) -> torch.Tensor:
        """Patches of some groups side by side: (b, P, groups, d)."""
        a = self.values[samples].unflatten(2, (self.groups, -1))[:, :, groups]
        images, number, channels = a.shape[1:4]
        a = a.flatten(2, 3).flatten(0, 1)
        if any(self.padding):
            a = F.pad(a, [size for size in reversed(self.padding) for _ in range(2)])
        a = a.movedim(1, -1).contiguous()  # (b·images, …, channels)
        for axis in range(len(self.kernel)):
            span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            a = a.unfold(axis + 1, span, self.stride[axis])[..., :: self.dilation[axis]]
        a = a.movedim(1 + len(self.kernel), -1)  # (b·images, positions…, window…, channels)
        window = torch.Size(self.kernel).numel()
        a = a.reshape(a.shape[0] // images, -1, window * number * channels)
        return a.unflatten(2, (window, number, channels)).transpose(2, 3).flatten(3)

    def weight_order(self, rows: torch.Tensor) -> torch.Tensor:
        """Gradient rows with channels first, as in the weight."""
        window = torch.Size(self.kernel).numel()
        return rows.unflatten(-1, (window, -1)).transpose(-1, -2).flatten(-2)


@dataclass(frozen=True)
class TokenInputs(_ByPosition):
    """Inputs of an embedding: token t stands for the unit vector e_t, so its gradient is e_t δᵀ.

    The roles are swapped: rows of the weight (V, k) belong to tokens, columns to δ.
    """

    values: torch.Tensor  # tokens (n, P)
    vocabulary: int  # V
    columns: int  # k, the embedding's width
    groups: int = 1

    def load_groups(self, groups: slice, samples: slice) -> torch.Tensor:
        """What the methods take, for the only group: tokens (b, P, 1)."""
        return self.values[samples, :, None]

    def similarity(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """True where the tokens are equal."""
        return first.reshape(-1, 1) == second.reshape(1, -1)

    def own_similarity(self, loaded: torch.Tensor) -> torch.Tensor:
        """True where the tokens are equal."""
        return loaded[:, :, None] == loaded[:, None, :]

    def add_gradient_rows(
        self, out: torch.Tensor, loaded: torch.Tensor, signal: torch.Tensor, rows: slice, beta: int
    ) -> None:
        """Replace `out` by beta · out + rows of Σ_t e_t δ_tᵀ, which are tokens."""
        tokens = torch.arange(rows.start, rows.stop, device=loaded.device)
        chosen = (loaded[:, None, :] == tokens[:, None]).to(signal.dtype)  # (b, V', P)
        found = chosen @ signal.transpose(1, 2).flatten(2)  # (b, V', c·k)
        found = found.unflatten(2, (signal.shape[1], -1)).transpose(1, 2)
        out.mul_(beta).add_(found) if beta else out.copy_(found)


Inputs = VectorInputs | PatchInputs | TokenInputs
"""Inputs of every kind. `values` are the operation's inputs, samples first; `positions` is P;
`columns` is d of one group's weight (k, d), whose entries `weight_order` puts in order; `groups` is
the number of independent parts of the weight's rows, each with its own inputs; and `load` gives
what the other methods take, (b, P, …) for b samples."""

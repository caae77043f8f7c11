"""Dropout whose masks come from an explicit random generator."""

import torch
from torch import nn


class SeededDropout(nn.Dropout):
    """Dropout with masks drawn from its own generator instead of PyTorch's global one.

    In training mode each entry is zeroed with probability p, in [0, 1), and the others are divided
    by 1 − p; in evaluation mode nothing changes. A copy of the module begins again with the first
    mask. The `seed` of the masks is drawn from the given CPU generator.

    Raises:
        ValueError: if p is not in [0, 1).
    """

    def __init__(self, p: float, generator: torch.Generator) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"p: {p} is not a probability in [0, 1).")
        super().__init__(p)
        self.seed = int(torch.randint(2**62, (), generator=generator))
        self._masks = torch.Generator().manual_seed(self.seed)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Inputs of any shape → the same shape, thinned in training mode."""
        if not self.training:
            return input
        # Drawn on the CPU, so that every device sees the same masks.
        kept = torch.rand(input.shape, generator=self._masks, dtype=torch.float64) >= self.p
        return input * kept.to(input) / (1 - self.p)

    def get_extra_state(self) -> torch.Tensor:
        """The state of the masks' generator, as part of `state_dict`."""
        return self._masks.get_state()

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Continue the masks from a state."""
        self._masks.set_state(state)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_masks"}

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._masks = torch.Generator().manual_seed(self.seed)

"""Speed Limited Optimization: every layer moves at a speed of its own, not at its gradient's.

Needs PyTorch only, and works on any model whose parameters are grouped by layer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from feature_alignment.errors import suggestion

RELAXATIONS = ("additive", "multiplicative")


class SpeedLimited(torch.optim.Optimizer):
    """Gradient descent with layerwise normalised gradients: W_ℓ ← W_ℓ − η C_ℓ ∇_ℓ / N(‖∇_ℓ‖).

    ∇_ℓ is the gradient of the loss with respect to layer ℓ, and ‖∇_ℓ‖ its Euclidean norm over all
    parameters of the layer. A parameter group is a layer; give each its speed C_ℓ. The
    denominator N is

    - additive: ‖∇_ℓ‖ + ε, which slows down near a minimum, where gradients fall below ε;
    - multiplicative: ε‖∇_ℓ‖ as printed in Appendix K, which only multiplies the speed by 1/ε; with
      ε = 1 it is the rule of Section 5.2.

    A layer whose gradient is zero has no direction, and stays where it is.

    Source: Beaglehole et al. 2024, Section 5.2; Appendix J (additive) and K (multiplicative).

    Args:
        params: parameters (one layer), or groups `{"params": [...], "speed": C}`, one per layer.
        lr: η.
        speed: C of the groups that give none.
        epsilon: ε; 0 for the additive form is the rule of Section 5.2 as well.
        relaxation: "additive" or "multiplicative".

    Raises:
        ValueError: if a number is out of range or the form is unknown.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = SpeedLimited([{"params": [w], "speed": 2.0}], lr=0.5)
        >>> w.grad = torch.tensor([30.0, -40.0])
        >>> optimizer.step()
        >>> [round(value, 3) for value in w.tolist()]
        [-0.6, 0.8]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        speed: float = 1.0,
        epsilon: float = 0.0,
        relaxation: str = "additive",
    ) -> None:
        defaults = {"lr": lr, "speed": speed, "epsilon": epsilon, "relaxation": relaxation}
        super().__init__(params, defaults)
        for group in self.param_groups:
            _check(group)

    def set_speeds(self, speeds: Sequence[float]) -> None:
        """Give every layer, a parameter group each, a new speed C_ℓ from the next step on.

        Raises:
            ValueError: if their number is not that of the groups, or one is negative.
        """
        if len(speeds) != len(self.param_groups):
            raise ValueError(
                f"speeds: {len(speeds)} for {len(self.param_groups)} layers; "
                "give one for each parameter group."
            )
        for group, speed in zip(self.param_groups, speeds, strict=True):
            _check({**group, "speed": speed})
            group["speed"] = speed

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; evaluates the closure, if there is one, and returns its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if not moved:
                continue
            norm = torch.linalg.vector_norm(
                torch.stack([torch.linalg.vector_norm(p.grad) for p in moved])
            )
            epsilon = group["epsilon"]
            size = norm + epsilon if group["relaxation"] == "additive" else norm * epsilon
            rate = group["lr"] * group["speed"]
            # Without asking the device for the norm's value: a zero gradient gives a zero step.
            factor = torch.where(norm > 0, rate / size, torch.zeros_like(norm))
            for parameter in moved:
                parameter.sub_(factor * parameter.grad)
        return loss


def adaptive_speeds(correlations: Sequence[float], s: float) -> list[float]:
    """Speeds that let the least aligned layer catch up: s for it, 1/s for every other layer.

    Source: Beaglehole et al. 2024, Appendix K (s = 20, correlations: the UC-NFC of each layer).

    Args:
        correlations: one number per layer; of equal ones the first counts as the smallest.
        s: the speed of the layer with the smallest number; above 1 for it to move faster.

    Raises:
        ValueError: if there is no layer or s is not positive.

    Example:
        >>> adaptive_speeds([0.9, 0.4, 0.8], s=20.0)
        [0.05, 20.0, 0.05]
    """
    if not correlations or not s > 0:
        raise ValueError(
            f"adaptive speeds: {len(correlations)} layers and s = {s}; "
            "there must be a layer, and s must be positive."
        )
    slowest = min(range(len(correlations)), key=correlations.__getitem__)
    return [s if layer == slowest else 1 / s for layer in range(len(correlations))]


def _check(group: dict[str, Any]) -> None:
    relaxation = group["relaxation"]
    if relaxation not in RELAXATIONS:
        raise ValueError(
            f"relaxation: {relaxation!r} is unknown; {suggestion(relaxation, RELAXATIONS)}."
        )
    if not group["lr"] > 0:
        raise ValueError(f"lr: {group['lr']} is out of range; it must be above 0.")
    if not group["speed"] >= 0:
        raise ValueError(f"speed: {group['speed']} is out of range; it must be at least 0.")
    smallest = 0.0 if relaxation == "additive" else None
    epsilon = group["epsilon"]
    if not (epsilon > 0 or epsilon == smallest):
        raise ValueError(
            f"epsilon: {epsilon} is out of range; it must be at least 0 for the additive form "
            "and above 0 for the multiplicative one."
        )

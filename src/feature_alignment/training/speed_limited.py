"""Speed Limited Optimization: each layer moves at a set speed, whatever its gradient's norm."""

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import nn

from feature_alignment.errors import check_choice, check_kind, check_known
from feature_alignment.training.errors import TrainingDivergedError

RELAXATIONS = ("additive", "multiplicative")


class SpeedLimited(torch.optim.Optimizer):
    """Gradient descent with layerwise normalised gradients: W_ℓ ← W_ℓ − η C_ℓ ∇_ℓ / N(‖∇_ℓ‖).

    ∇_ℓ is the gradient of the loss with respect to layer ℓ, and ‖∇_ℓ‖ its Euclidean norm over all
    parameters of the layer. Each parameter group is a layer with its own speed C_ℓ, see
    `groups_by_layer`. The denominator N is

    - additive: ‖∇_ℓ‖ + ε, which slows down near a minimum, where gradients fall below ε;
    - multiplicative: ε‖∇_ℓ‖ as printed in Appendix K, which only multiplies the speed by 1/ε; with
      ε = 1 it is the rule of Section 5.2.

    A layer whose gradient is zero does not move; the first time this happens, a warning is issued.
    Norms and steps of float16 and bfloat16 are computed in float32, and no norm overflows or
    underflows in any precision.

    Source: Beaglehole et al. 2024, Section 5.2; Appendix J (additive) and K (multiplicative).

    Args:
        params: parameters (one layer), or groups `{"params": [...], "speed": C}`, one per layer.
        lr: η.
        speed: C for groups without a speed.
        epsilon: ε; with 0 the additive form is the rule of Section 5.2 as well.
        relaxation: "additive" or "multiplicative".

    Raises:
        ValueError: if a number is out of range, the relaxation unknown, or no parameter given.

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

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer.

        Raises:
            ValueError: if one of its settings is out of range, or a parameter is in another layer.
        """
        _check({**self.defaults, **param_group})
        super().add_param_group({"layer": len(self.param_groups), **param_group})

    def set_speeds(self, speeds: Sequence[float]) -> None:
        """Set a new speed C_ℓ for every layer (parameter group), from the next step on.

        Raises:
            ValueError: if there is not one speed per group, or one is negative or not finite.
        """
        check_kind("speeds", speeds, Iterable, "one speed for each parameter group")
        speeds = list(speeds)
        if len(speeds) != len(self.param_groups):
            raise ValueError(
                f"speeds: {len(speeds)} for {len(self.param_groups)} layers; "
                "give one for each parameter group."
            )
        for speed in speeds:
            _check({**self.defaults, "speed": speed})  # a scheduler may keep a group's lr at 0
        for group, speed in zip(self.param_groups, speeds, strict=True):
            group["speed"] = speed

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Perform one update; evaluate the closure, if any, and return its loss.

        Raises:
            TrainingDivergedError: if a gradient is not finite; no layer is moved in this case.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found = []
        for group in self.param_groups:
            pairs = [(p, p.grad) for p in group["params"] if p.grad is not None and p.numel()]
            entries = [torch.linalg.vector_norm(gradient, math.inf) for _, gradient in pairs]
            largest = float(torch.stack(entries).max()) if pairs else 0.0
            found.append((group, pairs, largest))
            if not math.isfinite(largest):
                raise TrainingDivergedError(
                    f"training diverged: the gradient of layer {group.get('layer')!r} is not "
                    "finite; use a smaller rate or speed, or scale the loss down in float16."
                )
        for group, pairs, largest in found:
            if largest > 0:
                _move(group, pairs, largest)
            elif pairs and group["speed"] > 0 and not group.get("vanished"):
                group["vanished"] = True
                warnings.warn(
                    f"the gradient of layer {group.get('layer')!r} is zero, so it does not move; "
                    "its units may be dead, or in float16 gradients too small: scale the loss up.",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return loss


def groups_by_layer(model: nn.Module, speeds: float | Mapping[str, float]) -> list[dict[str, Any]]:
    """A parameter group for each layer (a module with its own parameters); "layer" is its name.

    A parameter shared by modules belongs to the first of them. `speeds` is C_ℓ for all layers, or a
    mapping from module names; a layer without a speed gets the optimizer's.

    Raises:
        ValueError: if it is not a module, or a speed is given for one that is not a layer.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> [(group["layer"], len(group["params"])) for group in groups_by_layer(model, 0.5)]
        [('0', 2), ('2', 2)]
    """
    check_kind("model", model, nn.Module, "a torch.nn.Module")
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        layers.setdefault(name.rpartition(".")[0], []).append(parameter)
    groups = {name: {"params": own, "layer": name} for name, own in layers.items()}
    named = speeds if isinstance(speeds, Mapping) else dict.fromkeys(layers, speeds)
    for name, speed in named.items():
        check_known(f"speeds: {name!r} has no parameters", name, layers)
        groups[name]["speed"] = speed
    return list(groups.values())


def adaptive_speeds(correlations: Sequence[float], s: float) -> list[float]:
    """Speed s for the least aligned layer (the first of equal ones) and 1/s for all others.

    Source: Beaglehole et al. 2024, Appendix K (s = 20, correlations: the UC-NFC of each layer).

    Raises:
        ValueError: if there is no layer, s is not positive and finite, or a correlation is not a
            number.
    """
    correlations = list(correlations)
    if not correlations or not 0 < s < math.inf or any(map(math.isnan, correlations)):
        raise ValueError(
            f"adaptive speeds: correlations {correlations} and s = {s}; there must be a layer, "
            "each correlation a number, and s positive and finite."
        )
    slowest = min(range(len(correlations)), key=correlations.__getitem__)
    return [s if layer == slowest else 1 / s for layer in range(len(correlations))]


def _move(
    group: dict[str, Any], pairs: list[tuple[torch.Tensor, torch.Tensor]], largest: float
) -> None:
    """One step of a layer, with its gradient in units of a power of two near its largest entry.

    These units change no digit of the step, and keep squares from overflowing or underflowing.
    """
    parameters, gradients = zip(*pairs, strict=True)
    dtypes = (g.dtype.to_real() for g in gradients)
    dtype = functools.reduce(torch.promote_types, dtypes, torch.float32)
    unit = max(2.0 ** (math.frexp(largest)[1] - 1), torch.finfo(dtype).tiny)
    scaled = [g.to(dtype.to_complex() if g.is_complex() else dtype) / unit for g in gradients]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in scaled]))
    epsilon = group["epsilon"]
    size = norm + epsilon / unit if group["relaxation"] == "additive" else norm * epsilon
    factor = group["lr"] * group["speed"] / size
    for parameter, gradient in zip(parameters, scaled, strict=True):
        parameter.sub_(factor * gradient)


def _check(group: dict[str, Any]) -> None:
    form = group["relaxation"]
    check_choice("relaxation", form, RELAXATIONS)
    for name in ("lr", "speed", "epsilon"):
        if not isinstance(group[name], Real | torch.Tensor):
            raise ValueError(f"{name}: {group[name]!r} is not a number.")
    if not 0 < group["lr"] < math.inf:
        raise ValueError(f"lr: {group['lr']} is out of range; it must be finite and above 0.")
    if not 0 <= group["speed"] < math.inf:
        raise ValueError(f"speed: {group['speed']} is out of range; it must be finite and ≥ 0.")
    epsilon = group["epsilon"]
    if not (0 < epsilon < math.inf or (epsilon == 0 and form == "additive")):
        raise ValueError(
            f"epsilon: {epsilon} is out of range; it must be finite, at least 0 for the additive "
            "form and above 0 for the multiplicative one."
        )

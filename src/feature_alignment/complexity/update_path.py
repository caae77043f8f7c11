"""Length of the path of the parameters during training, summed over all updates."""

import math
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import nn

from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.evaluation import evaluation_mode


class UpdatePath:
    """Length of the training path, Euclidean and weighted with the norm of the tangent features.

    C = Σ_t ‖δw_t‖ ‖Φ_t‖_F with ‖Φ_t‖_F² = Tr K_t, where δw_t = w_{t+1} − w_t is update t, momentum
    included, and Φ_t are the tangent features before it. Pass it to `train` as `after_update`.

    Source: Baratin et al. 2021, eq. 18 and footnote 11.

    Attributes:
        length: Σ_t ‖δw_t‖ so far, in units of the parameters.
        complexity: C so far, in units of the outputs.

    Args:
        model: the network before the first update.
        trace: Tr K, uncentred or centred, of the model on a fixed batch, called in evaluation mode.
        every: number of updates from trace to trace; above 1, C is an estimate with the last one.

    Raises:
        TypeError: if `trace` is not a function.
        ValueError: if `every` is not an integer of at least 1, or the trace is negative.
        TrainingDivergedError: if the trace is not finite.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> path = UpdatePath(layer, lambda model: 9.0)
        >>> with torch.no_grad():
        ...     _ = layer.weight.add_(2)
        >>> path(1, layer)
        >>> round(path.length, 6), round(path.complexity, 6)
        (2.0, 6.0)
    """

    def __init__(
        self, model: nn.Module, trace: Callable[[nn.Module], float], every: int = 1
    ) -> None:
        if not callable(trace):
            raise TypeError(f"trace: found {trace!r}; give a function of the model.")
        if not isinstance(every, Integral) or every < 1:
            raise ValueError(f"every: {every} updates between two traces; give 1 or more.")
        self.length, self.complexity = 0.0, 0.0
        self._trace, self._every = trace, every
        self._parameters = list(copy_parameters(model).values())
        self._features = self._feature_norm(model)

    def __call__(self, step: int, model: nn.Module) -> None:
        """Add the latest update.

        Raises:
            ValueError: if the trace is negative.
            TrainingDivergedError: if a parameter or the trace is not finite.
        """
        current = list(copy_parameters(model).values())
        pairs = zip(current, self._parameters, strict=True)
        squares = [(new.double() - old.double()).square().sum() for new, old in pairs]
        length = math.sqrt(float(torch.stack(squares).sum()))
        if not math.isfinite(length):
            raise TrainingDivergedError(f"training diverged: update {step} is not finite.")
        self.length += length
        self.complexity += length * self._features
        self._parameters = current
        if step % self._every == 0:
            self._features = self._feature_norm(model)

    def state_dict(self) -> dict[str, Any]:
        """The path so far, for a checkpoint."""
        sums = {"length": self.length, "complexity": self.complexity}
        return {**sums, "parameters": self._parameters, "features": self._features}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a path from the `state` returned by `state_dict`."""
        self.length, self.complexity = state["length"], state["complexity"]
        self._features = state["features"]
        pairs = zip(state["parameters"], self._parameters, strict=True)
        self._parameters = [saved.to(old.device) for saved, old in pairs]

    def _feature_norm(self, model: nn.Module) -> float:
        with evaluation_mode(model):
            trace = self._trace(model)
        if not math.isfinite(trace):
            raise TrainingDivergedError(
                f"training diverged: the trace of the tangent kernel is {trace}."
            )
        if trace < 0:
            raise ValueError(f"trace: {trace}; that of a kernel is not negative.")
        return math.sqrt(trace)

"""Length of the path of the parameters during training, summed over all updates."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import nn

from feature_alignment.errors import check_kind, check_whole
from feature_alignment.gradients.parameter_values import Selection, select_parameters
from feature_alignment.gradients.refused_modules import refuse_absent_values
from feature_alignment.gradients.samples import ModelInput
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.evaluation import evaluation_mode
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Row


class UpdatePath:
    """Length of the training path, Euclidean and weighted with the norm of the tangent features.

    C = Σ_t ‖δw_t‖ ‖Φ_t‖_F with ‖Φ_t‖_F² = Tr K_t, where δw_t = w_{t+1} − w_t is update t, momentum
    included, and Φ_t are the tangent features before it. Call it after every update, as
    `feature_alignment.training.loop.train` does with its argument `after_update`.

    Source: Baratin et al. 2021, eq. 18 and footnote 11.

    Attributes:
        length: Σ_t ‖δw_t‖ so far, in units of the parameters.
        complexity: C so far, in units of the outputs.

    Args:
        model: the network before the first update.
        trace: Tr K, uncentred or centred, of the model on a fixed batch, called in evaluation mode.
        every: number of updates from trace to trace; above 1, C is an estimate with the last one.
        only: the parameters whose updates count, as for `tangent_kernel`.

    Raises:
        ValueError: if `trace` is not a function, `every` is not an integer of at least 1, `only`
            selects no parameter, one has no values here, or the trace is negative.
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
        self,
        model: nn.Module,
        trace: Callable[[nn.Module], float],
        every: int = 1,
        only: Selection | None = None,
    ) -> None:
        refuse_absent_values(model)
        check_kind("trace", trace, Callable, "a function of the model")
        check_whole("every", every, 1)
        self.length, self.complexity = 0.0, 0.0
        self._trace, self._every = trace, every
        self._names = select_parameters(model, only)
        self._parameters: list[torch.Tensor] = []
        self._parameters = self._copied(model)
        self.refresh(model)

    def __call__(self, step: int, model: nn.Module) -> None:
        """Add the latest update.

        Raises:
            ValueError: if the trace is negative.
            TrainingDivergedError: if a parameter or the trace is not finite.
        """
        self.add(model)
        if not math.isfinite(self.length):
            raise TrainingDivergedError(f"training diverged: update {step} is not finite.")
        if step % self._every == 0:
            self.refresh(model)

    def add(self, model: nn.Module) -> None:
        """Add what the parameters have moved since the last call, with the trace from before."""
        current = self._copied(model)
        pairs = zip(current, self._parameters, strict=True)
        squares = [(new.double() - old.double()).square().sum() for new, old in pairs]
        length = math.sqrt(float(torch.stack(squares).sum()))
        self.length += length
        self.complexity += length * self._features
        self._parameters = current

    def refresh(self, model: nn.Module) -> None:
        """Measure the trace that the next updates are weighted with.

        Raises:
            ValueError: if the trace is negative.
            TrainingDivergedError: if the trace is not finite.
            UserError: if the trace is no number.
        """
        with evaluation_mode(model):
            trace = self._trace(model)
        trace = trace.item() if isinstance(trace, torch.Tensor) and trace.numel() == 1 else trace
        check_kind("trace: it returned", trace, Real, "a function that returns a number")
        if not math.isfinite(trace):
            raise TrainingDivergedError(
                f"training diverged: the trace of the tangent kernel is {trace}."
            )
        if trace < 0:
            raise ValueError(f"trace: {trace}; that of a kernel is not negative.")
        self._features = math.sqrt(trace)

    def state_dict(self) -> dict[str, Any]:
        """The path so far, for a checkpoint."""
        sums = {"length": self.length, "complexity": self.complexity}
        return {**sums, "parameters": self._parameters, "features": self._features}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a path from the `state` returned by `state_dict`.

        Raises:
            ValueError: if it is something else, or of a model of other shapes.
        """
        _check_state(self, state)
        if len(state["parameters"]) != len(self._parameters):
            raise ValueError(
                f"state: of a path of {len(state['parameters'])} parameters; the model has "
                f"{len(self._parameters)}."
            )
        self._check_shapes(state["parameters"])
        self.length, self.complexity = state["length"], state["complexity"]
        self._features = state["features"]
        pairs = zip(state["parameters"], self._parameters, strict=True)
        self._parameters = [saved.to(old.device) for saved, old in pairs]

    def _copied(self, model: nn.Module) -> list[torch.Tensor]:
        own = dict(model.named_parameters())
        if lost := [name for name in self._names if name not in own]:
            raise ValueError(
                f"model: its parameter {lost[0]!r} is gone, so that its path cannot be followed; "
                "prune or parametrise before the path begins."
            )
        found = [own[name].detach().clone() for name in self._names]
        self._check_shapes(found)
        return found

    def _check_shapes(self, parameters: list[torch.Tensor]) -> None:
        for name, new, old in zip(self._names, parameters, self._parameters, strict=False):
            if new.shape != old.shape:
                raise ValueError(
                    f"model: its parameter {name!r} has the shape {tuple(new.shape)}, and had "
                    f"{tuple(old.shape)} when the path began, so that its path cannot be followed."
                )


class PathProbe:
    """Length of the path so far, with Tr K of fixed samples at the measured steps.

    For the whole network: `path_length`, Σ_t ‖δw_t‖, and `path_complexity`, Σ_t ‖δw_t‖ √(Tr K) with
    the uncentred kernel at the measured step before update t, so that C is exact if every step is
    measured, else an estimate. It has to be told of every update, by `after_update`, as `Monitor`
    does; updates that are not told count as one straight line, which is reported once. The first
    report counts as one update, whatever its step.

    Source: Baratin et al. 2021, eq. 18.

    Args:
        model: the network before the first update.
        x: inputs (n, …) as for `tangent_trace`.
        split: value of the column `split`.
        only: the parameters that count, in the kernel and in its updates.
        options: `memory_budget`, `inputs` and `output` of `tangent_trace`.

    Raises:
        ValueError: as `tangent_trace`, or if `only` selects no parameter.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> probe = PathProbe(layer, torch.tensor([[3.0]]))
        >>> with torch.no_grad():
        ...     _ = layer.weight.add_(2)
        >>> [(row.metric, round(row.value, 6)) for row in probe(1, layer).rows]
        [('path_length', 2.0), ('path_complexity', 6.0)]
    """

    def __init__(
        self,
        model: nn.Module,
        x: ModelInput,
        *,
        split: str = "train",
        only: Selection | None = None,
        **options: Any,
    ) -> None:
        trace = partial(tangent_trace, x=x, only=only, **options)
        self._split, self._at = split, None
        self._gaps, self._gaps_told = False, False
        self._path = UpdatePath(model, trace, only=only)

    def after_update(self, step: int, model: nn.Module) -> None:
        """Add update `step`."""
        self._follow(step, model)

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        """The path up to `step`.

        Raises:
            TrainingDivergedError: if the trace is not finite.
        """
        if self._at is not None and step < self._at:
            what = f"the path at step {step} is not known once later updates have been reported"
            return Measurement(problems=[what])
        self._follow(step, model)
        self._path.refresh(model)
        values = {"path_length": self._path.length, "path_complexity": self._path.complexity}
        problems = []
        if self._gaps and not self._gaps_told:
            self._gaps_told = True
            problems.append(
                "the path is too short: several updates were reported as one, which counts as a "
                "straight line; report each"
            )
        rows = [Row(WHOLE_NETWORK, self._split, *pair) for pair in values.items()]
        return Measurement(rows, problems=problems)

    def state_dict(self) -> dict[str, Any]:
        """The path so far, for a checkpoint."""
        told = {"at": self._at, "gaps": self._gaps, "gaps_told": self._gaps_told}
        return {**told, "path": self._path.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` returned by `state_dict`.

        Raises:
            ValueError: if it is something else, or of a model of other shapes.
        """
        _check_state(self, state)
        self._at, self._gaps, self._gaps_told = state["at"], state["gaps"], state["gaps_told"]
        self._path.load_state_dict(state["path"])

    def _follow(self, step: int, model: nn.Module) -> None:
        self._gaps |= self._at is not None and step > self._at + 1
        self._at = step
        self._path.add(model)


def _check_state(owner: UpdatePath | PathProbe, state: Mapping[str, Any]) -> None:
    if not isinstance(state, Mapping) or not state.keys() >= owner.state_dict().keys():
        raise ValueError(f"state: not a result of `{type(owner).__name__}.state_dict`.")

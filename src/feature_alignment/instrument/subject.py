"""The model as a monitor measures it: itself or a copy in another precision, left undisturbed."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real

import torch
from torch import nn

from feature_alignment.errors import UserError, check_kind, reason
from feature_alignment.gradients.checks import told_of_inputs
from feature_alignment.gradients.model_function import ModelFunction, OutputChoice, outputs_of
from feature_alignment.gradients.module_state import Others
from feature_alignment.gradients.refused_modules import refuse_absent_values
from feature_alignment.gradients.samples import Samples
from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.training.evaluation import RUNNING, undisturbed
from feature_alignment.training.losses import Loss


class Subject:
    """What is measured of a model in training.

    Attributes:
        network: the model itself, or its copy in `dtype`, made anew by `looking`.

    Raises:
        ValueError: if a parameter has no values here.
        UserError: if `dtype` is neither None nor torch.float32 or torch.float64, or the model
            cannot be copied.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        if dtype not in (None, torch.float32, torch.float64):
            raise UserError(f"dtype: {dtype!r}; give torch.float32 or torch.float64.")
        refuse_absent_values(model)
        self._model, self._dtype = model, dtype
        self.network = self._copied()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Context for measuring; restores everything afterwards, gradients included.

        Within it the model has copies of its buffers, which forward passes may change.
        """
        with RUNNING:  # so that another thread's gradients and modes are not restored here
            kept = [(p, p.requires_grad, p.grad) for _, p in self._model.named_parameters()]
            held = [module._buffers for module in self._model.modules()]
            buffers = [(own, key, buffer) for own in held for key, buffer in own.items()]
            try:
                with (
                    torch.inference_mode(False),
                    torch.enable_grad(),
                    torch.autocast("cpu", enabled=False),
                    torch.autocast("cuda", enabled=False),
                    undisturbed(self._model),
                ):
                    # One module for all copies, by which warnings are told once.
                    if self._dtype is not None:
                        copied = self._copied()
                        self.network.__class__ = copied.__class__
                        vars(self.network).clear()
                        vars(self.network).update(vars(copied))
                    others = Others({}, {})
                    for own, key, buffer in buffers:
                        own[key] = others.of(buffer, constant=True)
                    yield
            finally:
                for own, key, buffer in buffers:
                    own[key] = buffer
                for parameter, required, gradient in kept:
                    if parameter.requires_grad != required:
                        parameter.requires_grad_(required)
                    parameter.grad = gradient

    def outputs(self, samples: Samples, output: OutputChoice | None) -> torch.Tensor:
        """The outputs of the samples, in the model's own shape.

        Raises:
            ValueError: if the model takes other inputs.
        """
        function = ModelFunction(self.network, output, flat=False)
        values = copy_parameters(self.network)
        with (
            told_of_inputs(self.network, values, samples),
            function.installed(values, False) as f,
            torch.no_grad(),
        ):
            return outputs_of(f, samples)[0]

    def _copied(self) -> nn.Module:
        # All of it, since modules, attributes and hooks can change, too.
        if self._dtype is None:
            return self._model
        try:
            copied = copy.deepcopy(self._model)
            return copied.double() if self._dtype == torch.float64 else copied.float()
        except Exception as error:  # what modules hold raises what it likes
            raise UserError(f"dtype: the model cannot be copied ({reason(error)}).") from error


def loss_of(loss: Loss, outputs: torch.Tensor, y: torch.Tensor) -> float:
    """A loss as a number.

    Raises:
        UserError: if it is not a single number, or `y` has another shape than the outputs and
            PyTorch warns of it.
        UserWarning: if `loss` raises one.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size", UserWarning)
        try:
            found = loss(outputs, y)
        except UserWarning as error:
            if not str(error).startswith("Using a target size"):
                raise
            raise UserError(
                f"loss: outputs of shape {tuple(outputs.shape)} and y of shape {tuple(y.shape)}; "
                "give y in the shape of the outputs."
            ) from error
    if isinstance(found, torch.Tensor) and found.numel() != 1:
        raise UserError(
            f"loss: it gives values of shape {tuple(found.shape)}; give their mean, as by "
            "reduction='mean'."
        )
    check_kind("loss: its result", found, torch.Tensor | Real, "a number")
    return float(found)

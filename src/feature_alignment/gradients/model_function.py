"""A model as a function of its parameters and samples, run without side effects on it."""

import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch.backends import mha
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import _get_current_dispatch_mode

from feature_alignment.gradients.module_state import (
    REGISTRIES,
    Others,
    equal_tensors,
    held_by,
    kept_tensors,
    put_back,
    without_fused_recurrence,
)
from feature_alignment.gradients.parameter_values import Parameters, moved
from feature_alignment.gradients.samples import Samples
from feature_alignment.training.evaluation import RUNNING

# Selects the output in what a model returns: a key, attribute or position, or a function.
OutputChoice = str | int | Callable[[Any], torch.Tensor]

# Ways to remove an attribute from a module, so that it is recomputed.
_Way = Callable[[dict[str, Any], str], Any]
_WAYS: tuple[_Way, ...] = (
    lambda held, key: held.update({key: None}),
    lambda held, key: held.pop(key),
    lambda held, key: held[key].clear(),
)

_INSTALLED: list[tuple["ModelFunction", Parameters, bool]] = []  # by the thread that holds RUNNING


class OutputsShapeError(ValueError):
    """The length of the outputs' first axis is not the number of samples."""


@dataclass(frozen=True)
class ModelFunction:
    """A model as f(values, samples): (n, c), with all output axes but the first flattened."""

    model: nn.Module
    output: OutputChoice | None = None  # see `OutputChoice`; None if the model returns a tensor
    flat: bool = True  # False to keep the shape of the model's outputs
    changed: frozenset[str] = frozenset()  # parameters that the forward pass changes in place
    touched: frozenset[str] = frozenset()  # and those that it overwrites, even with the same values
    without: Mapping[str, _Way] = field(default_factory=dict)  # attributes that it recomputes
    requiring: bool = False  # whether it calls autograd itself, so that all must require gradients

    @contextmanager
    def installed(
        self, values: Parameters, differentiable: bool = True
    ) -> Iterator[Callable[..., Any]]:
        """Replace all of the model's parameters by `values` in this context; yields f(samples).

        Whatever the model changes is undone. Run backward passes inside, since checkpointed modules
        run again in them. `differentiable` is whether each use of a parameter must appear in the
        autograd graph. If the very same is installed already, nothing is done.

        Raises:
            ValueError: if the model allows one backward pass only.
            RuntimeError: raised by the model itself.
        """
        with RUNNING, ExitStack() as stack:
            same = (self, values, differentiable)
            if _INSTALLED and all(map(operator.is_, _INSTALLED[-1], same)):
                yield self._run
                return
            modules = list(self.model.modules())
            stack.enter_context(put_back(modules))
            _INSTALLED.append(same)
            stack.callback(_INSTALLED.pop)
            own = dict(self.model.named_parameters())
            # The model's own parameters are kept as they are, with their types and attributes.
            theirs = all(values[name] is parameter for name, parameter in own.items())
            others = Others({} if theirs else own, values)
            for module in modules:
                wrapper = getattr(vars(module).get("forward"), "__wrapped__", None)
                if type(wrapper).__name__ == "ConvertOutputsToFp32":
                    # From accelerate, which turns autocast on.
                    module.__dict__["forward"] = module._original_forward
                for key, parameter in module._parameters.items():
                    module._parameters[key] = others.of(parameter)
                for key, buffer in module._buffers.items():
                    module._buffers[key] = others.of(buffer, constant=True)
                for key, value in held_by(module):
                    if key in self.without and kept_tensors(value):
                        self.without[key](module.__dict__, key)
                    else:
                        module.__dict__[key] = others.of(value)
            if differentiable:
                stack.enter_context(without_fused_recurrence(modules))
            stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
            stack.callback(setattr, parametrize, "_cache_enabled", parametrize._cache_enabled)
            parametrize._cache_enabled = 0
            if "torch._dynamo" in sys.modules:  # compiled code hides how parameters are used
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.callback(setattr, HigherOrderOperator, "dispatch", HigherOrderOperator.dispatch)
            HigherOrderOperator.dispatch = _as_plain_code
            try:
                yield self._run
            except RuntimeError as error:
                if "selective activation checkpoint" not in str(error):
                    raise
                raise ValueError(
                    "the model uses selective activation checkpointing, which allows one backward "
                    "pass only; call torch.utils.checkpoint.checkpoint without context_fn."
                ) from error

    def spared(self, values: Parameters) -> dict[str, torch.Tensor]:
        """The values, with copies of those that the forward pass would overwrite."""
        kept = self.changed | self.touched
        return {n: value.clone() if n in kept else value for n, value in values.items()}

    def recomputing(self, values: Parameters, samples: Samples) -> "ModelFunction":
        """The function without what modules keep from earlier calls and recompute, such as caches.

        These are attributes that, once removed in one of several ways, a forward pass fills again
        in every module that had them, with the same values for any samples and different ones for
        other parameters. All other attributes are constants, settings and states.
        """
        found, modules = self, list(self.model.modules())
        with RUNNING:
            held = {key for m in modules for key, value in vars(m).items() if kept_tensors(value)}
        for key in sorted(held.difference(REGISTRIES, self.without)):
            owners = [module for module in modules if kept_tensors(vars(module).get(key))]
            for way in _WAYS:
                tried, filled = replace(found, without={**found.without, key: way}), []
                with suppress(Exception):  # without a constant, models may raise anything
                    for at, i in ((values, 0), (values, len(samples) - 1), (moved(values), 0)):
                        with tried.installed(at, False) as run:
                            run(samples[[i, i]])
                            filled.append(
                                [kept_tensors(vars(module).get(key)) for module in owners]
                            )
                    first, last, other = filled
                    if (
                        all(first)
                        and equal_tensors(first, last)
                        and not equal_tensors(first, other)
                    ):
                        found = tried
                        break
        return found

    def refuse_kept_tensors(self, unused: Iterable[str]) -> None:
        """Refuse modules with tensors that may have been computed from their unused parameters.

        Raises:
            ValueError: if there is one; the message names it and says what to do.
        """
        for name in unused:
            owner = name.rpartition(".")[0]
            for key, value in vars(self.model.get_submodule(owner)).items():
                if key not in (*REGISTRIES, *self.without) and kept_tensors(value):
                    raise ValueError(
                        f"the outputs do not depend on parameter {name!r}, but module {owner!r} "
                        f"keeps {key!r}, which may have been computed from it; take it away so "
                        "that it is computed anew, or register it as a buffer."
                    )

    @contextmanager
    def followed(self, values: Parameters, names: Collection[str]) -> Iterator[dict[int, str]]:
        """Make forbidden uses of the model's own parameters visible in autograd graphs.

        None may occur for those in `names` or with other `values`. Yields their names by `id`.
        """
        with RUNNING, ExitStack() as stack:
            seen: dict[int, str] = {}
            for name, p in self.model.named_parameters():
                other = name in names or p.data_ptr() != values[name].data_ptr()
                if other and p.is_leaf and p.is_floating_point() and not p.is_inference():
                    seen[id(p)] = name
                    stack.callback(p.requires_grad_, p.requires_grad)
                    p.requires_grad_()
            yield seen

    def _run(self, samples: Samples) -> torch.Tensor:
        positions, keywords = samples.copied()
        f = self._chosen(self.model(*positions, **keywords))
        if f.ndim == 0 or len(f) != len(samples) or not f.numel():
            raise OutputsShapeError(
                f"the model's outputs have shape {tuple(f.shape)} for {len(samples)} samples; "
                "they must be (n,), (n, c) or (n, …)."
            )
        return f.reshape(len(f), -1) if self.flat else f

    def _chosen(self, returned: Any) -> torch.Tensor:
        choice, found = self.output, None
        if choice is None:
            found = returned
        elif callable(choice):
            found = choice(returned)
        elif isinstance(choice, str) and not isinstance(returned, Mapping):
            found = getattr(returned, choice, None)
        else:
            with suppress(KeyError, IndexError, TypeError):
                found = returned[choice]
        if not isinstance(found, torch.Tensor):
            names = _entries(returned)
            raise ValueError(
                f"the model returns a {type(returned).__name__}"
                + (f" with {', '.join(map(repr, names))}" if names else "")
                + (f", where output={choice!r} is no tensor" if choice is not None else "")
                + "; choose the output by `output`: a key, attribute or position, or a function."
            )
        return found


def outputs_of(run: Callable[..., torch.Tensor], samples: Samples) -> tuple[torch.Tensor, int]:
    """Outputs (n, c), and how often each sample was run: models may squeeze one, or fail on it.

    Raises:
        OutputsShapeError: if the outputs are not those of the samples.
        RuntimeError: raised by the model itself.
    """
    if len(samples) == 1:
        with suppress(Exception):  # with one sample, models may raise anything
            return run(samples), 1
        return run(samples[[0, 0]])[:1], 2
    return run(samples), 1


_DISPATCH = HigherOrderOperator.dispatch


def _as_plain_code(
    operator: HigherOrderOperator, /, dispatch_key: Any, *args: Any, **kwargs: Any
) -> Any:
    # Run torch.cond, scan and the like as the Python code that they stand for. Unless compiled,
    # their own backward passes miss the tensors that their functions close over.
    plain = operator.py_kernels.get(torch.DispatchKey.CompositeExplicitAutograd)
    mode = _get_current_dispatch_mode()
    if plain is None or (mode is not None and mode.is_infra_mode()):  # a compiler's
        return _DISPATCH(operator, dispatch_key, *args, **kwargs)
    if mode is not None:
        raise ValueError(
            f"the model uses {operator.name()} within a {type(mode).__name__}, where its gradients "
            "cannot be followed; leave that context, or write plain Python in forward()."
        )
    return plain(*args, **kwargs)


def _entries(returned: Any) -> Sequence[Any]:
    if isinstance(returned, Mapping):
        return list(returned)
    if isinstance(returned, list | tuple):
        return range(len(returned))
    return list(vars(returned)) if is_dataclass(returned) else []

"""A model as a function of its parameters and samples, run without leaving a trace in it."""

import operator
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.backends import mha
from torch.nn.parameter import UninitializedTensorMixin  # pyright: ignore[reportAttributeAccessIssue]
from torch.nn.utils import parametrize

from feature_alignment.errors import shortened, suggestion
from feature_alignment.gradients.samples import Samples

# The entry of what a model returns that is its output: a key, attribute or position, or a function.
OutputChoice = str | int | Callable[[Any], torch.Tensor]
Selection = str | Collection[str]
Parameters = Mapping[str, torch.Tensor]  # values by the parameter's name

_REGISTRIES = ("_parameters", "_buffers", "_modules")  # a module's own

# Ways to take an attribute away from a module, so that it is computed anew.
_Way = Callable[[dict[str, Any], str], Any]
_WAYS: tuple[_Way, ...] = (
    lambda held, key: held.update({key: None}),
    lambda held, key: held.pop(key),
    lambda held, key: held[key].clear(),
)

# Models are changed while they run on other values, so one thread at a time.
_RUNNING = threading.RLock()
_INSTALLED: list[tuple["ModelFunction", Parameters, bool]] = []  # by the thread that holds it


class OutputsShapeError(ValueError):
    """The outputs have not as many entries along their first axis as there are samples."""


@dataclass(frozen=True)
class ModelFunction:
    """f(values, samples) of a model: (n, c), every axis of the output but the first flattened."""

    model: nn.Module
    output: OutputChoice | None = None  # see `OutputChoice`; None where the model returns a tensor
    flat: bool = True  # False for outputs in the shape that the model gives them
    changed: frozenset[str] = frozenset()  # parameters that the forward pass changes in place
    touched: frozenset[str] = frozenset()  # and those that it writes to, if what they are already
    without: Mapping[str, _Way] = field(default_factory=dict)  # attributes that it computes anew
    requiring: bool = False  # whether it differentiates by parameters: all must require gradients

    @contextmanager
    def installed(
        self, values: Parameters, differentiable: bool = True
    ) -> Iterator[Callable[..., Any]]:
        """Give the model other values for all of its parameters in here; yields f of the samples.

        All that the model changes is undone. Backward passes belong in here, since checkpointed
        modules run again in them. `differentiable` is whether each use of a parameter must be seen
        in the autograd graph. Where the very same is installed already, nothing is done.
        """
        with _RUNNING, ExitStack() as stack:
            same = (self, values, differentiable)
            if _INSTALLED and all(map(operator.is_, _INSTALLED[-1], same)):
                yield self._run
                return
            modules = list(self.model.modules())
            stack.enter_context(_put_back(modules))
            _INSTALLED.append(same)
            stack.callback(_INSTALLED.pop)
            own = dict(self.model.named_parameters())
            # Its own parameters themselves stay as they are, down to their types and attributes.
            theirs = all(values[name] is parameter for name, parameter in own.items())
            others = _Others({} if theirs else own, values)
            for module in modules:
                for key, parameter in module._parameters.items():
                    module._parameters[key] = others.of(parameter)
                for key, buffer in module._buffers.items():
                    module._buffers[key] = others.of(buffer, constant=True)
                for key, value in list(module.__dict__.items()):
                    if key in self.without and _kept(value):
                        self.without[key](module.__dict__, key)
                    elif key not in _REGISTRIES:
                        module.__dict__[key] = others.of(value)
            if differentiable:
                stack.enter_context(_without_fused_recurrence(modules))
            stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
            stack.callback(setattr, parametrize, "_cache_enabled", parametrize._cache_enabled)
            parametrize._cache_enabled = 0
            if "torch._dynamo" in sys.modules:  # compiled code hides how parameters are used
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield self._run

    def spared(self, values: Parameters) -> dict[str, torch.Tensor]:
        """The values, copied where the forward pass would change them in place."""
        kept = self.changed | self.touched
        return {n: value.clone() if n in kept else value for n, value in values.items()}

    def recomputing(self, values: Parameters, samples: Samples) -> "ModelFunction":
        """The function without what modules keep of earlier calls and compute anew, such as caches.

        Those are attributes that a forward pass fills again once they are taken away, in one of
        several ways, wherever they were, alike for any samples, and otherwise for other parameters.
        What else modules hold are constants, settings and states.
        """
        found, modules = self, list(self.model.modules())
        with _RUNNING:
            held = {key for m in modules for key, value in vars(m).items() if _kept(value)}
        for key in sorted(held.difference(_REGISTRIES, self.without)):
            owners = [module for module in modules if _kept(vars(module).get(key))]
            for way in _WAYS:
                tried, filled = replace(found, without={**found.without, key: way}), []
                with suppress(Exception):  # whatever a model does without a constant
                    for at, i in ((values, 0), (values, len(samples) - 1), (moved(values), 0)):
                        with tried.installed(at, False) as run:
                            run(samples[[i, i]])
                            filled.append([_kept(vars(module).get(key)) for module in owners])
                    first, last, other = filled
                    if all(first) and _equal(first, last) and not _equal(first, other):
                        found = tried
                        break
        return found

    def refuse_kept_tensors(self, unused: Iterable[str]) -> None:
        """Refuse modules that hold what may have been computed from unused parameters of theirs.

        Raises:
            ValueError: if there is one; the message names it and says what to do.
        """
        for name in unused:
            owner = name.rpartition(".")[0]
            for key, value in vars(self.model.get_submodule(owner)).items():
                if key not in (*_REGISTRIES, *self.without) and _kept(value):
                    raise ValueError(
                        f"the outputs do not depend on parameter {name!r}, but module {owner!r} "
                        f"keeps {key!r}, which may have been computed from it; take it away so "
                        "that it is computed anew, or register it as a buffer."
                    )

    @contextmanager
    def followed(self, values: Parameters, names: Collection[str]) -> Iterator[dict[int, str]]:
        """Let the model's own parameters be seen in autograd graphs in here, if they must not be.

        Those are the named ones, and all whose `values` are others. Yields names by identity.
        """
        with _RUNNING, ExitStack() as stack:
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
    """Outputs (n, c), and how often each sample was run: some models squeeze one, or fail on it.

    Raises:
        OutputsShapeError: if the outputs are not those of the samples.
        RuntimeError: what the model itself raises.
    """
    if len(samples) == 1:
        with suppress(Exception):  # whatever a model does with one
            return run(samples), 1
        return run(samples[[0, 0]])[:1], 2
    return run(samples), 1


class _Others:
    """What takes the place of tensors in modules: parameters' values, or else copies.

    The same wherever the same tensor is held. Values have what the parameters have as attributes.
    """

    def __init__(self, parameters: Parameters, values: Parameters) -> None:
        for name, parameter in parameters.items():
            plain = type(parameter) is nn.Parameter  # others may keep what they hold as attributes
            own = vars(parameter) if plain else {}
            vars(values[name]).update(own, _is_param=True)  # as isinstance looks for it
        self._of = {id(p): values[name] for name, p in parameters.items()}
        self._of |= {id(value): value for value in values.values()}
        self._seen = set[int]()

    def of(self, value: Any, *, constant: bool = False) -> Any:
        """What takes a value's place; lists and dictionaries are changed, the same where they are.

        A tensor that is `constant` is cut off the graph that it was made by.
        """
        if isinstance(value, torch.Tensor):
            if id(value) not in self._of:  # parameters are found by the graph
                with torch.set_grad_enabled(value.grad_fn is not None and not constant):
                    self._of[id(value)] = value.clone()
            return self._of[id(value)]
        if isinstance(value, tuple) and type(value) is tuple:
            others = tuple(map(self.of, value))
            return value if all(map(operator.is_, value, others)) else others
        if isinstance(value, dict | list) and id(value) not in self._seen:
            self._seen.add(id(value))
            base = _base(value)
            for at in list(value) if isinstance(value, dict) else range(len(value)):
                if (other := self.of(value[at])) is not value[at]:
                    base.__setitem__(value, at, other)
        return value


def moved(values: Parameters) -> dict[str, torch.Tensor]:
    """Other values, of which nothing that is computed from parameters is the same."""
    generator, others = torch.Generator().manual_seed(0), dict(values)
    for name, value in values.items():
        if value.is_floating_point() and value.numel():
            noise = torch.randn(value.shape, generator=generator).to(value)
            others[name] = value + noise * (value.square().mean().sqrt() / 4 or 1)
    return others


def _equal(one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]) -> bool:
    """Whether several modules' tensors are the same in two calls."""
    pairs = [(list(a), list(b)) for a, b in zip(one, other, strict=True)]
    return all(len(a) == len(b) and all(map(torch.equal, a, b)) for a, b in pairs)


def _kept(value: Any) -> list[torch.Tensor]:
    """Tensors in an attribute that may have been computed from parameters, but are none."""
    if isinstance(value, dict | list | tuple):
        entries = value.values() if isinstance(value, dict) else value
        return [tensor for entry in entries for tensor in _kept(entry)]
    if not isinstance(value, torch.Tensor) or isinstance(value, nn.Parameter):
        return []
    return [value] * (value.is_floating_point() or value.is_complex())


def select_parameters(model: nn.Module, only: Selection | None) -> list[str]:
    """First names of the parameters to differentiate by, in the model's order.

    `only` is "trainable" for those that require a gradient, names of parameters and modules, or
    None for all. Integers and empty ones, which have no gradient, are left out.

    Raises:
        ValueError: if a name is unknown, nothing is selected, or a parameter is complex.
    """
    with _RUNNING:
        own = dict(model.named_parameters())
        known = dict(model.named_parameters(remove_duplicate=False))
    if not own:
        raise ValueError("the model has no parameters, so it has no tangent features.")
    if only is None:
        names = list(own)
    elif only == "trainable":
        names = [name for name, value in own.items() if value.requires_grad]
    else:
        modules = {name for name, _ in model.named_modules(remove_duplicate=False)}
        chosen = set()
        for want in [only] if isinstance(only, str | nn.Module) else only:
            if want not in known and want not in modules:
                names = ["trainable", *known, *modules]
                raise ValueError(f"only: no {shortened(want)}; {suggestion(want, names)}.")
            below = f"{want}." if want else ""
            chosen |= {id(v) for key, v in known.items() if key == want or key.startswith(below)}
        names = [name for name, value in own.items() if id(value) in chosen]
    for name in names:
        if own[name].is_complex():
            raise ValueError(
                f"parameter {name!r} is {own[name].dtype}, and the tangent kernel is one of real "
                "parameters; hold its real and imaginary parts (torch.view_as_complex)."
            )
    names = [name for name in names if own[name].is_floating_point() and own[name].numel()]
    if not names:
        raise ValueError(
            f"only: {only!r} selects no parameter that has a gradient; allowed: 'trainable', and "
            "names of parameters and modules."
        )
    return names


def input_dtype(model: nn.Module) -> torch.dtype | None:
    """Precision of the first parameter with a gradient, which arrays of inputs are taken to be of.

    Arrays, not tensors, since NumPy's are float64 unless somebody has thought of it.
    """
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), None)


def evaluation_point(
    model: nn.Module, parameters: Parameters | None = None
) -> dict[str, torch.Tensor]:
    """Detached values of all parameters by name: the given ones, or the model's own.

    Raises:
        ValueError: if the given names are not those of the model's parameters.
    """
    with _RUNNING:
        own = dict(model.named_parameters())
    for name, value in own.items():
        if isinstance(value, UninitializedTensorMixin):
            raise ValueError(
                f"parameter {name!r} has no shape yet; run the model once on an input before."
            )
        if value.layout != torch.strided:
            raise ValueError(f"parameter {name!r} is sparse; hold a dense one (to_dense).")
    values = own if parameters is None else parameters
    if not isinstance(values, Mapping):
        raise ValueError(
            f"parameters: a {type(values).__name__}; give values by the parameters' names, as from "
            "copy_parameters(model)."
        )
    unmatched = sorted(set(values) ^ set(own))
    if unmatched:
        raise ValueError(
            f"parameters: {unmatched[0]!r} is in only one of the given values and the model; "
            "give a value for each of the model's parameters."
        )
    for name, value in values.items():
        kind = getattr(value, "dtype", type(value).__name__)
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"parameters: {name!r} is a {kind}; give a tensor.")
        if value.shape != own[name].shape:
            raise ValueError(
                f"parameters: {name!r} has shape {tuple(value.shape)}; "
                f"the model's is {tuple(own[name].shape)}."
            )
        if value.dtype != own[name].dtype:
            raise ValueError(f"parameters: {name!r} is {kind}; the model's is {own[name].dtype}.")
    with torch.inference_mode(False):  # autograd cannot work with tensors that were made in it
        return {
            name: value.detach().clone() if value.is_inference() else value.detach()
            for name, value in values.items()
        }


def _entries(returned: Any) -> Sequence[Any]:
    if isinstance(returned, Mapping):
        return list(returned)
    if isinstance(returned, list | tuple):
        return range(len(returned))
    return list(vars(returned)) if is_dataclass(returned) else []


@contextmanager
def _put_back(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Undo what happens to the modules' attributes in here, containers and arrays included."""
    kept = [(module, dict(module.__dict__)) for module in modules]
    contents = list(_contents((v for _, own in kept for v in own.values()), set()))
    try:
        yield
    finally:
        for module, attributes in kept:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        for value, before in contents:
            _refill(value, before)


def _contents(values: Iterable[Any], seen: set[int]) -> Iterator[tuple[Any, Any]]:
    """What can be changed in place among values, and in it, each with a copy of what it holds."""
    for value in values:
        if isinstance(value, dict | list | set | deque | tuple) and id(value) not in seen:
            seen.add(id(value))
            content = list(value.items()) if isinstance(value, dict) else list(value)
            if not isinstance(value, tuple):
                yield value, content
            held = [entry for _, entry in content] if isinstance(value, dict) else content
            yield from _contents(held, seen)
        elif isinstance(value, np.ndarray) and value.flags.writeable:
            yield value, value.copy()


def _refill(value: Any, before: Any) -> None:
    """Give a container or array what it held, if it holds something else.

    By what its base does, since containers of one's own may forbid to be changed.
    """
    if isinstance(value, np.ndarray):
        if value.tobytes() != before.tobytes():
            value[...] = before
        return
    now = [*value.items()] if isinstance(value, dict) else [(0, entry) for entry in value]
    then = before if isinstance(value, dict) else [(0, entry) for entry in before]
    same = (a[0] is b[0] and a[1] is b[1] for a, b in zip(now, then, strict=False))
    if len(now) == len(then) and all(same):
        return
    base = _base(value)
    base.clear(value)
    if isinstance(value, dict):
        for key, entry in before:
            base.__setitem__(value, key, entry)
    else:
        (base.update if base is set else base.extend)(value, before)


def _base(value: Any) -> Any:
    """Python's own kind of container that a container is of."""
    kinds = (OrderedDict, dict, list, set, deque)
    return next(kind for kind in kinds if isinstance(value, kind))


@contextmanager
def _without_fused_recurrence(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Recurrent layers step by step, since the fused ones hide how their parameters are used."""
    recurrent = [module for module in modules if isinstance(module, nn.RNNBase)]
    if not recurrent:
        yield
        return
    enabled = bool(torch.backends.mkldnn.enabled), bool(torch.backends.cudnn.enabled)

    def switch(mkldnn: bool, cudnn: bool) -> None:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.cudnn.enabled = cudnn

    with ExitStack() as stack:
        stack.callback(switch, *enabled)
        for module in recurrent:
            off = module.register_forward_pre_hook(lambda *_: switch(False, False))
            on = module.register_forward_hook(lambda *_: switch(*enabled))
            stack.callback(off.remove)
            stack.callback(on.remove)
        yield

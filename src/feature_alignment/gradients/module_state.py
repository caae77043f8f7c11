"""Attributes of modules: replaced by other tensors while a model runs, and restored after."""

import operator
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.gradients.parameter_values import Parameters

REGISTRIES = ("_parameters", "_buffers", "_modules")  # a module's own
# Types of most module attributes: they contain no tensors, and are checked before every call.
_PLAIN = frozenset({type(None), bool, int, float, str})
_CONTAINERS = (dict, list, set, deque, tuple)
_OWN_KINDS = frozenset({OrderedDict, dict, list, set, deque})  # built-in: true if not empty


class Others:
    """Replacements of the tensors in modules: values for parameters, copies for others.

    The same tensor always has the same replacement. Values get the attributes of their parameters.
    """

    def __init__(self, parameters: Parameters, values: Parameters) -> None:
        for name, parameter in parameters.items():
            plain = type(parameter) is nn.Parameter  # subclasses may keep their contents there
            own = vars(parameter) if plain else {}
            vars(values[name]).update(own, _is_param=True)  # which isinstance checks
        self._of = {id(p): values[name] for name, p in parameters.items()}
        self._of |= {id(value): value for value in values.values()}
        self._seen = set[int]()

    def of(self, value: Any, *, constant: bool = False) -> Any:
        """The replacement of a value; lists and dictionaries are changed in place.

        A tensor that is `constant` is detached from the graph that computed it.
        """
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            if id(value) not in self._of:  # parameters behind it are found in its graph
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


def held_by(module: nn.Module) -> list[tuple[str, Any]]:
    """A module's attributes except its registries and those that contain nothing."""
    return [
        (key, value)
        for key, value in module.__dict__.items()
        if (kind := type(value)) not in _PLAIN
        and key not in REGISTRIES
        and (kind not in (dict, OrderedDict, list) or value)
    ]


def keeping(modules: Iterable[nn.Module]) -> frozenset[tuple[int, str]]:
    """The attributes in which `kept_tensors` finds any, by module number and attribute name."""
    return frozenset(
        (number, key)
        for number, module in enumerate(modules)
        for key, value in held_by(module)
        if kept_tensors(value)
    )


def equal_tensors(one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]) -> bool:
    """Whether several modules' tensors are equal in two calls."""
    pairs = [(list(a), list(b)) for a, b in zip(one, other, strict=True)]
    return all(len(a) == len(b) and all(map(torch.equal, a, b)) for a, b in pairs)


def kept_tensors(value: Any, within: frozenset[int] = frozenset()) -> list[torch.Tensor]:
    """Tensors in an attribute that are not parameters but may have been computed from some.

    `within` are the containers that the value is in, since one can contain itself.
    """
    if isinstance(value, dict | list | tuple):
        entries = () if id(value) in within else value
        entries = entries.values() if isinstance(entries, dict) else entries
        within |= {id(value)}
        return [tensor for entry in entries for tensor in kept_tensors(entry, within)]
    if not isinstance(value, torch.Tensor) or isinstance(value, nn.Parameter):
        return []
    return [value] * (value.is_floating_point() or value.is_complex())


@contextmanager
def put_back(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Restore the modules' attributes on exit, including the contents of containers and arrays."""
    kept = [(module, dict(module.__dict__)) for module in modules]
    values = [v for _, own in kept for v in own.values() if type(v) not in _PLAIN]
    empty = [v for v in values if type(v) in _OWN_KINDS and not v]  # most: every module has a dozen
    contents = list(_contents((v for v in values if type(v) not in _OWN_KINDS or v), set()))
    try:
        yield
    finally:
        for module, attributes in kept:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        for value in filter(None, empty):
            value.clear()
        for value, before in contents:
            _refill(value, before)


def _contents(values: Iterable[Any], seen: set[int]) -> Iterator[tuple[Any, Any]]:
    """Mutable containers and arrays in values, at any depth, each with a copy of its entries."""
    for value in values:
        if type(value) in _PLAIN:
            continue
        if isinstance(value, _CONTAINERS) and id(value) not in seen:
            seen.add(id(value))
            content = list(value.items()) if isinstance(value, dict) else list(value)
            if not isinstance(value, tuple):
                yield value, content
            if content:
                held = [entry for _, entry in content] if isinstance(value, dict) else content
                yield from _contents(held, seen)
        elif isinstance(value, np.ndarray) and value.flags.writeable:
            yield value, value.copy()


def _refill(value: Any, before: Any) -> None:
    """Restore the contents of a container or array, if they have changed.

    Uses the built-in base class's methods, since custom containers may forbid changes.
    """
    if isinstance(value, np.ndarray):
        if value.tobytes() != before.tobytes():
            value[...] = before
        return
    if not before and not [*value]:  # by its entries, as classes may define their own truth value
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
    """The built-in container type that a container derives from."""
    return next(k for k in (OrderedDict, dict, list, set, deque) if isinstance(value, k))


@contextmanager
def without_fused_recurrence(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Run recurrent layers step by step, since fused ones hide how their parameters are used."""
    recurrent = [module for module in modules if isinstance(module, nn.RNNBase)]
    if not recurrent:
        yield
        return
    enabled = bool(torch.backends.mkldnn.enabled), bool(torch.backends.cudnn.enabled)

    def switch(mkldnn: bool, cudnn: bool) -> None:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch._C._set_cudnn_enabled(cudnn)

    with ExitStack() as stack:
        stack.callback(switch, *enabled)
        for module in recurrent:
            off = module.register_forward_pre_hook(lambda *_: switch(False, False))
            on = module.register_forward_hook(lambda *_: switch(*enabled))
            stack.callback(off.remove)
            stack.callback(on.remove)
        yield

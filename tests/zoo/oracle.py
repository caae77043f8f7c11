"""The tangent kernel by its definition: each sample alone, one backward pass for each output."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from feature_alignment.determinism import torch_stream


def take(x, samples):
    """Some samples of a tensor, an array, or a collection of them."""
    if isinstance(x, Mapping):
        return {name: take(value, samples) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(take(value, samples) for value in x)
    return x[samples] if isinstance(x, torch.Tensor | np.ndarray) and x.ndim else x


def samples_of(x):
    """n."""
    if isinstance(x, Mapping | tuple | list):
        entries = x.values() if isinstance(x, Mapping) else x
        return next(len(value) for value in entries if isinstance(value, torch.Tensor | np.ndarray))
    return len(x)


def call(model, x):
    """What the model returns for a tensor, positional or keyword inputs."""
    if isinstance(x, Mapping):
        return model(**x)
    if isinstance(x, np.ndarray):
        x = torch.from_numpy(x)
    return model(*x) if isinstance(x, tuple | list) else model(x)


@contextlib.contextmanager
def differentiable(model):
    """The model with all parameters requiring gradients, as they count whether or not they do."""
    flags = {p: p.requires_grad for p in model.parameters()}
    try:
        for p in flags:
            p.requires_grad_(p.is_floating_point() or p.is_complex())
            p.grad = None
        yield
    finally:
        for p, flag in flags.items():
            p.grad = None
            p.requires_grad_(flag)


@contextlib.contextmanager
def sound_batch_norm():
    """Batch normalisation in evaluation by its formula.

    PyTorch 2.15 on CPUs gives a wrong gradient, without a word, for one image whose gradient comes
    back transposed, as it does from `bn(x).flatten(2).transpose(1, 2)`.
    """

    def batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        if training or mean is None:
            return native(x, mean, var, weight, bias, training, momentum, eps)
        shape = (1, -1, *(1,) * (x.ndim - 2))
        found = (x - mean.view(shape)) / (var + eps).sqrt().view(shape)
        found = found if weight is None else found * weight.view(shape)
        return found if bias is None else found + bias.view(shape)

    native = functional.batch_norm
    with mock.patch.object(functional, "batch_norm", batch_norm):
        yield


def copied(x):
    """A copy of the inputs, since models may change them in place."""
    if isinstance(x, Mapping):
        return {name: copied(value) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(map(copied, x))
    return x.clone() if isinstance(x, torch.Tensor) else x


def jacobian(model, x, pick=lambda f: f, run=call):
    """∂f_y(x_i)/∂w by the parameter's first name: (n, c, numel) each.

    Gradients are taken with `backward`, which re-entrant checkpoints need.
    """
    named = dict(model.named_parameters())
    rows = {name: [] for name in named}
    with differentiable(model), sound_batch_norm(), torch.enable_grad():
        for i in range(samples_of(x)):
            f = pick(run(model, copied(take(x, slice(i, i + 1))))).flatten()
            found = {name: [] for name in named}
            for output in f:
                if output.requires_grad:
                    output.backward(retain_graph=True)
                for name, p in named.items():
                    gradient = torch.zeros_like(p) if p.grad is None else p.grad.to_dense()
                    found[name].append(gradient.detach().flatten().double())
                    p.grad = None
            for name, gradients in found.items():
                rows[name].append(torch.stack(gradients))
    return {name: torch.stack(values) for name, values in rows.items()}


def grams(rows, columns=None):
    """Gram matrices (n·c, n₂·c) by layer of Jacobians from `jacobian`."""
    columns = rows if columns is None else columns
    layers: dict[str, Any] = {}
    for name, value in rows.items():
        gram = value.flatten(0, 1) @ columns[name].flatten(0, 1).T
        layer = name.rpartition(".")[0]
        layers[layer] = layers.get(layer, 0) + gram
    return layers


class Perturbed:
    """One forward pass in which a zero is added to what each `nn.Linear` and `nn.Conv2d` returns.

    Attributes:
        zeros: by layer, those of its calls.
        f: the outputs.
    """

    def __init__(self, model, x):
        self.zeros = {}
        handles = [
            module.register_forward_hook(partial(self._add, name), prepend=True)
            for name, module in measured_layers(model).items()
        ]
        with torch.enable_grad():
            self.f = call(model, copied(x))
        for handle in handles:
            handle.remove()

    def _add(self, name, module, arguments, output):
        zero = torch.zeros_like(output, requires_grad=True)
        if (output + zero).requires_grad:  # not in a re-entrant checkpoint, which runs again later
            self.zeros.setdefault(name, []).append(zero)
        return output + zero

    def shapes(self):
        """Lengths of the first axis in all calls, by layer."""
        return {name: [len(zero) for zero in zeros] for name, zeros in self.zeros.items()}

    def deltas(self, layers):
        """∂f_y/∂h of all calls by layer, outputs and positions as rows."""
        found = {name: [] for name in self.zeros}
        for output in self.f.flatten():
            output.backward(retain_graph=True)
            for name, zeros in self.zeros.items():
                for zero in zeros:
                    delta = torch.zeros_like(zero) if zero.grad is None else zero.grad
                    if isinstance(layers[name], nn.Conv2d) and delta.ndim == 4:
                        delta = delta.movedim(1, 3)
                    found[name].append(delta.reshape(-1, delta.shape[-1]).double())
                    zero.grad = None
        return {name: torch.cat(rows) for name, rows in found.items()}


def measured_layers(model):
    """The layers that have a covariance."""
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear or (type(module) is nn.Conv2d and module.groups == 1)
    }


def covariances(model, x):
    """K = 1/(n·P) Σ δᵀδ of each layer that is called, each sample alone.

    Returns:
        By layer: K, P, and whether the layer is plain: called once, with the samples along the
        first axis, and a weight of its own.
    """
    n, layers = samples_of(x), measured_layers(model)
    owners = Counter(
        id(layer.weight)
        for _, layer in model.named_modules(remove_duplicate=False)
        if type(layer) in (nn.Linear, nn.Conv2d)
    )
    with sound_batch_norm(), differentiable(model):  # in checkpoints' backward passes, too
        alone = [Perturbed(model, take(x, slice(i, i + 1))) for i in range(n)]
        together = Perturbed(model, x).shapes()
        deltas = [sample.deltas(layers) for sample in alone]
    c = alone[0].f.numel()
    found = {}
    for name, calls in alone[0].shapes().items():
        rows = torch.cat([sample[name] for sample in deltas])
        layer = layers[name]
        own = isinstance(layer.weight, nn.Parameter) and owners[id(layer.weight)] == 1
        plain = calls == [1] and together[name] == [n] and own
        found[name] = rows.T @ rows / (len(rows) / c), len(rows) // (n * c), plain
    return found


@dataclass
class Case:
    """A model, its inputs, and what is true of them.

    Attributes:
        build: makes the model, the same one each time.
        x: inputs of n samples.
        x2: inputs of the kernel's columns.
        tolerance: relative error of the kernel; above that of double precision for models that
            compute in single precision inside.
    """

    build: Callable[[], nn.Module]
    x: Any
    x2: Any
    tolerance: float = 1e-9

    @cached_property
    def model(self):
        """The model that is measured; the oracle has another, equal one."""
        return self.build()

    @cached_property
    def rows(self):
        """The Jacobian at x."""
        return jacobian(self.build(), self.x)

    @cached_property
    def columns(self):
        """The Jacobian at x2."""
        return jacobian(self.build(), self.x2)

    @property
    def matrix(self):
        """The whole Jacobian at x, (n·c, p)."""
        return torch.cat(list(self.rows.values()), 2).flatten(0, 1)


def prepared(build, seed=0, spread=0.1):
    """The model in double precision and evaluation mode, no parameter of it where it started."""
    torch.manual_seed(seed)
    model = build().double()
    generator = torch_stream(seed, "zoo")

    def noise(value):
        return torch.randn(value.shape, generator=generator, dtype=value.dtype)

    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point():
                p.add_(noise(p), alpha=spread)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(noise(buffer), alpha=spread)
            if name.endswith("running_var"):
                buffer.mul_(torch.exp(spread * noise(buffer)))
    return model.eval()


def fingerprint(model):
    """All that a measurement must leave as it was, to the last bit."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    return {
        "tensors": [(name, id(value), value.detach().clone()) for name, value in named],
        "flags": [(value.requires_grad, value.grad is None) for _, value in named],
        "training": [module.training for module in model.modules()],
        "hooks": [
            (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
            for m in model.modules()
        ],
        "attributes": [
            {key: repr(value) for key, value in vars(m).items() if key[0] != "_"}
            for m in model.modules()
        ],
    }


def assert_unchanged(before, model):
    """Whether the model has the fingerprint that it had."""
    after = fingerprint(model)
    assert [t[:2] for t in after["tensors"]] == [t[:2] for t in before["tensors"]]
    for (name, _, new), (_, _, old) in zip(after["tensors"], before["tensors"], strict=True):
        assert torch.equal(new.nan_to_num(), old.nan_to_num()), f"{name} has changed"
    for key in ("flags", "training", "hooks", "attributes"):
        assert after[key] == before[key], key


def assert_grams(found, expected, tolerance=1e-9):
    """Whether a `TangentKernel` is the expected one, by layer and in total."""
    total = sum(expected.values())
    assert set(found.layers) == set(expected)
    rounding = 1e-13 * total.norm()  # of layers without any influence but rounding errors
    for layer, gram in (found.layers | {"total": found.total}).items():
        wanted = expected.get(layer, total)
        assert gram.shape == wanted.shape, f"{layer}: {gram.shape}, not {wanted.shape}"
        error = (gram.double() - wanted).norm()
        assert error <= tolerance * wanted.norm() + rounding, (
            f"{layer}: error {error:.2g} of {wanted.norm():.2g}"
        )

"""Trace and Frobenius norm of the tangent kernel without the kernel.

`tangent_trace` is what a complexity measure can afford at every step of training: it forms neither
the kernel (n·c × n·c) nor the features (n·c × p).
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.kernels.forward_record import (
    one_hot_cotangents,
    record_forward,
    require_independent_samples,
)
from feature_alignment.kernels.tangent import tangent_kernel


def tangent_trace(model: nn.Module, x: torch.Tensor, chunk_size: int = 50) -> float:
    """Trace of the tangent kernel, Tr K = ‖Φ_w‖_F² = Σ_i Σ_y ‖∇_w f_y(x_i)‖².

    The complexity measure sums ‖δw_t‖ · √(Tr K_t). One forward and c backward passes, and for
    parameters without a closed form c more. For c = 10 on one CPU thread that took as long as 3
    to 7 training steps on the same samples (MLP, VGG19), 13 with batch norm (ResNet18): see
    benchmarks/tangent_trace.csv.

    Source: baratin2021, eq. 17 (‖Φ_t‖_F).

    Args:
        model: any model in evaluation mode; outputs (n, c) or (n, …), then every entry is an
            output.
        x: inputs (n, …), numbers or tokens.
        chunk_size: samples at a time; bounds the memory, does not change the result.

    Returns:
        Tr K, summed in float64, in units of f² per parameter².

    Raises:
        ValueError: if samples are not independent in the model, or the chunk size is below 1.

    Example:
        >>> tangent_trace(nn.Linear(2, 3), torch.tensor([[3.0, 4.0]]))  # 3 · (3² + 4² + 1)
        78.0
    """
    return math.fsum(layer_tangent_traces(model, x, chunk_size).values())


def layer_tangent_traces(
    model: nn.Module, x: torch.Tensor, chunk_size: int = 50
) -> dict[str, float]:
    """Trace Tr K^ℓ of each module's own tangent kernel; they add up to Tr K.

    Linear layers on (n, …, d) and plain 2-D convolutions, called once and using their parameters
    alone (checked on the first sample by its gradients), have closed forms from inputs a and
    gradients δ at P positions, whichever is cheaper: Σ_{t,s} (a_t·a_s + 1)(δ_t·δ_s), or
    ‖Σ_t δ_t a_tᵀ‖² + ‖Σ_t δ_t‖², the 1 and the second term for a bias. Every other parameter
    takes the way through `torch.func`: per-sample gradients of these parameters alone, of which
    only the norms are kept.

    Source: baratin2021, Section 3.3 (sum over layers).

    Args:
        model: see `tangent_trace`.
        x: inputs (n, …).
        chunk_size: samples at a time.

    Returns:
        Traces by module name, in the order of `model.named_modules()`; a shared parameter counts
        with the first module that has it.

    Raises:
        ValueError: as `tangent_trace`.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size: {chunk_size}; it must be at least 1.")
    require_independent_samples(model)
    candidates = _used_by_their_calls(model, x[:1], _closed_form_layers(model))
    owners = {  # of each parameter, without duplicates
        name: name.rpartition(".")[0] for name, _ in model.named_parameters()
    }
    traces = dict.fromkeys(owners.values(), 0.0)
    for chunk in x.split(chunk_size):
        record = record_forward(model, chunk, candidates)
        norms = {
            name: _GradientNorm(candidates[name], a, record.outputs.shape[1])
            for name, a in record.inputs.items()
        }
        for gradients in record.gradients(one_hot_cotangents(record.outputs)):
            for name, delta in gradients.items():
                traces[name] += norms[name].squared(delta)
        others = [
            name
            for name, owner in owners.items()
            if owner not in norms and record.calls.get(owner) != 0
        ]
        del record, norms  # the graph, before another one is built
        for name, squared in _squared_norms(model, chunk, others).items():
            traces[owners[name]] += squared
    return traces


def tangent_frobenius_norm(model: nn.Module, x: torch.Tensor, block_size: int = 25) -> float:
    """Frobenius norm ‖K‖_F of the tangent kernel, by blocks of samples that are not kept.

    Holds (block_size · c)² entries of each layer's kernel instead of (n·c)². The signals of the
    layers are computed once for each block: about n/(2·block_size) times in all.

    Source: baratin2021, eq. 7 (the normalisation).

    Args:
        model: see `tangent_kernel` for the models that are supported.
        x: inputs (n, …).
        block_size: samples of a block's rows and columns.

    Returns:
        ‖K‖_F, summed in float64.

    Raises:
        ValueError: if the model is not supported or the block size is below 1.

    Example:
        >>> x = torch.tensor([[3.0], [4.0]])
        >>> tangent_frobenius_norm(nn.Linear(1, 1, bias=False), x)  # K = x xᵀ
        25.0
    """
    if block_size < 1:
        raise ValueError(f"block_size: {block_size}; it must be at least 1.")
    blocks = x.split(block_size)
    total = 0.0
    for i, rows in enumerate(blocks):
        for j, columns in enumerate(blocks[: i + 1]):
            block = tangent_kernel(model, rows, None if i == j else columns).total
            # A block off the diagonal stands for its mirror image, too.
            total += (1 if i == j else 2) * float(block.double().square().sum())
    return math.sqrt(total)


class _GradientNorm:
    """Σ_i ‖∂f_y(x_i)/∂(W, b)‖² of one layer as a function of δ, for all outputs y in turn."""

    def __init__(self, layer: nn.Linear | nn.Conv2d, inputs: torch.Tensor, outputs: int) -> None:
        self._has_bias = layer.bias is not None
        self._layer = layer
        a = _positions(layer, inputs)  # (n, P, d)
        (_, positions, d), k = a.shape, layer.weight.shape[0]
        # Products for each output; the inputs' Gram matrix serves all outputs.
        by_pairs = positions**2 * (d / outputs + k)
        by_gradients = positions * d * k
        self._pairs = self._inputs = None
        if by_pairs <= by_gradients:
            self._pairs = a @ a.transpose(1, 2) + int(self._has_bias)  # (n, P, P)
        else:
            self._inputs = a

    def squared(self, gradient: torch.Tensor) -> float:
        """The sum for the gradient of one output by the layer's own: (n, …, k) or (n, k, …)."""
        delta = _delta_rows(self._layer, gradient)  # (n, P, k)
        if self._pairs is not None:
            return _sum(self._pairs * (delta @ delta.transpose(1, 2)))
        weight = _sum((delta.transpose(1, 2) @ self._inputs).square())  # (n, k, d)
        return weight + (_sum(delta.sum(1).square()) if self._has_bias else 0.0)


def _positions(layer: nn.Linear | nn.Conv2d, inputs: torch.Tensor) -> torch.Tensor:
    """What one application of the weight sees, at every position: (n, P, d)."""
    if isinstance(layer, nn.Linear):
        return inputs.reshape(len(inputs), -1, inputs.shape[-1])
    patches = F.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return patches.transpose(1, 2)


def _delta_rows(layer: nn.Linear | nn.Conv2d, gradient: torch.Tensor) -> torch.Tensor:
    """δ at every position: (n, …, k) of a linear layer, (n, k, …) of a convolution → (n, P, k)."""
    if isinstance(layer, nn.Conv2d):
        return gradient.flatten(2).transpose(1, 2)
    return gradient.reshape(len(gradient), -1, gradient.shape[-1])


def _closed_form_layers(model: nn.Module) -> dict[str, nn.Module]:
    owners: dict[nn.Parameter, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[parameter] = owners.get(parameter, 0) + 1
    return {
        name: module
        for name, module in model.named_modules()
        if (type(module) is nn.Linear or _is_plain_convolution(module))
        and {key for key, _ in module.named_parameters()} in ({"weight"}, {"weight", "bias"})
        and all(owners[parameter] == 1 for parameter in module.parameters())
    }


def _is_plain_convolution(module: nn.Module) -> bool:
    return type(module) is nn.Conv2d and module.groups == 1 and not isinstance(module.padding, str)


def _used_by_their_calls(
    model: nn.Module, x: torch.Tensor, layers: dict[str, nn.Module]
) -> dict[str, nn.Module]:
    """The layers whose weight's gradient is the one that its call explains, δᵀa.

    It is another where the model uses the weight a second time, past the layer's call.
    """
    record = record_forward(model, x, layers)
    if not record.preactivations:
        return layers
    cotangent = torch.linspace(1, 2, record.outputs.shape[1]).to(record.outputs)[None]
    deltas = next(record.gradients(iter([cotangent])))
    keys = [f"{name}.weight" if name else "weight" for name in deltas]
    found = torch.autograd.grad(
        record.outputs,
        [record.parameters[key] for key in keys],
        grad_outputs=cotangent,
        materialize_grads=True,
    )
    explained = {name: layer for name, layer in layers.items() if name not in deltas}
    for (name, delta), gradient in zip(deltas.items(), found, strict=True):
        a, delta = _positions(layers[name], record.inputs[name]), _delta_rows(layers[name], delta)
        expected = (delta.transpose(1, 2) @ a).sum(0).reshape(gradient.shape)
        if (gradient - expected).norm() <= 1e-3 * expected.norm():
            explained[name] = layers[name]
    return explained


def _squared_norms(model: nn.Module, x: torch.Tensor, names: list[str]) -> dict[str, float]:
    """Σ_i Σ_y ‖∂f_y(x_i)/∂w‖² of the named parameters, for any model, by `torch.func`."""
    if not names:
        return {}
    own = {name: parameter.detach() for name, parameter in model.named_parameters()}
    chosen = {name: own[name] for name in names}

    def one_sample(sample: torch.Tensor) -> dict[str, torch.Tensor]:
        def outputs(values: dict[str, torch.Tensor]) -> torch.Tensor:
            return torch.func.functional_call(model, own | values, (sample[None],)).flatten()

        f, pull_back = torch.func.vjp(outputs, chosen)

        def one_output(cotangent: torch.Tensor) -> dict[str, torch.Tensor]:
            return {name: g.square().sum() for name, g in pull_back(cotangent)[0].items()}

        basis = torch.eye(len(f), dtype=f.dtype, device=f.device)
        # One output at a time, so that a chunk never holds c gradients for each sample.
        return torch.func.vmap(one_output, chunk_size=1)(basis)

    found = torch.func.vmap(one_sample)(x)  # by name (n, c)
    return {name: _sum(squares) for name, squares in found.items()}


def _sum(values: torch.Tensor) -> float:
    return float(values.sum(dtype=torch.float64))

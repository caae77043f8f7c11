"""The path norm of a network, and which networks have one."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd
from torch.nn.utils.parametrize import is_parametrized

from feature_alignment.complexity.measures import NORMALISATIONS
from feature_alignment.determinism import torch_stream
from feature_alignment.errors import reason, shortened
from feature_alignment.gradients.graph import Graph
from feature_alignment.gradients.refused_modules import label_of, refuse_absent_values
from feature_alignment.training.evaluation import undisturbed

_WITHOUT_PATHS = (*NORMALISATIONS, _AvgPoolNd, _AdaptiveAvgPoolNd)
# Of operations that multiply, by autograd's names: which inputs are factors.
_FACTORS: dict[str, slice] = {
    **dict.fromkeys(("Bmm", "Convolution", "Div", "Dot", "Mm", "Mul", "Mv"), slice(2)),
    **dict.fromkeys(("Addbmm", "Addcmul", "Addmm", "Addmv", "Baddbmm"), slice(1, 3)),
}
_SUBTRACTS = "path_norm: the model subtracts, so its outputs are not sums over paths"
_ROOTS = ("Cdist", "Hypot", "LinalgSvd", "LinalgVectorNorm", "Norm", "Rsqrt", "Sqrt")
_AVERAGES = ("Avg", "BatchNorm", "GridSampler", "Lerp", "Mean")
# What may be done to weights before they meet the inputs: to choose, multiply and add, as paths do.
_OF_WEIGHTS = {
    *_FACTORS,
    *("Abs", "Add", "Alias", "AsStrided", "Cat", "Clone", "ConstantPadNd", "Diag", "DiagEmbed"),
    *("Diagonal", "Embedding", "Expand", "Flip", "Gather", "Index", "IndexSelect", "Permute"),
    *("Pow", "Repeat", "ReshapeAlias", "Roll", "Select", "Slice", "Split", "SplitWithSizes"),
    *("Squeeze", "Stack", "Sum", "T", "ToCopy", "Transpose", "Tril", "Triu", "Unbind", "Unfold"),
    *("UnsafeView", "Unsqueeze", "View"),
}
_SMALLER = ("Amin", "Cummin", "Fmin", "Kthvalue", "Median", "Min", "Minimum", "Nanmedian")


@torch.inference_mode(False)
def path_norm(model: nn.Module, input_shape: Sequence[int]) -> float:
    """ℓ2 path norm: the root of the sum over paths of the product of their squared weights.

    Paths lead from an input or a bias to an output. For ReLU networks the sum is that of the
    outputs at an input of ones, of shape `input_shape`, of the network with squared parameters, in
    evaluation mode. A max pool passes on the largest of its inputs' sums. Leaky ReLUs count as
    ReLUs: their slopes below 0 are no part of the norm.

    Source: Neyshabur, Salakhutdinov and Srebro 2015, arXiv:1506.02617.

    Raises:
        ValueError: if there is no parameter or the model takes no inputs of that shape, or returns
            no tensor; if it normalises, averages, subtracts, takes roots or minima or multiplies by
            a constant, so that outputs of squared parameters are not the sum, or computes weights
            from other parameters; if the network without biases (parameters with one axis) is not
            homogeneous, as with smooth or saturating activations; or if the norm is not finite, or
            a parameter has no values here.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> with torch.no_grad():
        ...     _ = layer.weight.copy_(torch.tensor([[3.0, -4.0]]))
        >>> path_norm(layer, (2,))
        5.0
    """
    refuse_absent_values(model)
    for name, module in model.named_modules():
        hooks = module._forward_pre_hooks.values()  # weight_norm and spectral_norm compute weights
        made = is_parametrized(module) or any(hasattr(hook, "compute_weight") for hook in hooks)
        if made or isinstance(module, _WITHOUT_PATHS):
            raise ValueError(
                f"path_norm: {label_of(name, module)} normalises, averages, or makes its weights "
                "of other parameters; the norm is that of plain weights and ReLU (put nn.Identity "
                "in place of a pool that changes nothing)."
            )
    squared = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        for parameter in squared.parameters():
            parameter.square_()
    moving = [p.requires_grad_() for p in squared.parameters() if p.is_floating_point()]
    if not moving or any(parameter.is_complex() for parameter in squared.parameters()):
        raise ValueError("model: its parameters are none, or complex; give a network with weights.")
    with torch.enable_grad(), undisturbed(squared):
        try:
            ones = torch.ones(1, *input_shape).to(moving[0]).requires_grad_()
            outputs = squared(ones)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"input_shape: {shortened(input_shape)}; give the shape of one input that the "
                f"model takes, without the axis of samples ({reason(error)})."
            ) from error
        if not isinstance(outputs, torch.Tensor):
            found = type(outputs).__name__
            raise ValueError(f"path_norm: the model returns a {found}; wrap it to return a tensor.")
        outputs = outputs.sum()
        slopes = torch.autograd.grad(outputs, moving, allow_unused=True, retain_graph=True)
    total = float(outputs.detach())
    if not math.isfinite(total):
        raise ValueError("path_norm: the sum over paths is not finite.")
    if any(slope is not None and (slope < 0).any() for slope in slopes):
        raise ValueError(f"{_SUBTRACTS}: an output falls as a squared parameter rises.")
    graph = Graph(outputs, {"inputs": ones})
    _refuse_functions_of_weights(graph)
    _refuse_constant_factors(graph)
    if not _is_homogeneous(model, ones):
        raise ValueError(
            "path_norm: with its biases (parameters of one axis) at 0, the network's outputs are "
            "not proportional to the size of its inputs; the norm is that of networks with ReLU."
        )
    return math.sqrt(total)


def _refuse_functions_of_weights(graph: Graph) -> None:
    for number, name in enumerate(graph.names):
        kind = name.partition("Backward")[0]
        if kind == name or kind in _OF_WEIGHTS:  # a leaf, or allowed
            continue
        if "inputs" not in graph.leaves_below(number)[0]:
            raise ValueError(
                f"path_norm: the model computes weights from other parameters ({kind}); the norm "
                "is that of plain weights."
            )


def _refuse_constant_factors(graph: Graph) -> None:
    # The sum has their squares, as by the NTK parametrisation; zeros and ones are their own.
    for number, (node, inputs) in enumerate(zip(graph.nodes, graph.inputs, strict=True)):
        kind = graph.names[number].partition("Backward")[0]
        factors = inputs[_FACTORS.get(kind, slice(0))]
        scaled = ("alpha", "beta") if factors or kind == "Add" else ()
        constants: list[Any] = [getattr(node, f"_saved_{key}", 1) for key in scaled]
        if None in factors:
            saved = "other" if factors[1] is None else "self"
            constants.append(getattr(node, f"_saved_{saved}", 2) if kind in ("Mul", "Div") else 2)
        plain = all((torch.as_tensor(c) == torch.as_tensor(c) ** 2).all() for c in constants)
        if kind in ("Neg", "Rsub", "Sub"):
            raise ValueError(f"{_SUBTRACTS} ({kind}).")
        if kind in _ROOTS or (kind == "Pow" and (torch.as_tensor(node._saved_exponent) % 1).any()):
            raise ValueError(
                f"path_norm: the model takes a root or a norm ({kind}), so its outputs are not "
                "sums over paths."
            )
        if kind in _SMALLER:
            raise ValueError(
                f"path_norm: the model takes another than the largest of several sums ({kind}), of "
                "which paths there is no norm."
            )
        averaged = any(word in kind for word in _AVERAGES)
        averaged |= kind.startswith("Upsample") and not kind.startswith("UpsampleNearest")
        if kind == "Mean" and inputs[0]:  # which may be of one number each
            averaged = graph.shape(inputs[0]).numel() > graph.shape((number, 0)).numel()
        if averaged or not plain:
            raise ValueError(
                f"path_norm: the model averages or multiplies by a constant ({kind}), whose square "
                "the norm has; put it into the weights."
            )


def _is_homogeneous(model: nn.Module, like: torch.Tensor) -> bool:
    """Whether f(ax) = a f(x) for a > 0 without biases, at a few random x of both signs."""
    free = copy.deepcopy(model).double().eval()
    generator = torch_stream(0, "homogeneous")
    with torch.no_grad(), undisturbed(free):
        for parameter in free.parameters():
            if parameter.ndim < 2:
                parameter.zero_()
        x = torch.randn(8, *like.shape[1:], generator=generator).to(like)
        small, large = free(x), free(1024 * x)
    return torch.allclose(large, 1024 * small, rtol=1e-6, atol=1e-9 * float(large.abs().max()))

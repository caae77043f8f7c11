"""Feature covariance of the pre-activation tangent kernel, NFM and AGOP of every layer at once.

One forward and c backward passes give δ = ∂f_y/∂h_ℓ of all layers; only δᵀδ is kept. Further passes
over at most eight samples check that samples do not mix.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.errors import check_known, check_whole
from feature_alignment.gradients.capture import (
    backpropagate,
    one_hot_cotangents,
    random_sign_cotangents,
    recorded,
)
from feature_alignment.gradients.capture_plan import summed_in
from feature_alignment.gradients.checks import checked_few, rounding
from feature_alignment.gradients.model_function import ModelFunction, OutputChoice
from feature_alignment.gradients.parameter_values import Parameters, evaluation_point, input_like
from feature_alignment.gradients.refused_modules import refuse_dependent_samples
from feature_alignment.gradients.samples import ModelInput, Samples, as_samples
from feature_alignment.layer_features.covariance_sums import CovarianceSums
from feature_alignment.layer_features.layer_matrices import FeatureMatrices, Features
from feature_alignment.layer_features.layers import MatrixUse, layers_of, owners_of_matrices
from feature_alignment.training.evaluation import evaluation_mode

_NEGLIGIBLE = 1e-6  # share of the largest covariance below which one is rounding error


def layer_feature_matrices(
    model: nn.Module,
    x: ModelInput,
    layers: Sequence[str] | None = None,
    initial: Parameters | None = None,
    chunk_size: int = 500,
    output_samples: int | None = None,
    generator: torch.Generator | None = None,
    *,
    centre_tangents: bool = False,
    inputs: str | Collection[str | int] | None = None,
    output: OutputChoice | None = None,
) -> dict[str, FeatureMatrices]:
    """NFM, AGOP and PTK feature covariance of layers, from one forward and c backward passes.

    A layer is any convolution (but a transposed one, or one with groups) or product with a matrix
    of parameters, in any module: `nn.Linear`, the projections of attention, or a parameter that the
    model multiplies directly. It is named after the module that owns the matrix, or after the
    parameter if that is not called `weight`, with a number in brackets if it is one of several
    parts: its place in a stack of matrices of one size, or else a count. The matrices are detached.

    Source: Beaglehole et al. 2024, Section 2.2 and, for K̄, Appendix D; the released code
    differentiates by a perturbation of each pre-activation, one layer and one sample at a time.

    Args:
        model: a model with outputs (n, c), or (n, …), where every entry is an output; dropout and
            batch normalisation in evaluation mode. For T·V outputs of tokens give `output_samples`.
        x: inputs (n, …), as for `tangent_kernel`.
        layers: names of layers that are used exactly once; None for all of them, with a warning,
            once for each model, that names the layers omitted.
        initial: all initial parameters by name, e.g. from `copy_parameters`, for W₀; None to
            centre nothing.
        chunk_size: samples at a time, which bounds the memory; sums over chunks are in float64.
        output_samples: number m of random backward passes for an unbiased estimate of the sum over
            outputs, by random signs v (n, c): E (Σ_y v_y δ_y)ᵀ(Σ_y v_y δ_y) = Σ_y δ_yᵀδ_y.
            None for the exact sum in c passes.
        generator: CPU generator of the signs; only with `output_samples`, which needs it.
        centre_tangents: whether to compute K̄, with as many passes again and new random signs.
        inputs: as for `tangent_kernel`.
        output: as for `tangent_kernel`.

    Raises:
        ValueError: if a named layer is unknown, has groups, is a transposed convolution, or is not
            used exactly once; if there is no layer; if samples depend on each other or on chance,
            as by dropout in training mode; if a size is not positive; if only one of generator and
            `output_samples` is given; or for K̄ without `initial`.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> layer_feature_matrices(layer, torch.ones(5, 2))[""].covariance
        tensor([[1.]])
    """
    if centre_tangents and initial is None:
        raise ValueError("centre_tangents: changes of tangents need the start: give `initial`.")
    if initial is not None and not (
        isinstance(initial, Mapping)
        and all(isinstance(value, torch.Tensor) for value in initial.values())
    ):
        raise ValueError(
            "initial: give tensors by the parameters' names, as from copy_parameters(model)."
        )
    check_whole("chunk_size", chunk_size, 1)
    if output_samples is not None:
        check_whole("output_samples", output_samples, 1)
    if (output_samples is None) != (generator is None):
        raise ValueError("output_samples and generator go together: give both or neither.")
    refuse_dependent_samples(model)
    values = evaluation_point(model)
    samples = as_samples(x, inputs, input_like(model))
    function = checked_few(ModelFunction(model, output), values, samples)
    _refuse_dependent_gradients(function, values, samples.few(), owners_of_matrices(model, layers))
    cotangents = one_hot_cotangents
    if output_samples is not None and generator is not None:
        cotangents = partial(random_sign_cotangents, number=output_samples, generator=generator)
    found = CovarianceSums(function, [values], layers, cotangents)
    covariances = found.means(samples, chunk_size)
    matrices = {}
    for name, use in found.uses.items():
        own = values[use.name]
        if use.name in function.changed:
            raise ValueError(
                f"layer {name!r}: the forward pass changes {use.name!r} in place, so its matrix is "
                "not one of the model's parameters; take the change out of forward()."
            )
        matrices[name] = FeatureMatrices(
            weight_matrix=use.matrix(own).to(summed_in(own)),
            covariance=_narrowed(covariances[name], summed_in(own)),
            positions=found.counts[name],
            initial_weight=_initial_weight(initial, use, own),
        )
    if centre_tangents:
        points = [values, evaluation_point(model, initial)]
        function = replace(function, changed=frozenset(values))  # others may change at W₀
        changes = CovarianceSums(function, points, layers, cotangents).means(samples, chunk_size)
        for name, change in changes.items():
            matrices[name] = replace(matrices[name], tangent_change=change)
    return matrices


def features(
    model: nn.Module, x: ModelInput, initial: Parameters | None = None, **options: Any
) -> Features:
    """NFM, AGOP and neural feature correlations of every layer, in all centrings.

    The model is measured in evaluation mode; its own mode is restored. With the initial parameters
    as `initial`, e.g. from `copy_parameters(model)`, the result includes centred, double-centred
    and PTK-centred correlations. Further options are those of `layer_feature_matrices`. The result
    maps layer names to matrices; its `frame()` is a table of all correlations.

    Source: Beaglehole et al. 2024, Sections 2 and 3 and Appendix D.

    Raises:
        ValueError: as `layer_feature_matrices`.

    Example:
        >>> features(nn.Linear(2, 1, bias=False), torch.ones(5, 2)).frame()["nfc"].tolist()
        [1.0]
    """
    options.setdefault("centre_tangents", initial is not None)
    with evaluation_mode(model) if isinstance(model, nn.Module) else nullcontext():
        return Features(layer_feature_matrices(model, x, initial=initial, **options))


def _narrowed(covariance: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # In this precision, if its range holds the matrix.
    largest, held = float(covariance.abs().max()), torch.finfo(dtype)
    return covariance.to(dtype) if not largest or held.tiny < largest < held.max else covariance


def _refuse_dependent_gradients(
    function: ModelFunction, values: Parameters, samples: Samples, owners: Mapping[str, str]
) -> None:
    # Refuse layers at which a sample's gradients depend on the other samples: Σ δᵀδ over a few
    # samples then differs from the sum over both halves of them.
    if len(samples) == 1:
        return
    u, relative, every = None, 0.0, range(len(samples))
    # δᵀδ by layer, its number of terms, and where the layer is used.
    found: list[dict[str, tuple[torch.Tensor, int, MatrixUse]]] = []
    for part in (every, every[::2], every[1::2]):
        with recorded(function, values, samples[list(part)], owners) as recording:
            f, (uses, _) = recording.f, layers_of(recording, owners)
            if u is None:
                u = torch.randn(f.shape, generator=torch_stream(0, "covariance/apart")).to(f)
            numbers = [use.number for use in uses.values()]
            gradients = next(backpropagate(recording, numbers, iter([u[torch.tensor(part)]])))
            rows = {name: use.rows(gradients[use.number]).double() for name, use in uses.items()}
            found.append({name: (d.T @ d, len(d), uses[name]) for name, d in rows.items()})
            relative = 10 * rounding(f, *values.values(), within=recording.graph.dtypes())
    whole, *parts = found
    largest = max((float(product.norm()) for product, *_ in whole.values()), default=0.0)
    for name, (product, terms, use) in whole.items():
        halves = [part[name] for part in parts if name in part and part[name][2].like(use)]
        # Skip layers on inputs that the samples share, single samples, which are run twice, and
        # experts, of which a half can use others.
        if terms != sum(number for _, number, _ in halves):
            continue
        left = product - sum(half for half, *_ in halves)
        allowed = relative * (float(product.norm()) + _NEGLIGIBLE * largest)
        if float(left.norm()) > allowed:
            raise ValueError(
                f"layer {name!r}: the gradients of a sample depend on the other samples; f(x_i) "
                "must depend on x_i only: look for statistics along the batch axis."
            )


def _initial_weight(
    initial: Parameters | None, use: MatrixUse, own: torch.Tensor
) -> torch.Tensor | None:
    if initial is None:
        return None
    check_known(f"initial: no value for {use.name!r}", use.name, initial)
    if initial[use.name].shape != own.shape:
        raise ValueError(
            f"initial: {use.name!r} has shape {tuple(initial[use.name].shape)}; "
            f"the model's is {tuple(own.shape)}."
        )
    return use.matrix(initial[use.name]).to(own.device, summed_in(initial[use.name]))

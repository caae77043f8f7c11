"""Feature covariance of the pre-activation tangent kernel, NFM and AGOP of every layer at once.

One forward and c backward passes give δ = ∂f_y/∂h_ℓ of all layers; only δᵀδ is kept.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.errors import suggestion
from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.capture import (
    Recording,
    backpropagate,
    distinct_weights,
    in_other_order,
    one_hot_cotangents,
    random_sign_cotangents,
    recorded,
)
from feature_alignment.gradients.checks import checked_outputs, refuse_dependent_samples, rounding
from feature_alignment.gradients.graph import ODD, sample_place
from feature_alignment.gradients.model_function import ModelFunction, OutputChoice
from feature_alignment.gradients.parameter_values import Parameters, evaluation_point, input_dtype
from feature_alignment.gradients.samples import ModelInput, Samples, as_samples
from feature_alignment.layer_features.feature_matrices import (
    FeaturePair,
    average_gradient_outer_product,
    feature_pair,
    neural_feature_matrix,
)
from feature_alignment.layer_features.layers import (
    MatrixUse,
    layers_of,
    owners_of_matrices,
    reasons,
)
from feature_alignment.training.evaluation import evaluation_mode

log = logging.getLogger(__name__)

_CHECKED = 8  # samples by which a model is checked
_NEGLIGIBLE = 1e-6  # share of the largest covariance below which one is rounding
_UNLIKE = "layer {!r} is used otherwise for some samples than for others; leave it out of `layers`."
_NOTHING = "no layer to measure, no product with a matrix of parameters."


@dataclass(frozen=True)
class FeatureMatrices:
    """What the neural feature ansatz compares in one layer h = Wa (+ b).

    A convolution is a linear layer on patches: its W is (k, channels · height · width) of the
    filter and its matrices live on one patch. Attention's query, key and value layers live on
    one token. `positions` counts a sample's patches or tokens, 1 for a plain linear layer.

    Source: Beaglehole et al. 2024, Section 2.1 (NFM, AGOP), eq. 3 and the note on patches and
    tokens below it, eq. 4 (centred).

    Attributes:
        weight_matrix: W, (k, d).
        covariance: K = 1/(n·P) Σ_i Σ_positions Σ_y δᵀδ, (k, k): the mean over samples and P
            positions, the sum over outputs. Times `positions` it is the sum over positions.
        positions: P.
        initial_weight: W₀, (k, d), or None where it was not given.
        tangent_change: K̄ = 1/(n·P) Σ_i Σ_positions Σ_y (δ − δ₀)ᵀ(δ − δ₀), (k, k) in float64, with
            δ₀ at the initial parameters (Appendix D), or None where it was not asked for.
    """

    weight_matrix: torch.Tensor
    covariance: torch.Tensor
    positions: int
    initial_weight: torch.Tensor | None = None
    tangent_change: torch.Tensor | None = None

    @property
    def nfm(self) -> torch.Tensor:
        """F = WᵀW, (d, d)."""
        return neural_feature_matrix(self.weight_matrix)

    @property
    def agop(self) -> torch.Tensor:
        """Ḡ = WᵀKW, (d, d)."""
        return average_gradient_outer_product(self.weight_matrix, self.covariance)

    @property
    def centred_nfm(self) -> torch.Tensor:
        """W̄ᵀW̄ with W̄ = W − W₀, (d, d)."""
        return neural_feature_matrix(self._change)

    @property
    def centred_agop(self) -> torch.Tensor:
        """W̄ᵀKW̄ with W̄ = W − W₀ and K of the current weights, (d, d)."""
        return average_gradient_outer_product(self._change, self.covariance)

    def correlations(self) -> dict[str, float]:
        """All correlations by name, as `FeatureProbe` describes them; those that are defined.

        What is centred needs W₀, and a weight that has moved; what is double-centred needs K̄.
        """
        # In float64, since squares of small changes would underflow in float32.
        weight = self.weight_matrix.double()
        uncentred = feature_pair(weight, self.covariance)
        values: dict[str, float] = {}

        def add(name: str, pair: FeaturePair, subtract_mean: bool = False) -> None:
            with suppress(ValueError):  # a 1 × 1 matrix less its mean, or one of dead units
                values[name] = pair.correlation(subtract_mean)

        add("nfc", uncentred)
        add("nfc_mean_subtracted", uncentred, True)
        if self.initial_weight is None:
            return values
        initial = self.initial_weight.double()
        change = weight - initial
        centred = feature_pair(change, self.covariance)
        if uncentred.inner > 0:
            values["centred_uncentred_ratio"] = centred.inner / uncentred.inner
        if weight.any():
            values["weight_change"] = float(change.norm() / weight.norm())
        add("centred_nfc", centred)
        add("centred_nfc_mean_subtracted", centred, True)
        if self.tangent_change is not None and self.tangent_change.any():
            double_centred = feature_pair(change, self.tangent_change)
            add("double_centred_nfc", double_centred)
            if centred.inner > 0:
                values["double_centred_ratio"] = double_centred.inner / centred.inner
            add("ptk_centred_nfc", feature_pair(initial, self.tangent_change))
        return values

    @property
    def _change(self) -> torch.Tensor:
        if self.initial_weight is None:
            raise ValueError("centred matrices need the initial weights: give `initial`.")
        return self.weight_matrix - self.initial_weight


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

    A layer is any product with a matrix of parameters, or a convolution, whatever module it is in:
    `nn.Linear`, the projections of attention, a parameter that the model multiplies by itself. Its
    name is that of the module that owns the matrix, or of the parameter if that is not called
    `weight`, with a number in brackets if it is one of several parts. The matrices are detached.

    Source: Beaglehole et al. 2024, Section 2.2 and, for K̄, Appendix D; the released code
    differentiates by a perturbation of each pre-activation, one layer and one sample at a time.

    Args:
        model: any model in evaluation mode; outputs (n, c) or (n, …), then every entry is an
            output. For a token model with T·V outputs give `output_samples`.
        x: inputs (n, …), as for `tangent_kernel`.
        layers: names of layers that are used once; None for all of them, others being left out
            with a warning that names them.
        initial: all parameters of the start by name, e.g. from `copy_parameters`, for W₀; None
            where nothing is to be centred.
        chunk_size: samples at a time, which bounds the memory; sums over chunks are in float64.
        output_samples: number m of random backward passes that estimate the sum over outputs
            without bias, by random signs v (n, c): E (Σ_y v_y δ_y)ᵀ(Σ_y v_y δ_y) = Σ_y δ_yᵀδ_y.
            None for the exact sum in c passes.
        generator: CPU generator of the signs; needed with `output_samples` only.
        centre_tangents: whether K̄ is wanted, by as many passes again, from signs of its own.
        inputs: as for `tangent_kernel`.
        output: as for `tangent_kernel`.

    Raises:
        ValueError: if a named layer is unknown, has groups, or is not used exactly once; if there
            is no layer; if the model is in training mode; if a size is not positive; if the
            generator and `output_samples` are not given together, or K̄ without `initial`.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> layer_feature_matrices(layer, torch.ones(5, 2))[""].covariance
        tensor([[1.]])
    """
    if centre_tangents and initial is None:
        raise ValueError("centre_tangents: changes of tangents need the start: give `initial`.")
    values = initial.values() if isinstance(initial, Mapping) else [initial]
    if initial is not None and not all(isinstance(value, torch.Tensor) for value in values):
        raise ValueError(
            "initial: give tensors by the parameters' names, as from copy_parameters(model)."
        )
    if chunk_size < 1:
        raise ValueError(f"chunk_size: {chunk_size}; it must be at least 1.")
    if output_samples is not None and output_samples < 1:
        raise ValueError(f"output_samples: {output_samples}; it must be at least 1.")
    if (output_samples is None) != (generator is None):
        raise ValueError("output_samples and generator go together: give both or neither.")
    refuse_dependent_samples(model)
    values = evaluation_point(model)
    samples = as_samples(x, inputs, input_dtype(model))
    function, *_ = checked_outputs(ModelFunction(model, output), values, _some(samples))
    _refuse_dependent_gradients(function, values, _some(samples), owners_of_matrices(model, layers))
    cotangents = one_hot_cotangents
    if output_samples is not None and generator is not None:
        cotangents = partial(random_sign_cotangents, number=output_samples, generator=generator)
    found = _Sums(function, [values], layers, cotangents)
    covariances = found.means(samples, chunk_size)
    matrices = {}
    for name, use in found.uses.items():
        own = values[use.name]
        if use.name in function.changed:
            raise ValueError(
                f"layer {name!r}: the forward pass changes {use.name!r} in place, so its matrix is "
                "none of the model's own; take the change out of forward()."
            )
        matrices[name] = FeatureMatrices(
            weight_matrix=use.matrix(own),
            covariance=covariances[name].to(own.dtype),
            positions=found.counts[name],
            initial_weight=_initial_weight(initial, use, own.shape),
        )
    if centre_tangents:
        points = [values, evaluation_point(model, initial)]
        function = replace(function, changed=frozenset(values))  # at the start maybe others
        changes = _Sums(function, points, layers, cotangents).means(samples, chunk_size)
        for name, change in changes.items():
            matrices[name] = replace(matrices[name], tangent_change=change)
    return matrices


class Features(dict[str, FeatureMatrices]):
    """NFM, AGOP and their correlations by layer name."""

    def frame(self) -> pd.DataFrame:
        """One row per layer, one column per correlation; empty where one is not defined."""
        rows = {name: layer.correlations() for name, layer in self.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("layer")

    def __repr__(self) -> str:
        lines = []
        for name, layer in self.items():
            told = [
                f"{metric} {value:.3g}"
                for metric, value in layer.correlations().items()
                if not metric.endswith("_mean_subtracted")
            ]
            k, d = layer.weight_matrix.shape
            lines.append(f"{name}: W {k} × {d}, {', '.join(told) or 'no correlation is defined'}")
        return "\n".join([f"Features of {len(self)} layer{'s' * (len(self) > 1)}", *lines])


def features(
    model: nn.Module, x: ModelInput, initial: Parameters | None = None, **options: Any
) -> Features:
    """NFM, AGOP and neural feature correlations of every layer, in all centrings.

    The model is measured in evaluation mode, and put back into its own. With the parameters of the
    start as `initial`, as from `copy_parameters(model)`, come the centred, double-centred and
    PTK-centred correlations. Further options are those of `layer_feature_matrices`. The result is a
    mapping from layer names, whose `frame()` is a table of all correlations.

    Source: Beaglehole et al. 2024, Sections 2 and 3 and Appendix D.

    Example:
        >>> features(nn.Linear(2, 1, bias=False), torch.ones(5, 2)).frame()["nfc"].tolist()
        [1.0]
    """
    centred = initial is not None
    with evaluation_mode(model) if isinstance(model, nn.Module) else nullcontext():
        return Features(
            layer_feature_matrices(model, x, initial=initial, centre_tangents=centred, **options)
        )


def preactivation_gradients(
    model: nn.Module,
    x: ModelInput,
    layers: Sequence[str] | None = None,
    parameters: Parameters | None = None,
) -> dict[str, torch.Tensor]:
    """Gradients δ = ∂f_y(x_i)/∂h_ℓ of layers on inputs (n, d), each (n, c, k), by layer name.

    From c backward passes, detached. Arguments and layers are those of `layer_feature_matrices`;
    `parameters` are values by name to evaluate the model at, None for its own.

    Source: Beaglehole et al. 2024, eq. 1 and Section 2.2.

    Raises:
        ValueError: as `layer_feature_matrices`, or if a layer has several positions.
    """
    refuse_dependent_samples(model)
    values, owners = evaluation_point(model, parameters), owners_of_matrices(model, layers)
    samples = as_samples(x, dtype=input_dtype(model))
    function, *_ = checked_outputs(ModelFunction(model), values, _some(samples))
    with recorded(function, values, samples, owners) as recording:
        f, (uses, problems) = recording.f, layers_of(recording, owners)
        if not torch.isfinite(f).all():
            raise ValueError("the outputs of some samples are not finite; nor are their gradients.")
        deltas: dict[str, list[torch.Tensor]] = {name: [] for name in uses}
        numbers = [use.number for use in uses.values()]
        for found in backpropagate(recording, numbers, one_hot_cotangents(f)):
            for name, use in uses.items():
                deltas[name].append(use.rows(found[use.number]))
        weights = distinct_weights(recording)
        weighted = next(backpropagate(recording, numbers, iter([weights[0] * weights[1]])))
    for name, (delta, *_) in deltas.items():
        if len(delta) != recording.copies * len(f):
            problems[name] = "sees other inputs than (n, d)"
    if problems or not uses:
        raise ValueError(reasons(problems)[0] if problems else _NOTHING)
    stacked = {
        name: torch.stack([delta[: len(f)] for delta in of_outputs], dim=1)
        for name, of_outputs in deltas.items()
    }
    relative = rounding(f, *values.values(), within=recording.graph.dtypes())
    rows = {name: use.rows(weighted[use.number])[: len(f)] for name, use in uses.items()}
    for name in in_other_order(rows, stacked, weights, relative)[:1]:
        raise ValueError(f"layer {name!r} does not see the samples in the order of the inputs.")
    return stacked if layers is None else {name: stacked[name] for name in layers}


def _refuse_dependent_gradients(
    function: ModelFunction, values: Parameters, samples: Samples, owners: Mapping[str, str]
) -> None:
    """Refuse layers of which a sample's gradients are others in other company.

    Raises:
        ValueError: if Σ δᵀδ over a few samples is not that over every other one and over the rest.
    """
    u, relative, every = None, 0.0, range(len(samples))
    found: list[dict[str, tuple[torch.Tensor, int]]] = []  # δᵀδ by layer, and its number of terms
    for part in (every, every[::2], every[1::2]) if len(samples) > 1 else ():
        with recorded(function, values, samples[list(part)], owners) as recording:
            f, (uses, _) = recording.f, layers_of(recording, owners)
            if u is None:
                u = torch.randn(f.shape, generator=torch_stream(0, "covariance/apart")).to(f)
            numbers = [use.number for use in uses.values()]
            gradients = next(backpropagate(recording, numbers, iter([u[torch.tensor(part)]])))
            rows = {name: use.rows(gradients[use.number]).double() for name, use in uses.items()}
            found.append({name: (delta.T @ delta, len(delta)) for name, delta in rows.items()})
            relative = 10 * rounding(f, *values.values(), within=recording.graph.dtypes())
    if not found:
        return
    whole, *parts = found
    largest = max((float(product.norm()) for product, _ in whole.values()), default=0.0)
    for name, (product, terms) in whole.items():
        halves = [part[name] for part in parts if name in part]
        # Not those on inputs that samples share, or of a sample that is run twice to be seen alone.
        if terms != sum(number for _, number in halves):
            continue
        left = product - sum(half for half, _ in halves)
        allowed = relative * (float(product.norm()) + _NEGLIGIBLE * largest)
        if float(left.norm()) > allowed:
            raise ValueError(
                f"layer {name!r}: the gradients of a sample depend on the other samples; f(x_i) "
                "must depend on x_i only: look for statistics along the batch axis."
            )


def _some(samples: Samples) -> Samples:
    """A few samples, from the first to the last, by which a model is checked."""
    n = len(samples)
    return samples[sorted({i * (n - 1) // (_CHECKED - 1) for i in range(_CHECKED)})]


@dataclass
class _Sums:
    """Sums over samples, positions and outputs of δᵀδ by layer, upper triangles in float64.

    δ are the gradients at the first point, less those at the second if there are two.
    """

    function: ModelFunction
    points: Sequence[Parameters]
    layers: Sequence[str] | None
    cotangents: Callable[[torch.Tensor], Iterator[torch.Tensor]]  # of outputs (n, c)
    uses: dict[str, MatrixUse] = field(default_factory=dict)  # where each layer is used
    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # positions of a sample

    def means(self, samples: Samples, chunk_size: int) -> dict[str, torch.Tensor]:
        """Whole means over samples and positions by layer, some samples at a time.

        Raises:
            ValueError: if a layer is not used alike for all samples, or outputs are not finite.
        """
        owners = owners_of_matrices(self.function.model, self.layers)
        shared = self._layers_on_shared_inputs(samples, owners)
        for span in spans(len(samples), chunk_size):
            recordings = [self._recorded(point, samples[span], owners) for point in self.points]
            uses = self._measured(recordings[0], owners, shared, tell=span.start == 0)
            for name in uses.keys() ^ (self.uses or uses).keys():
                raise ValueError(_UNLIKE.format(name))
            self.uses = uses
            if not all(recording.f.isfinite().all() for recording in recordings):
                raise ValueError("the model's outputs of some samples are not finite.")
            if not recordings[0].graph.same_path(recordings[-1].graph):
                raise ValueError(
                    "centre_tangents: at the initial parameters some samples take another path "
                    "through the model, so tangents have no change; do without it."
                )
            self._add(recordings)
            recordings.clear()  # frees the graphs
        means = {name: self.sums[name] / (len(samples) * self.counts[name]) for name in self.uses}
        return {name: mean.triu() + mean.triu(1).T for name, mean in means.items()}

    def _layers_on_shared_inputs(self, samples: Samples, owners: Mapping[str, str]) -> set[str]:
        """The layers whose results do not grow with the samples."""
        shapes: list[dict[str, torch.Size]] = []
        for n in (2, 3):
            some = samples[[i % len(samples) for i in range(n)]]
            with recorded(self.function, self.points[0], some, owners) as recording:
                uses, _ = layers_of(recording, owners)
                shape = recording.graph.shape
                shapes.append({name: shape((use.number, 0)) for name, use in uses.items()})
        return {
            name
            for name, few in shapes[0].items()
            if name not in shapes[1] or sample_place(few, shapes[1][name], (2, 3)) in (None, ODD)
        }

    def _add(self, recordings: Sequence[Recording]) -> None:
        f, n = recordings[0].f, len(recordings[0].f) * recordings[0].copies
        products: dict[str, torch.Tensor] = {}
        numbers = [use.number for use in self.uses.values()]
        only = recordings[0].values if len(recordings) == 1 else None
        with nullcontext() if only is None else self.function.installed(only):  # for all passes
            for cotangent in self.cotangents(f):
                found: list[dict[int, torch.Tensor]] = []
                for recording in recordings:  # whose values checkpoints run again with
                    with self.function.installed(recording.values):
                        found += backpropagate(recording, numbers, iter([cotangent]))
                self._add_products(products, found, n)
        for name, product in products.items():
            self.sums[name] = self.sums.get(name, 0) + product.double()

    def _add_products(
        self, products: dict[str, torch.Tensor], found: Sequence[dict[int, torch.Tensor]], n: int
    ) -> None:
        for name, use in self.uses.items():
            rows = [use.rows(gradients[use.number]) for gradients in found]
            delta = rows[0] if len(rows) == 1 else rows[0] - rows[1]  # (n·P, k)
            if name not in products:
                products[name] = delta.new_zeros(delta.shape[1], delta.shape[1])
                count = len(delta) / n
                if count != self.counts.setdefault(name, max(1, int(count))):
                    raise ValueError(_UNLIKE.format(name))
            _add_upper_triangle(products[name], delta)

    def _recorded(
        self, point: Parameters, samples: Samples, owners: Mapping[str, str]
    ) -> Recording:
        with recorded(self.function, point, samples, owners) as recording:
            return recording

    def _measured(
        self, recording: Recording, owners: Mapping[str, str], shared: set[str], tell: bool
    ) -> dict[str, MatrixUse]:
        layers, problems = layers_of(recording, owners)  # which may differ for n = 1
        for name in shared & layers.keys():
            del layers[name]
            problems[name] = "is used on inputs that the samples share, or not on all of them"
        told = reasons(problems)
        if told and self.layers is not None:
            raise ValueError(f"{told[0]}; leave it out of `layers`.")
        if not layers:
            raise ValueError(f"no layer to measure: {'; '.join(told)}." if told else _NOTHING)
        for problem in told if tell else ():
            log.warning("%s; it is not measured.", problem)
        return layers if self.layers is None else {name: layers[name] for name in self.layers}


def _add_upper_triangle(total: torch.Tensor, delta: torch.Tensor) -> None:
    """Add δᵀδ to `total` in strips from the diagonal on: half the products of the whole."""
    k = delta.shape[1]
    width = max(64, k // 8)  # narrower strips waste the processor, wider ones the symmetry
    for start in range(0, k, width):
        strip = delta[:, start : start + width]
        total[start : start + width, start:].addmm_(strip.T, delta[:, start:])


def _initial_weight(
    initial: Parameters | None, use: MatrixUse, shape: torch.Size
) -> torch.Tensor | None:
    if initial is None:
        return None
    if use.name not in initial:
        raise ValueError(f"initial: no value for {use.name!r}; {suggestion(use.name, initial)}.")
    if initial[use.name].shape != shape:
        raise ValueError(
            f"initial: {use.name!r} has shape {tuple(initial[use.name].shape)}; "
            f"the model's is {tuple(shape)}."
        )
    return use.matrix(initial[use.name])

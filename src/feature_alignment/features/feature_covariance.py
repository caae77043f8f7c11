"""Feature covariance of the pre-activation tangent kernel, NFM and AGOP of every layer at once.

One forward and c backward passes give δ = ∂f_y/∂h_ℓ of all layers; only δᵀδ is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import tee

import torch
from torch import nn

from feature_alignment.errors import suggestion
from feature_alignment.features.feature_matrices import (
    average_gradient_outer_product,
    neural_feature_correlation,
    neural_feature_matrix,
)
from feature_alignment.gradients.capture import (
    Recording,
    backpropagate,
    evaluation_point,
    record,
    refuse_dependent_samples,
)
from feature_alignment.gradients.cotangents import one_hot_cotangents, random_sign_cotangents

Measured = nn.Linear | nn.Conv2d


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
    """

    weight_matrix: torch.Tensor
    covariance: torch.Tensor
    positions: int
    initial_weight: torch.Tensor | None = None

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
        return neural_feature_matrix(self.weight_matrix - self.start)

    @property
    def centred_agop(self) -> torch.Tensor:
        """W̄ᵀKW̄ with W̄ = W − W₀ and K of the current weights, (d, d)."""
        return average_gradient_outer_product(self.weight_matrix - self.start, self.covariance)

    def uncentred_correlation(self, subtract_mean: bool = False) -> float:
        """UC-NFC ρ(F, Ḡ); see `neural_feature_correlation`."""
        return neural_feature_correlation(
            self.weight_matrix, self.covariance, subtract_mean=subtract_mean
        )

    def centred_correlation(self, subtract_mean: bool = False) -> float:
        """C-NFC ρ(W̄ᵀW̄, W̄ᵀKW̄); see `neural_feature_correlation`."""
        return neural_feature_correlation(
            self.weight_matrix, self.covariance, self.start, subtract_mean
        )

    @property
    def start(self) -> torch.Tensor:
        """W₀, (k, d).

        Raises:
            ValueError: if it was not given.
        """
        if self.initial_weight is None:
            raise ValueError("centred matrices need the initial weights: give `initial`.")
        return self.initial_weight


def layer_feature_matrices(
    model: nn.Module,
    x: torch.Tensor,
    layers: Sequence[str] | None = None,
    initial: Mapping[str, torch.Tensor] | None = None,
    chunk_size: int = 500,
    output_samples: int | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, FeatureMatrices]:
    """NFM, AGOP and PTK feature covariance of layers, from one forward and c backward passes.

    Source: Beaglehole et al. 2024, Section 2.2; the released code differentiates by a perturbation
    of each pre-activation instead, one layer and one sample at a time.

    Args:
        model: any model in evaluation mode whose measured layers are called once; outputs (n, c)
            or (n, …), then every entry is an output. For a token model with T·V outputs
            give `output_samples`.
        x: inputs (n, …), numbers or tokens.
        layers: names of `nn.Linear` and `nn.Conv2d` layers; None for all of the model.
        initial: W₀ by parameter name ("layers.0.weight"), e.g. from `copy_parameters`; None
            where no centred matrix is wanted.
        chunk_size: samples at a time; bounds the memory, does not change the result.
        output_samples: number m of random backward passes that estimate the sum over outputs
            without bias, by random signs v (n, c): E (Σ_y v_y δ_y)ᵀ(Σ_y v_y δ_y) = Σ_y δ_yᵀδ_y.
            None for the exact sum in c passes.
        generator: CPU generator of the signs; needed with `output_samples` only.

    Returns:
        The matrices by layer name, detached. Sums over chunks are taken in float64.

    Raises:
        ValueError: if a layer is unknown, of another kind, has groups, or is not called exactly
            once; if the model is in training mode; if a size is not positive, or the generator
            and `output_samples` are not given together.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> layer_feature_matrices(layer, torch.ones(5, 2))[""].covariance
        tensor([[1.]])
    """
    measured = _measured_layers(model, layers)
    points = [evaluation_point(model)]
    sums, counts = _covariance_sums(
        model, points, x, measured, chunk_size, output_samples, generator
    )
    return {
        name: FeatureMatrices(
            weight_matrix=_matrix(layer.weight),
            covariance=_mirrored(sums[name] / (len(x) * counts[name])).to(layer.weight.dtype),
            positions=counts[name],
            initial_weight=_initial_weight(initial, name, layer),
        )
        for name, layer in measured.items()
    }


def tangent_change_covariances(
    model: nn.Module,
    x: torch.Tensor,
    initial: Mapping[str, torch.Tensor],
    layers: Sequence[str] | None = None,
    chunk_size: int = 500,
    output_samples: int | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, torch.Tensor]:
    """K̄ = mean over samples and positions of (δ − δ₀)ᵀ(δ − δ₀), of the pre-activation gradients.

    δ are those of the model, δ₀ those of the same network with the initial parameters; as
    `preactivation_feature_covariance` of their difference, but for any layer.

    Source: Beaglehole et al. 2024, Appendix D (double-centred and PTK-centred NFC).

    Args:
        model: as for `layer_feature_matrices`, of its current parameters.
        x: inputs (n, …).
        initial: all parameters of the start by name, e.g. from `copy_parameters`.
        layers: as for `layer_feature_matrices`.
        chunk_size: samples at a time.
        output_samples: number of random backward passes, the same signs for δ and δ₀.
        generator: CPU generator of the signs.

    Returns:
        K̄ (k, k) by layer name, detached, float64.

    Raises:
        ValueError: as `layer_feature_matrices`, or if a parameter is missing.
    """
    measured = _measured_layers(model, layers)
    points = [evaluation_point(model), evaluation_point(model, initial)]
    sums, counts = _covariance_sums(
        model, points, x, measured, chunk_size, output_samples, generator
    )
    return {name: _mirrored(sums[name] / (len(x) * counts[name])) for name in measured}


def _covariance_sums(
    model: nn.Module,
    points: Sequence[Mapping[str, torch.Tensor]],
    x: torch.Tensor,
    measured: Mapping[str, Measured],
    chunk_size: int,
    output_samples: int | None,
    generator: torch.Generator | None,
) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Upper triangles of Σ δᵀδ, float64, and the number of positions, by layer.

    δ are the gradients at the first point, less those at the second if there are two.

    Raises:
        ValueError: see `layer_feature_matrices`.
    """
    for name, size in {"chunk_size": chunk_size, "output_samples": output_samples}.items():
        if size is not None and size < 1:
            raise ValueError(f"{name}: {size}; it must be at least 1.")
    if (output_samples is None) != (generator is None):
        raise ValueError("output_samples and generator go together: give both or neither.")
    refuse_dependent_samples(model)
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}
    changes_input = True  # until one chunk has shown whether it does
    for chunk in x.split(chunk_size):
        recordings = [
            record(model, values, chunk, measured, copy_input=changes_input) for values in points
        ]
        changes_input = any(recording.changed_input for recording in recordings)
        for recording in recordings:
            _require_one_call(recording, measured)
        f = recordings[0].f
        cotangents = (
            one_hot_cotangents(f)
            if output_samples is None or generator is None
            else random_sign_cotangents(f, output_samples, generator)
        )
        products: dict[str, torch.Tensor] = {}
        shared = tee(cotangents, len(recordings))  # one after the other, in step
        passes = (backpropagate(*pair) for pair in zip(recordings, shared, strict=True))
        for at_points in zip(*passes, strict=True):
            for name, _ in at_points[0]:
                rows = [_rows(found[name, 0], measured[name]) for found in at_points]
                delta = rows[0] if len(rows) == 1 else rows[0] - rows[1]  # (n·P, k)
                if name not in products:
                    products[name] = delta.new_zeros(delta.shape[1], delta.shape[1])
                    counts[name] = len(delta) // len(chunk)
                _add_upper_triangle(products[name], delta)
        for name, product in products.items():
            sums[name] = sums.get(name, 0) + product.double()
    return sums, counts


def _measured_layers(model: nn.Module, names: Sequence[str] | None) -> dict[str, Measured]:
    modules = dict(model.named_modules())
    allowed = {
        name: module
        for name, module in modules.items()
        # Exact types: a subclass may compute something else.
        if isinstance(module, Measured) and type(module) in (nn.Linear, nn.Conv2d)
    }
    names = list(allowed) if names is None else names
    if not names:
        raise ValueError("no layer to measure: the model has no nn.Linear and no nn.Conv2d.")
    for name in names:
        if name not in allowed:
            kind = f"a {type(modules[name]).__name__}" if name in modules else "not in the model"
            raise ValueError(
                f"layers: {name!r} is {kind}; only nn.Linear and nn.Conv2d are measured; "
                f"{suggestion(name, allowed)}."
            )
        layer = allowed[name]
        if isinstance(layer, nn.Conv2d) and layer.groups != 1:
            raise ValueError(
                f"layer {name!r} is a convolution in {layer.groups} groups, which has no "
                "single weight matrix on a patch; leave it out of `layers`."
            )
    return {name: allowed[name] for name in names}


def _require_one_call(recording: Recording, names: Iterable[str]) -> None:
    for name in names:
        calls = sum(called == name for called, _ in recording.calls)
        if calls != 1 or name in recording.skipped:
            merged = " on inputs without one row for each sample" * (name in recording.skipped)
            raise ValueError(
                f"layer {name!r} was called {calls} times{merged} in the forward pass; its "
                "pre-activation is defined for one call on all samples only. Leave it out of "
                "`layers`."
            )


def _rows(gradient: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """One row for each sample and position: (n, …, k) or (n, k, height, width) → (n·P, k)."""
    if isinstance(layer, nn.Conv2d):
        gradient = gradient.movedim(1, 3)
    return gradient.reshape(-1, gradient.shape[-1])


def _add_upper_triangle(total: torch.Tensor, delta: torch.Tensor) -> None:
    """Add δᵀδ to `total` in strips from the diagonal on: half the products of the whole."""
    k = delta.shape[1]
    width = max(64, k // 8)  # narrower strips waste the processor, wider ones the symmetry
    for start in range(0, k, width):
        strip = delta[:, start : start + width]
        total[start : start + width, start:].addmm_(strip.T, delta[:, start:])


def _mirrored(upper: torch.Tensor) -> torch.Tensor:
    return upper.triu() + upper.triu(1).T


def _matrix(weight: torch.Tensor) -> torch.Tensor:
    return weight.detach().flatten(1).clone()  # (k, …) -> (k, d)


def _initial_weight(
    initial: Mapping[str, torch.Tensor] | None, name: str, layer: Measured
) -> torch.Tensor | None:
    if initial is None:
        return None
    key = f"{name}.weight" if name else "weight"
    if key not in initial:
        raise ValueError(f"initial: no value for {key!r}; {suggestion(key, initial)}.")
    if initial[key].shape != layer.weight.shape:
        raise ValueError(
            f"initial: {key!r} has shape {tuple(initial[key].shape)}; "
            f"the model's is {tuple(layer.weight.shape)}."
        )
    return _matrix(initial[key])

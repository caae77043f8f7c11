"""NFM, AGOP and their correlations for each layer, which the neural feature ansatz compares."""

from contextlib import suppress
from dataclasses import dataclass

import pandas as pd
import torch

from feature_alignment.layer_features.feature_matrices import (
    FeaturePair,
    average_gradient_outer_product,
    feature_pair,
    neural_feature_matrix,
)

_ROUNDINGS = 100  # of δ, of which its change has to be larger


@dataclass(frozen=True)
class FeatureMatrices:
    """The matrices that the neural feature ansatz compares in one layer h = Wa (+ b).

    A convolution is a linear layer on patches: its W is (k, channels · height · width) of the
    filter, and its matrices act on one patch. Query, key and value layers of attention act on
    one token; packed in one weight they are one layer, whose rows belong to one each.
    `positions` is the number of patches or tokens of a sample, 1 for a linear layer.

    Source: Beaglehole et al. 2024, Section 2.1 (NFM, AGOP), eq. 3 and the note on patches and
    tokens below it, eq. 4 (centred).

    Attributes:
        weight_matrix: W, (k, d).
        covariance: K = 1/(n·P) Σ_i Σ_positions Σ_y δᵀδ, (k, k): the mean over samples and P
            positions, the sum over outputs. Multiply by `positions` for the sum over positions. In
            float64 if it is beyond the range of W's precision.
        positions: P.
        initial_weight: W₀, (k, d); None if not given.
        tangent_change: K̄ = 1/(n·P) Σ_i Σ_positions Σ_y (δ − δ₀)ᵀ(δ − δ₀), (k, k) in float64, with
            δ₀ at the initial parameters (Appendix D); None if not requested.
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
        """W̄ᵀW̄ with W̄ = W − W₀, (d, d).

        Raises:
            ValueError: if W₀ is not given.
        """
        return neural_feature_matrix(self._change)

    @property
    def centred_agop(self) -> torch.Tensor:
        """W̄ᵀKW̄ with W̄ = W − W₀ and K of the current weights, (d, d).

        Raises:
            ValueError: if W₀ is not given.
        """
        return average_gradient_outer_product(self._change, self.covariance)

    def correlations(self) -> dict[str, float]:
        """All correlations that are defined, by name, as described in `FeatureProbe`.

        Centred ones need W₀ and weights that have moved; double- and PTK-centred ones need K̄, and
        tangent features that have changed by more than 100 rounding errors (by 1e-5 in float32).
        """
        # In float64, because squares of small changes would underflow in float32.
        weight = self.weight_matrix.double()
        uncentred = feature_pair(weight, self.covariance)
        values: dict[str, float] = {}

        def add(name: str, pair: FeaturePair, subtract_mean: bool = False) -> None:
            with suppress(ValueError):  # a 1 × 1 matrix minus its mean, or one of dead units
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
        if self.tangent_change is not None and self._tangents_changed(self.tangent_change):
            double_centred = feature_pair(change, self.tangent_change)
            add("double_centred_nfc", double_centred)
            if centred.inner > 0:
                values["double_centred_ratio"] = double_centred.inner / centred.inner
            add("ptk_centred_nfc", feature_pair(initial, self.tangent_change))
        return values

    def _tangents_changed(self, change: torch.Tensor) -> bool:
        # By more than rounding errors of δ and δ₀, which are left in their difference.
        rounding = _ROUNDINGS * torch.finfo(self.weight_matrix.dtype).eps
        return bool(change.trace() > rounding**2 * self.covariance.double().trace())

    @property
    def _change(self) -> torch.Tensor:
        if self.initial_weight is None:
            raise ValueError("centred matrices need the initial weights: give `initial`.")
        return self.weight_matrix - self.initial_weight


class Features(dict[str, FeatureMatrices]):
    """NFM, AGOP and their correlations by layer name.

    Source: Beaglehole et al. 2024, Sections 2 and 3.

    Example:
        >>> weight, covariance = torch.tensor([[1.0, 2.0]]), torch.ones(1, 1)
        >>> Features({"first": FeatureMatrices(weight, covariance, positions=1)}).frame()["nfc"]
        layer
        first    1.0
        Name: nfc, dtype: float64
    """

    def frame(self) -> pd.DataFrame:
        """One row per layer, one column per correlation; NaN if a correlation is undefined."""
        rows = [layer.correlations() for layer in self.values()]
        return pd.DataFrame(rows, index=pd.Index(list(self), name="layer"))

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

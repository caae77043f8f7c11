"""Probe for the neural feature correlations of each layer, uncentred and centred."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from feature_alignment.arrays import Matrix, real_tensor
from feature_alignment.gradients.samples import ModelInput
from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.layer_features.feature_matrices import (
    cosine_similarity,
    preactivation_feature_covariance,
)
from feature_alignment.layer_features.layer_matrices import FeatureMatrices
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import MLP
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.probes import Measurement, Row, refuse_reserved


class FeatureProbe:
    """Neural feature correlations (NFC) of a network's layers on fixed samples.

    W, W₀ and W̄ = W − W₀ are a layer's current weights, its initial weights and their change; K is
    the feature covariance of its pre-activation tangent kernel. It records for each layer

    - `nfc`: UC-NFC ρ(WᵀW, WᵀKW);
    - `centred_nfc`: C-NFC ρ(W̄ᵀW̄, W̄ᵀKW̄);
    - `centred_uncentred_ratio`: C/UC, tr(W̄ᵀW̄ W̄ᵀKW̄) / tr(WᵀW WᵀKW);
    - `weight_change`: ‖W − W₀‖ / ‖W‖ in the Frobenius norm;

    and, with `centre_tangents`, for K̄ the covariance of the changes δ − δ₀ of tangent features,

    - `double_centred_nfc`: ρ(W̄ᵀW̄, W̄ᵀK̄W̄);
    - `double_centred_ratio`: tr(W̄ᵀW̄ W̄ᵀK̄W̄) / tr(W̄ᵀW̄ W̄ᵀKW̄);
    - `ptk_centred_nfc`: ρ(W₀ᵀW₀, W₀ᵀK̄W₀).

    UC-NFC and C-NFC are also recorded as the authors' released code computes them, under names
    that end in `_mean_subtracted`. NFM F and AGOP G of the first layer are compared with given
    matrices M: `nfm_<name>` and `agop_<name>` are ρ(F, M) and ρ(G, M). Centred correlations are
    undefined at the start, before anything has changed, and are omitted there; C/UC is 0. Those
    with K̄ are omitted wherever the change of tangent features is zero, or no more than rounding.

    Source: Beaglehole et al. 2024, Section 2.2 (NFC), Section 3 (C-NFC), Section 5 (C/UC), Appendix
    D (double-centred and PTK-centred), Figure 14 (weight change).

    Args:
        model: the network before training; its weights are W₀.
        x: inputs (n, …) on which K is computed, on the model's device.
        layers: names of the layers, see `layer_feature_matrices`; None for all.
        references: matrices (d, d) to compare the first layer with, by name.
        centre_tangents: whether to measure K̄. δ₀ is stored for an MLP, and recomputed at every
            measurement for other networks.
        keep_matrices_at: steps at which the first layer's F and G become arrays "nfm" and "agop".
        split: value of the column `split`.
        partial: whether to report layers whose NFC is not defined as problems and measure the
            others, instead of raising an error.
        options: further arguments of `layer_feature_matrices`, such as `output_samples`.

    Raises:
        ValueError: if a reference is not of real numbers, or zero.

    Example:
        >>> network = nn.Sequential(nn.Linear(2, 1))
        >>> row = FeatureProbe(network, torch.eye(2))(0, network).rows[0]
        >>> row.layer, row.metric, round(row.value, 4)
        ('0', 'nfc', 1.0)
    """

    def __init__(
        self,
        model: nn.Module,
        x: ModelInput,
        *,
        layers: Sequence[str] | None = None,
        references: Mapping[str, Matrix] | None = None,
        centre_tangents: bool = False,
        keep_matrices_at: Collection[int] = (),
        split: str = "train",
        partial: bool = False,
        **options: Any,
    ) -> None:
        self._x, self._layers, self._split, self._partial = x, layers, split, partial
        self._references = {
            name: real_tensor(f"references: {name!r}", matrix)
            for name, matrix in (references or {}).items()
        }
        if zero := [name for name, matrix in self._references.items() if not matrix.any()]:
            raise ValueError(f"references: {zero[0]!r} is zero, so no correlation is defined.")
        self._keep_at = frozenset(keep_matrices_at)
        self._options = {"centre_tangents": centre_tangents, **options}
        self._initial = copy_parameters(model)
        plain = isinstance(x, torch.Tensor) and isinstance(model, MLP)
        keep = centre_tangents and plain and not options
        self._initial_tangents = preactivation_gradients(model, x, layers) if keep else None

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        """Measure every layer.

        Raises:
            TrainingDivergedError: if a layer's weights are zero, or no gradient reaches it, unless
                `partial`.
            ValueError: if a layer is called as the whole network is.
        """
        initial = self._initial_tangents
        if initial is None:
            matrices = layer_feature_matrices(
                model, self._x, self._layers, self._initial, **self._options
            )
        else:
            matrices = {
                name: FeatureMatrices(
                    weight_matrix=model.get_parameter(f"{name}.weight").detach(),
                    covariance=preactivation_feature_covariance(now),
                    positions=1,
                    initial_weight=self._initial[f"{name}.weight"],
                    tangent_change=preactivation_feature_covariance((now - initial[name]).double()),
                )
                for name, now in preactivation_gradients(model, self._x, self._layers).items()
            }
        refuse_reserved(matrices)
        measurement = Measurement()
        for position, (name, layer) in enumerate(matrices.items()):
            values = layer.correlations() if layer.covariance.any() else {}
            if "nfc" not in values:
                told = f"after step {step} no gradient reaches {name}"
                if layer.covariance.any():
                    told = f"{told}, or what it leads to, or its weights are zero"
                if not self._partial:
                    raise TrainingDivergedError(
                        f"training killed the network: {told}; use a smaller learning rate."
                    )
                measurement.problems.append(f"{told}; its correlations are not defined.")
                continue
            if position == 0:
                kept = step in self._keep_at
                # Formed only if needed, since they are large for images.
                own = {"nfm": layer.nfm, "agop": layer.agop} if kept or self._references else {}
                for metric, matrix in own.items():
                    for reference, other in self._references.items():
                        values[f"{metric}_{reference}"] = cosine_similarity(matrix, other)
                    if kept:
                        measurement.arrays[metric] = matrix.cpu().numpy()
            measurement.rows.extend(
                Row(name, self._split, metric, value) for metric, value in values.items()
            )
        return measurement

    def state_dict(self) -> dict[str, Any]:
        """The state of the generator, if any, for a checkpoint."""
        generator = self._options.get("generator")
        return {} if generator is None else {"generator": generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` returned by `state_dict`."""
        if "generator" in state:
            self._options["generator"].set_state(state["generator"])

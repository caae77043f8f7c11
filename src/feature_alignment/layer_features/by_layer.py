"""The features of every layer of a model, in one call."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from torch import nn

from feature_alignment.gradients.samples import ModelInput
from feature_alignment.layer_features.feature_covariance import (
    FeatureMatrices,
    layer_feature_matrices,
)
from feature_alignment.training.evaluation import evaluation_mode


class Features(dict[str, FeatureMatrices]):
    """NFM, AGOP and their correlations by layer name."""

    def frame(self) -> pd.DataFrame:
        """One row per layer, one column per correlation; empty where one is not defined."""
        rows = {name: layer.correlations() for name, layer in self.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("layer")

    def __repr__(self) -> str:
        lines = [
            f"{name}: W {layer.weight_matrix.shape[0]} × {layer.weight_matrix.shape[1]}, "
            + ", ".join(
                f"{metric} {value:.3g}"
                for metric, value in layer.correlations().items()
                if not metric.endswith("_mean_subtracted")
            )
            for name, layer in self.items()
        ]
        return "\n".join([f"Features of {len(self)} layer{'s' * (len(self) > 1)}", *lines])


def features(
    model: nn.Module,
    x: ModelInput,
    initial: Mapping[str, torch.Tensor] | None = None,
    **options: Any,
) -> Features:
    """NFM, AGOP and neural feature correlations of every layer, in all centrings.

    The model is measured in evaluation mode, and put back into its own.

    Source: Beaglehole et al. 2024, Sections 2 and 3 and Appendix D.

    Args:
        model: see `layer_feature_matrices`.
        x: inputs (n, …), as for `tangent_kernel`.
        initial: all parameters of the start by name, as from `copy_parameters(model)`; with them
            come the centred, double-centred and PTK-centred correlations.
        options: further arguments of `layer_feature_matrices`: `layers`, `inputs`, `output`, …

    Returns:
        A mapping from layer names to their matrices, with `frame()`, a table of all correlations.

    Example:
        >>> features(nn.Linear(2, 1, bias=False), torch.ones(5, 2)).frame()["nfc"].tolist()
        [1.0]
    """
    centred = initial is not None
    with evaluation_mode(model):
        return Features(
            layer_feature_matrices(model, x, initial=initial, centre_tangents=centred, **options)
        )

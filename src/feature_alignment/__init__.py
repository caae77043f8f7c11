"""Measure feature learning in neural networks, and replicate papers about it.

The names below are the library for your own models. They are imported on first use, so that
`import feature_alignment as fa` takes no time. `papers` contains the replications.
"""

import importlib
import importlib.util
from typing import Any

_PLACES = {
    "adaptive.adaptive_features": "AdaptiveTangentFeatures",
    "adaptive.penalties": "PowerPenalty adaptive_scale effective_penalty joint_penalty "
    "logarithmic_penalty rigid_penalty",
    "complexity.measures": "distance_from_start fisher_rao_norm frobenius_product layer_matrices "
    "l1_infinity_product margin_quantile pac_bayes_spectral spectral_complexity spectral_product "
    "unit_capacity unit_capacity_bound",
    "complexity.path_norm": "path_norm",
    "complexity.update_path": "PathProbe UpdatePath",
    "layer_features.feature_covariance": "features",
    "layer_features.layer_matrices": "FeatureMatrices Features",
    "free_probability.centred_correlation": "data_matrices predicted_correlation "
    "velocity_correlation",
    "free_probability.random_features": "limiting_moments",
    "free_probability.words": "free_trace matrix_trace moment_trace",
    "gradients.capture_plan": "plan_capture",
    "instrument.callbacks": "LightningMonitor TrainerMonitor",
    "instrument.monitor": "Monitor",
    "kernels.alignment": "centred_kernel_alignment kernel_alignment label_alignment",
    "kernels.average_features": "adapted_kernel average_tangent_features copy_parameters "
    "label_kernel",
    "kernels.eigenfunctions": "eigenfunctions",
    "kernels.jacobian": "Jacobian",
    "kernels.spectrum": "effective_rank kernel_eigenvalues trace_ratio",
    "kernels.tangent": "tangent_features tangent_kernel",
    "kernels.tangent_grams": "TangentKernel",
    "kernels.tangent_trace": "tangent_trace",
    "probes.feature_probe": "FeatureProbe",
    "probes.kernel_probe": "AdaptedKernelProbe Batch TangentKernelProbe",
    "training.speed_limited": "SpeedLimited groups_by_layer",
}
_HOMES = {name: place for place, names in _PLACES.items() for name in names.split()}
_EXTRAS = {"sklearn": "solver", "matplotlib": "plots", "seaborn": "plots", "jinja2": "report"}

_NEEDED = {
    "AdaptiveTangentFeatures": "sklearn",
    "LightningMonitor": "lightning",
    "TrainerMonitor": "transformers",
}
# Omits names whose package is not installed, so that `import *` works.
__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    name for name in _HOMES if name not in _NEEDED or importlib.util.find_spec(_NEEDED[name])
)


def __getattr__(name: str) -> Any:
    """Import the object of this name.

    Raises:
        AttributeError: if there is no such name.
        ImportError: if it needs a package that is not installed; the message says how to get it.
        ModuleNotFoundError: if a missing package belongs to no extra.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise ImportError(
            f"{name} needs {error.name}: pip install 'feature-alignment[{extra}]'."
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    """The names that can be imported."""
    return [*globals(), *__all__]

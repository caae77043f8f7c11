"""The names of the library with their types, for editors and type checkers."""
# ruff: noqa: I001, one import for each module

from feature_alignment.adaptive.adaptive_features import (
    AdaptiveTangentFeatures as AdaptiveTangentFeatures,
)
from feature_alignment.adaptive.penalties import (
    PowerPenalty as PowerPenalty,
    adaptive_scale as adaptive_scale,
    effective_penalty as effective_penalty,
    joint_penalty as joint_penalty,
    logarithmic_penalty as logarithmic_penalty,
    rigid_penalty as rigid_penalty,
)
from feature_alignment.complexity.measures import (
    distance_from_start as distance_from_start,
    fisher_rao_norm as fisher_rao_norm,
    frobenius_product as frobenius_product,
    l1_infinity_product as l1_infinity_product,
    layer_matrices as layer_matrices,
    margin_quantile as margin_quantile,
    pac_bayes_spectral as pac_bayes_spectral,
    spectral_complexity as spectral_complexity,
    spectral_product as spectral_product,
    unit_capacity as unit_capacity,
    unit_capacity_bound as unit_capacity_bound,
)
from feature_alignment.complexity.path_norm import path_norm as path_norm
from feature_alignment.complexity.update_path import (
    PathProbe as PathProbe,
    UpdatePath as UpdatePath,
)
from feature_alignment.free_probability.centred_correlation import (
    data_matrices as data_matrices,
    predicted_correlation as predicted_correlation,
    velocity_correlation as velocity_correlation,
)
from feature_alignment.free_probability.random_features import limiting_moments as limiting_moments
from feature_alignment.free_probability.words import (
    free_trace as free_trace,
    matrix_trace as matrix_trace,
    moment_trace as moment_trace,
)
from feature_alignment.gradients.capture_plan import plan_capture as plan_capture
from feature_alignment.instrument.callbacks import (
    LightningMonitor as LightningMonitor,
    TrainerMonitor as TrainerMonitor,
)
from feature_alignment.instrument.monitor import Monitor as Monitor
from feature_alignment.kernels.alignment import (
    centred_kernel_alignment as centred_kernel_alignment,
    kernel_alignment as kernel_alignment,
    label_alignment as label_alignment,
)
from feature_alignment.kernels.average_features import (
    adapted_kernel as adapted_kernel,
    average_tangent_features as average_tangent_features,
    copy_parameters as copy_parameters,
    label_kernel as label_kernel,
)
from feature_alignment.kernels.eigenfunctions import eigenfunctions as eigenfunctions
from feature_alignment.kernels.jacobian import Jacobian as Jacobian
from feature_alignment.kernels.spectrum import (
    effective_rank as effective_rank,
    kernel_eigenvalues as kernel_eigenvalues,
    trace_ratio as trace_ratio,
)
from feature_alignment.kernels.tangent import (
    tangent_features as tangent_features,
    tangent_kernel as tangent_kernel,
)
from feature_alignment.kernels.tangent_grams import TangentKernel as TangentKernel
from feature_alignment.kernels.tangent_trace import tangent_trace as tangent_trace
from feature_alignment.layer_features.feature_covariance import features as features
from feature_alignment.layer_features.layer_matrices import (
    FeatureMatrices as FeatureMatrices,
    Features as Features,
)
from feature_alignment.probes.feature_probe import FeatureProbe as FeatureProbe
from feature_alignment.probes.kernel_probe import (
    AdaptedKernelProbe as AdaptedKernelProbe,
    Batch as Batch,
    TangentKernelProbe as TangentKernelProbe,
)
from feature_alignment.training.speed_limited import (
    SpeedLimited as SpeedLimited,
    groups_by_layer as groups_by_layer,
)

_HOMES: dict[str, str]
_EXTRAS: dict[str, str]

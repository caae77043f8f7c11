"""baratin2021, Figure 9, Appendix B.5: minimum-norm interpolators on rescaled random features."""

import numpy as np
from scipy.stats import spearmanr
from sklearn.kernel_approximation import RBFSampler

from feature_alignment.complexity import rademacher
from feature_alignment.papers.baratin2021.parameters import Interpolators
from feature_alignment.pipeline.run import SeedResult, SeedRun

PLANE = (1, 10)  # the modes φ_j onto which solutions are projected, counted from 0
CURVES = ("error", "norm_bound", "optimal_bound", "optimal_bound_least", "optimal_bound_most")
# |f(x)| below this is a tie: at scale 0 all predictions are zero up to rounding.
_TIE = 1e-9


def run_seed(run: SeedRun[Interpolators]) -> SeedResult:
    """Interpolate many subsets of the points at each feature scale, in NumPy."""
    modes, squared = _features(run)
    # ψ_0 never changes sign, so the modes are counted from 0: y = sign ψ_1.
    y = np.where(modes[:, 1] > 0, 1.0, -1.0)
    p, rng = run.parameters, run.stream("subsets")
    subsets = [rng.choice(len(y), p.samples, replace=False) for _ in range(p.subsets)]
    result = SeedResult()
    curves: dict[str, list[float]] = {name: [] for name in CURVES}
    for scale in p.scales:
        if p.scaled == "eigenvalues":
            rescaled = np.sqrt(1 + scale * (squared - 1))
        else:
            rescaled = 1 + scale * (np.sqrt(squared) - 1)
        features = modes * rescaled  # in the basis of the φ_j
        measured = np.array([_measure(features, y, subset) for subset in subsets])
        means = measured[:, : len(CURVES)].mean(axis=0)
        for name, value in zip(curves, means, strict=True):
            curves[name].append(float(value))
            result.add(name, value, step=0, split="all", scale=scale)
        solutions = measured[:, len(CURVES) :]
        centred = solutions - solutions.mean(axis=0)
        spread = centred.std(axis=0)
        for name, bound in zip(CURVES[1:3], means[1:3], strict=True):
            result.add(f"{name}_over_error", bound / means[0], step=0, split="all", scale=scale)
        result.add("spread_ratio", spread[1] / spread[0], step=0, split="all", scale=scale)
        result.arrays[f"solutions/{scale}"] = centred
    agreement = spearmanr(curves["norm_bound"], curves["error"]).statistic  # pyright: ignore[reportAttributeAccessIssue]: as in fourier.py
    result.add("norm_bound_agreement", agreement, step=0, split="all")
    return result


def _features(run: SeedRun[Interpolators]) -> tuple[np.ndarray, np.ndarray]:
    """Left singular vectors ψ (N, N) and squared singular values l (N,) of the random features."""
    p = run.parameters
    x = np.linspace(-p.half_width, p.half_width, p.points)
    random_state = int(run.stream("features").integers(2**31))
    sampler = RBFSampler(gamma=p.gamma, n_components=p.points, random_state=random_state)
    modes, singular_values, _ = np.linalg.svd(sampler.fit_transform(x[:, None]))
    return modes, singular_values**2


def _measure(features: np.ndarray, y: np.ndarray, subset: np.ndarray) -> tuple[float, ...]:
    """Error on the other points, both bounds, and the solution's coordinates in the plane."""
    found = rademacher.minimum_norm_interpolator(features[subset], y[subset])
    others = np.ones(len(y), dtype=bool)
    others[subset] = False
    outputs = features[others] @ found.weights
    outputs[np.abs(outputs) < _TIE] = 0
    error = np.mean(0.5 * np.abs(np.sign(outputs) - y[others]))  # a tie counts half
    solved = found.eigenvalues, found.coefficients
    norm = rademacher.interpolator_bound(*solved, np.ones_like(found.eigenvalues))
    optimal = rademacher.interpolator_bound(*solved, rademacher.optimal_norm_scales(*solved))
    ends = rademacher.optimal_bound_range(*solved)
    return float(error), norm, optimal, *ends, *(float(found.weights[mode]) for mode in PLANE)

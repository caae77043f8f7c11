"""baratin2021, Figure 8, Appendix A.5.2: frequencies of a random network's kernel eigenvectors."""

import numpy as np
import scipy.fft
import scipy.stats
import torch

from feature_alignment.kernels.alignment import centre_kernel
from feature_alignment.kernels.eigenfunctions import eigenfunctions
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.parameters import Fourier
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[Fourier]) -> SeedResult:
    """Decompose the tangent kernel of one untrained network, in float64.

    By default the kernel is centred over the n points: its n − 1 eigenfunctions have mean 0. The
    cosine transform does not treat the interval as periodic.
    """
    p = run.parameters
    x = torch.tensor(np.linspace(0, 1, p.points)[:, None], device=run.device)  # (n, 1)
    widths, generator = [p.width] * (p.linear_layers - 1), run.torch_stream("init")
    model = MLP(1, widths, 1, "relu", True, generator, p.init, dtype=torch.float64)
    kernel = tangent_kernel(model.to(run.device), x).total
    # Centring leaves one zero eigenvalue, whose eigenvector is the constant.
    found = eigenfunctions(centre_kernel(kernel) if p.centred else kernel, p.points - 1)
    values, functions = found.eigenvalues, found.functions
    magnitudes = fourier_magnitudes(functions)
    arrays = {"eigenvalues": values, "functions": functions, "magnitudes": magnitudes}
    result = SeedResult(arrays=arrays)
    uncentred = eigenfunctions(kernel, 10).eigenvalues
    result.add("eigenvalue_ratio_10_uncentred", uncentred[9] / uncentred[0], step=0, split="grid")
    result.add("eigenvalue_ratio_10", values[10 - p.first_index] / values[0], step=0, split="grid")
    result.add("eigenvalue_ratio_10_from_0", values[10] / values[0], step=0, split="grid")
    half = len(magnitudes) - 1
    dominant = magnitudes.argmax(axis=0)
    spearman = scipy.stats.spearmanr(np.arange(half), dominant[:half]).statistic  # pyright: ignore[reportAttributeAccessIssue]: SciPy's result has it, its types do not
    result.add("frequency_spearman", spearman, step=0, split="first_half")
    cosines = np.asarray(scipy.fft.dct(functions, axis=0, norm="ortho"))  # (n, n − 1)
    shares = {
        "peak_share": magnitudes.max(axis=0) ** 2,
        "peak_share_cosine": np.max(cosines**2, axis=0) / np.sum(cosines**2, axis=0),
    }
    for name, share in shares.items():
        result.add(name, share[:half].mean(), step=0, split="first_half")
        result.add(name, share[half:].mean(), step=0, split="second_half")
    return result


def fourier_magnitudes(functions: np.ndarray) -> np.ndarray:
    """Magnitude of each frequency in each function, so that squares sum to one per function.

    The discrete Fourier transform treats the functions, real columns (n, m), as periodic. The
    result is (n//2 + 1, m), with row k for the frequency of k periods over the n points.

    Source: baratin2021, Figure 8 (left).
    """
    n = len(functions)
    energy = np.abs(np.fft.rfft(functions, axis=0)) ** 2
    # Frequencies k and n − k of a real function have the same energy; only k is kept.
    energy[1 : (n + 1) // 2] *= 2
    return np.sqrt(energy / energy.sum(axis=0))

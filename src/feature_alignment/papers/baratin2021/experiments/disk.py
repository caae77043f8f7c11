"""baratin2021, Figures 1 and 10, Appendix C.1: the disk dataset and the kernel's eigenfunctions."""

import copy
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import nn

from feature_alignment.data.synthetic import disk, disk_labels, grid
from feature_alignment.kernels.alignment import centre_kernel
from feature_alignment.kernels.eigenfunctions import Eigenfunctions, eigenfunctions, label_energy
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.parameters import Disk
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, bce
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Row

KEPT = 20  # eigenfunctions saved: the paper compares the 20th eigenvalue with the first


def run_seed(run: SeedRun[Disk]) -> SeedResult:
    """Train one network and decompose its tangent kernel on a grid at the scheduled steps."""
    p = run.parameters
    rng = run.stream("data")
    x, y = disk(p.samples, rng)
    x_test, y_test = disk(p.test_samples, rng)
    points = grid(p.grid)  # (m², 2)
    splits = {
        split: (torch.tensor(inputs, **run.to), torch.tensor(labels, **run.to)[:, None])
        for split, (inputs, labels) in {"train": (x, y), "test": (x_test, y_test)}.items()
    }
    widths, generator = [p.width] * (p.linear_layers - 1), run.torch_stream("init")
    model = MLP(2, widths, 1, "relu", True, generator, p.init, dtype=run.dtype).to(run.device)
    on_grid = torch.tensor(points, device=run.device), disk_labels(points)
    recorder = train(
        model,
        *splits["train"],
        loss=bce,
        optimizer=torch.optim.SGD(model.parameters(), lr=p.learning_rate),
        **run.training(p.steps),
        measure_at={step for step in p.measure_at if step <= p.steps} | {p.steps},
        evaluate_on=splits,
        metrics={"accuracy": accuracy},
        probes=[partial(_decompose, p, *on_grid)],
    )
    result = SeedResult(arrays={"x": x, "y": y})
    result.add("inside_share", float(np.mean(y > 0)), step=0)
    return result.extend(recorder)


def _decompose(
    p: Disk, points: torch.Tensor, labels: np.ndarray, step: int, model: nn.Module
) -> Measurement:
    """Spectrum of the tangent kernel on a grid, its top eigenfunctions and their label energy."""
    # In float64, since eigenvalues as small as a thousandth of the largest are compared.
    kernel = tangent_kernel(copy.deepcopy(model).double(), points).total  # (m², m²)
    uncentred = eigenfunctions(kernel, KEPT)
    found = eigenfunctions(centre_kernel(kernel), KEPT) if p.centred else uncentred
    invariances = rotation_invariance(points.cpu().numpy(), found.functions[:, :5])
    values = {
        "eigenvalue_ratio_20": _decay(found) ** (0.5 if p.ratio_of == "singular_values" else 1.0),
        "eigenvalue_ratio_20_uncentred": _decay(uncentred),
        "label_energy_top5": label_energy(found.functions, labels, 5),
        "rotation_invariance_top5": invariances.max(),
        # Of the integral operator, so that it does not grow with the number of grid points.
        "largest_eigenvalue": found.eigenvalues[0] / len(kernel),
    }
    # The grid's second coordinate changes fastest; in images it is the row.
    images = found.functions.T.reshape(KEPT, p.grid, p.grid).swapaxes(1, 2)
    return Measurement(
        rows=[Row(WHOLE_NETWORK, "grid", name, float(v)) for name, v in values.items()],
        arrays={"eigenfunctions": images.astype(np.float32)},
    )


def rotation_invariance(points: np.ndarray, functions: np.ndarray) -> np.ndarray:
    """Share of each function's variance on the unit disk that its mean over angles explains.

    It is 1 for a function of the radius alone, and 0 for one with the same mean over every ring
    (0.05 wide). Points are (N, 2), functions are columns (N, m).

    Source: the "(rotation invariant) modes" of Section 2; the measure is this project's.
    """
    radius = np.hypot(*points.T)
    inside = radius <= 1
    values = pd.DataFrame(functions[inside])
    values -= values.mean()
    means = values.groupby(radius[inside] // 0.05).transform("mean")
    return ((means**2).sum() / (values**2).sum()).to_numpy()


def _decay(found: Eigenfunctions) -> float:
    """λ_20/λ_1."""
    return found.eigenvalues[KEPT - 1] / found.eigenvalues[0]

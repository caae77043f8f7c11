"""The small random problem that the theorems are checked on, and the outcome of a check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from feature_alignment.adaptive.parameter_matrices import matrix_layout
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.kernels.tangent import tangent_features
from feature_alignment.models.mlp import MLP

if TYPE_CHECKING:
    from feature_alignment.papers.lejeune2024.parameters import Theory


@dataclass(frozen=True)
class Check:
    """One number that tells whether a statement holds.

    Attributes:
        metric: what is measured.
        value: the number.
        columns: what tells it from others of the same metric.
    """

    metric: str
    value: float
    columns: Mapping[str, str] = field(default_factory=dict)


def deviation(statement: str, value: float | torch.Tensor, form: str = "stated") -> Check:
    """The relative deviation between the two sides of a statement.

    Args:
        statement: what is checked, such as "theorem1_kernel".
        value: the deviation.
        form: "stated" if the paper's own form is checked; where that is a misprint, "printed" for
            it and "corrected" for what it should be.
    """
    columns = {"statement": statement, "form": form}
    return Check("relative_deviation", float(value), columns)


def relative_distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """‖found − expected‖ / ‖expected‖."""
    return float((found - expected).norm() / expected.norm())


@dataclass(frozen=True)
class Problem:
    """A random network and what is to be interpolated.

    Attributes:
        seed: of the problem, and of what is drawn to solve it.
        network: an MLP of one output.
        x: training inputs (n, d).
        x_new: other inputs.
        y: targets (n, 1).
        features: features of the training inputs by layer, (n, k, d) each with the bias's column.
        features_new: those of the other inputs.
        residual: y − f_θ₀(x), (n,).
    """

    seed: int
    network: MLP
    x: torch.Tensor
    x_new: torch.Tensor
    y: torch.Tensor
    features: list[torch.Tensor]
    features_new: list[torch.Tensor]
    residual: torch.Tensor

    @property
    def flat(self) -> torch.Tensor:
        """All features of the training inputs, (n, p)."""
        return torch.cat([block.flatten(1) for block in self.features], dim=1)

    @property
    def flat_new(self) -> torch.Tensor:
        """All features of the other inputs, (n, p)."""
        return torch.cat([block.flatten(1) for block in self.features_new], dim=1)

    def stream(self, name: str) -> np.random.Generator:
        """NumPy's random stream for one purpose."""
        return stream(self.seed, name)


def random_problem(seed: int, p: "Theory") -> Problem:
    """A random problem in float64, on the CPU."""
    to = {"dtype": torch.float64}
    generator = torch_stream(seed, "data")
    init = torch_stream(seed, "init")
    network = MLP(p.dimension, [p.width], 1, "erf", True, init, "kaiming", **to)
    x, x_new = torch.randn(2, p.samples, p.dimension, generator=generator, **to)
    y = p.target_scale * torch.randn(p.samples, 1, generator=generator, **to)
    with torch.no_grad():
        residual = (y - network(x))[:, 0]
    features, features_new = _blocks(network, x), _blocks(network, x_new)
    return Problem(seed, network, x, x_new, y, features, features_new, residual)


def _blocks(network: MLP, x: torch.Tensor) -> list[torch.Tensor]:
    layout = matrix_layout(network)
    sizes = [shape.numel() for shape in layout.shapes.values()]
    rows = []
    for row in tangent_features(network, x)[:, 0]:
        parts = zip(layout.shapes.items(), row.split(sizes), strict=True)
        rows.append(layout.join({name: part.view(shape) for (name, shape), part in parts}))
    return [torch.stack([row[layer] for row in rows]) for layer in layout.layers]

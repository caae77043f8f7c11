"""The statements of lejeune2024 on a small random problem, against a generic optimiser.

Source: lejeune2024, Theorems 1 and 2, Lemma 5, Propositions 3 and 4, Appendix A.1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from feature_alignment.adaptive.adaptive_features import PENALTIES, AdaptiveTangentFeatures
from feature_alignment.adaptive.adaptive_scales import SQUARE, adaptive_scales
from feature_alignment.adaptive.factorised_flow import factorised_flow
from feature_alignment.adaptive.feature_structures import LayerStructure, LayerTransformation
from feature_alignment.adaptive.joint_minimisation import (
    logarithmic_matrix_penalty,
    minimise_jointly,
    square_penalty,
)
from feature_alignment.adaptive.parameter_matrices import matrix_layout
from feature_alignment.adaptive.penalties import (
    PowerPenalty,
    effective_penalty,
    joint_penalty,
    logarithmic_penalty,
    rigid_penalty,
)
from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.kernels.tangent import tangent_features
from feature_alignment.models.mlp import MLP
from feature_alignment.pipeline.run import SeedResult

Parameters = dict[str, Any]
POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset | None, label: str
) -> SeedResult:
    """Check every statement on one random network, inputs and targets.

    Args:
        seed: the seed.
        parameters: the section `lejeune2024_theory` of the config.
        device: not used: the problem is tiny, and solved in float64.
        dataset: none.
        label: not used.

    Returns:
        Relative deviations between the two sides of each statement; column `form` tells a
        formula as printed from the same corrected. What does not depend on the seed comes with
        seed 0 only.
    """
    problem = _problem(seed, parameters)
    result = SeedResult()
    _theorem_1(seed, problem, parameters, result)
    _theorem_2(seed, problem, parameters, result)
    _gradient_flow(problem, parameters, result)
    if seed == 0:  # nothing of these is random
        _propositions(result)
        _lemma_5(result)
    return result


@dataclass(frozen=True)
class _Problem:
    """A random network and what is to be interpolated.

    Attributes:
        network: an MLP of one output.
        x: training inputs (n, d).
        x_new: other inputs.
        y: targets (n, 1).
        features: features of the training inputs by layer, (n, k, d) each with the bias's column.
        features_new: those of the other inputs.
        residual: y − f_θ₀(x), (n,).
    """

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


def _problem(seed: int, parameters: Parameters) -> _Problem:
    n, d, width = parameters["samples"], parameters["dimension"], parameters["width"]
    generator = torch_stream(seed, "data")
    network = MLP(
        d, [width], 1, "erf", True, torch_stream(seed, "init"), "kaiming", dtype=torch.float64
    )
    x, x_new = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    y = parameters["target_scale"] * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        residual = (y - network(x))[:, 0]
    features, features_new = _blocks(network, x), _blocks(network, x_new)
    return _Problem(network, x, x_new, y, features, features_new, residual)


def _blocks(network: MLP, x: torch.Tensor) -> list[torch.Tensor]:
    layout = matrix_layout(network)
    sizes = [shape.numel() for shape in layout.shapes.values()]
    rows = []
    for row in tangent_features(network, x)[:, 0]:
        parts = zip(layout.shapes.items(), row.split(sizes), strict=True)
        rows.append(layout.join({name: part.view(shape) for (name, shape), part in parts}))
    return [torch.stack([row[layer] for row in rows]) for layer in layout.layers]


def _add(
    result: SeedResult, statement: str, value: float | torch.Tensor, form: str = "stated"
) -> None:
    result.add(
        "relative_deviation", float(value), step=0, split="all", statement=statement, form=form
    )


def _deviation(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def _theorem_1(seed: int, problem: _Problem, parameters: Parameters, result: SeedResult) -> None:
    """M̂, its kernel and its predictions, against descents over all entries of M."""
    phi, phi_new, r = problem.flat, problem.flat_new, problem.residual
    generic = minimise_jointly(
        [phi[:, None, :]],
        r,
        square_penalty,
        stream(seed, "theorem1"),
        parameters["starts"],
        [True],
        identity_first=False,  # from M = I, every step keeps to β and predicts as ridgeless does
    )
    beta = torch.linalg.pinv(phi) @ r
    norm = beta.norm()
    scale = adaptive_scales(SQUARE, rigid_penalty, np.array(float(norm)))
    s = float(scale.first)
    _add(result, "theorem1_objective", abs(generic.objective / float(scale.penalty) - 1))
    (found, _), *_ = generic.transformations
    expected = torch.eye(len(beta)).to(beta) + (s**2 - 1) * torch.outer(beta, beta) / norm**2
    _add(result, "theorem1_transformation", _deviation(found.T @ found, expected))
    change, change_new = phi @ beta, phi_new @ beta
    kernel = phi_new @ phi.T + (s**2 - 1) / norm**2 * torch.outer(change_new, change)
    _add(result, "theorem1_kernel", _deviation(kernel, phi_new @ found.T @ found @ phi.T))
    # What the transformation that was found predicts, without knowledge of β or of Theorem 1.
    (found_coefficients,) = generic.coefficients
    found_change = phi_new @ found_coefficients[0]
    _add(result, "theorem1_predictions", _deviation(found_change, change_new))
    _label_coefficients(phi, result)


def _label_coefficients(phi: torch.Tensor, result: SeedResult) -> None:
    """The label kernel's coefficient (s² − 1)/‖β‖² for the hardest and the easiest target.

    Both targets have norm 1, so that ‖K_ŷ‖ is the same; they are the last and the first
    eigenvector of K₀. The difference is relative to the larger one: with |v − 1| features do not
    move at all for ‖β‖ ≤ 1/√2, and the easy target's coefficient can be 0.
    """
    norms = (1 / torch.linalg.svdvals(phi)).numpy()  # of β for each eigenvector as the target
    for name, penalty in PENALTIES.items():
        s = adaptive_scales(penalty, rigid_penalty, norms).first
        easy, *_, hard = (s**2 - 1) / norms**2
        where = {"step": 0, "split": "all", "penalty": name}
        result.add("label_coefficient", easy, target="easy", **where)
        result.add("label_coefficient", hard, target="hard", **where)
        difference = (hard - easy) / max(hard, easy) if max(hard, easy) > 0 else 0.0
        result.add("coefficient_hard_minus_easy", difference, **where)


def _theorem_2(seed: int, problem: _Problem, parameters: Parameters, result: SeedResult) -> None:
    """The alternating solver against descents over all M, and both forms of the adapted kernel."""
    fixed = [False] * (len(problem.features) - 1) + [True]
    for name, penalty in (("square", square_penalty), ("logarithmic", logarithmic_matrix_penalty)):
        generic = minimise_jointly(
            problem.features,
            problem.residual,
            penalty,
            stream(seed, f"theorem2/{name}"),
            parameters["starts"],
            fixed,
        )
        model = AdaptiveTangentFeatures(
            problem.network,
            penalty=name,
            starts=parameters["starts"],
            tolerance=1e-13,
            max_iter=5000,
            seed=seed,
        ).fit(problem.x, problem.y)
        deviation = abs(model.objective_ / generic.objective - 1)
        _add(result, f"theorem2_objective_{name}", deviation)
    kernel = torch.as_tensor(model.adapted_kernel(problem.x_new, problem.x))
    for form, double in (("corrected", True), ("printed", False)):
        found = _kernel_by_sum(problem, model.transformation_, double)
        _add(result, "theorem2_kernel", _deviation(found, kernel), form)


def _kernel_by_sum(
    problem: _Problem, transformation: LayerTransformation, double: bool
) -> torch.Tensor:
    """K₀ + Σ (s⁽¹⁾_i² s⁽²⁾_j² − 1) φ_ij φ_ijᵀ over pairs of singular vectors, or i = j alone."""
    kernel = problem.flat_new @ problem.flat.T
    blocks = zip(transformation.sides, problem.features, problem.features_new, strict=True)
    for layer, block, block_new in blocks:
        on_inputs, on_outputs = transformation.dense(layer)
        side = transformation.sides[layer]
        # Complete orthogonal bases, whose further vectors have scale 1.
        v, s1 = _complete(side.inputs, side.input_scales, len(on_inputs))
        u, s2 = _complete(side.outputs, side.output_scales, len(on_outputs))
        weights = torch.outer(s2**2, s1**2) - 1  # (k, d)
        if not double:
            weights = torch.diag_embed(weights.diagonal())
            weights = torch.nn.functional.pad(
                weights, (0, len(v) - len(weights), 0, len(u) - len(weights))
            )
        phi, phi_new = (u.T @ b @ v for b in (block, block_new))  # (n, k, d)
        kernel = kernel + torch.einsum("ikd,kd,jkd->ij", phi_new, weights, phi)
    return kernel


def _complete(
    vectors: torch.Tensor, scales: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    full, _, _ = torch.linalg.svd(vectors, full_matrices=True)  # last columns: the complement
    ones = torch.ones(size - len(scales)).to(scales)
    return torch.cat([vectors, full[:, len(scales) :]], dim=1), torch.cat([scales, ones])


def _gradient_flow(problem: _Problem, parameters: Parameters, result: SeedResult) -> None:
    """What gradient flow on the factors conserves, its kernel, and its distance to the minimum."""
    features = [block.numpy() for block in problem.features]
    models = factorised_flow(features, problem.residual.numpy(), parameters["flow_time"])
    f = sum(
        np.einsum("nkd,kd->n", block, model.coefficients)
        for block, model in zip(features, models, strict=True)
    )
    residual = problem.residual.numpy()
    result.add(
        "flow_loss",
        float(np.square(f - residual).sum() / np.square(residual).sum()),
        step=0,
        split="all",
    )
    _add(result, "flow_conservation", max(model.conservation_error() for model in models))
    structure = LayerStructure(logarithmic_penalty, logarithmic_penalty)
    layers = list(matrix_layout(problem.network).layers)
    adapted = structure.adapt(
        {layer: torch.as_tensor(m.coefficients) for layer, m in zip(layers, models, strict=True)}
    )
    transformed = torch.cat(
        [
            (torch.as_tensor(m.on_outputs).T @ block @ torch.as_tensor(m.on_inputs).T).flatten(1)
            for m, block in zip(models, problem.features, strict=True)
        ],
        dim=1,
    )
    rows = [
        dict(zip(layers, blocks, strict=True)) for blocks in zip(*problem.features, strict=True)
    ]
    expected = torch.stack(
        [torch.cat([b.flatten() for b in adapted.apply(row, 1).values()]) for row in rows]
    )
    _add(result, "flow_kernel", _deviation(transformed @ transformed.T, expected @ expected.T))
    minimum = minimise_jointly(
        problem.features,
        problem.residual,
        logarithmic_matrix_penalty,
        stream(0, "flow"),
        1,
        [False] * len(features),
    )
    excess = adapted.penalty / minimum.objective - 1
    result.add("flow_excess_penalty", excess, step=0, split="all")


def _propositions(result: SeedResult) -> None:
    """How far the effective and joint power penalties are from rising, being concave, or 2|β|."""
    square = np.linspace(0, 25, 101)
    worst_rise = worst_bend = 0.0
    for p in POWERS:
        values = effective_penalty(PowerPenalty(p))(np.sqrt(square))
        worst_rise = max(worst_rise, -np.diff(values).min() / values[-1])
        worst_bend = max(worst_bend, np.diff(values, 2).max() / values[-1])
    _add(result, "proposition3_increasing", max(0.0, worst_rise))
    _add(result, "proposition3_concave", max(0.0, worst_bend))
    v = np.linspace(1, 8, 101)
    joints = [joint_penalty(PowerPenalty(p), PowerPenalty(q))(v) for p in POWERS for q in POWERS]
    falls = max(-np.diff(values).min() / values[-1] for values in joints)
    _add(result, "proposition4_increasing", max(0.0, falls, *(abs(values[0]) for values in joints)))
    beta = np.linspace(-3, 3, 13)
    m = np.geomspace(1e-4, 1e2, 600_001)
    cost = sum((m**2 + (b / m) ** 2).min() for b in beta[beta != 0])
    _add(result, "diagonal_1_norm", abs(cost / np.abs(beta).sum() / 2 - 1), "corrected")
    _add(result, "diagonal_1_norm", abs(cost / np.abs(beta).sum() - 1), "printed")


def _lemma_5(result: SeedResult) -> None:
    """A counterexample to "aligned bases are best for fixed scales": B = I, S₁ = S₂ = (2, 1)."""
    inverse = np.diag([1 / 2, 1.0])
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    aligned, swapped = (np.square(inverse @ q @ inverse).sum() for q in (np.eye(2), swap))
    result.add("aligned_over_swapped", float(aligned / swapped), step=0, split="all")

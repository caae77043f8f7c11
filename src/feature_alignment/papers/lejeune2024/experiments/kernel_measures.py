"""lejeune2024, Sections 2.2, 3.1, 3.2, 4: measures of the adapted kernel and its transformation."""

from collections.abc import Mapping

import torch

from feature_alignment.errors import UserError
from feature_alignment.kernels.spectrum import effective_rank
from feature_alignment.kernels.tangent_grams import TangentKernel
from feature_alignment.layer_features.feature_matrices import cosine_similarity
from feature_alignment.pipeline.run import SeedResult

Features = Mapping[str, torch.Tensor]
"""Tangent features (n, entries) with respect to each parameter, by its name."""
ROUNDING = 1e-6
"""In float32, eigenvalues of kernels and singular values of features below this share of the
largest count as zero."""


def kernel_of(features: Features) -> TangentKernel:
    """The tangent kernel, layer by layer, of the features of one output."""
    layers: dict[str, torch.Tensor] = {}
    for name, phi in features.items():
        layer = name.rpartition(".")[0]
        layers[layer] = layers.get(layer, 0) + phi @ phi.T
    return TangentKernel(layers, outputs=1)


def compare(
    kernels: Mapping[str, TangentKernel], label: torch.Tensor, step: int, result: SeedResult
) -> None:
    """Record the kernels' similarities and each layer's share of the change along the label kernel.

    Raises:
        UserError: if the adapted kernel has not changed along the label kernel.
    """
    adapted, initial, final = (kernels[name].total for name in ("adapted", "initial", "final"))
    total = float(((adapted - initial) * label).sum())
    if not total:
        raise UserError(
            "the adapted kernel has not changed along the label kernel: the network does not "
            "learn; make it wider."
        )
    (share, weight), residual = fit_kernels(adapted, [initial, label])
    _, change_residual = fit_kernels(adapted - initial, [label])
    for metric, value in {
        "label_similarity": cosine_similarity(adapted, label),
        "initial_label_similarity": cosine_similarity(initial, label),
        "final_average_cosine": cosine_similarity(final, adapted),
        "final_average_scale": final.norm() / adapted.norm(),
        "average_initial_cosine": cosine_similarity(adapted, initial),
        "mixture_residual": residual,
        "mixture_label_weight": weight,
        "mixture_initial_factor": share * adapted.norm() / initial.norm(),
        "change_residual": change_residual,
    }.items():
        result.add(metric, value, step=step)
    for name, gram in kernels["adapted"].layers.items():
        change = gram - kernels["initial"].layers[name]
        share, cosine = float((change * label).sum()) / total, cosine_similarity(change, label)
        result.add("label_change_share", share, step=step, layer=name)
        result.add("label_change_cosine", cosine, step=step, layer=name)


def fit_kernels(target: torch.Tensor, kernels: list[torch.Tensor]) -> tuple[list[float], float]:
    """Least-squares fit K ≈ Σ_k c_k K_k: c_k‖K_k‖/‖K‖ for each kernel, and ‖residual‖/‖K‖."""
    design = torch.stack([kernel.flatten() for kernel in kernels], dim=1).double()  # (n², k)
    flat = target.flatten().double()
    # On a GPU there is only a solver for full rank, and kernels can be nearly proportional.
    solution = torch.linalg.lstsq(design.cpu(), flat[:, None].cpu()).solution
    coefficients = solution[:, 0].to(flat.device)
    residual = (flat - design @ coefficients).norm() / flat.norm()
    return (coefficients * design.norm(dim=0) / flat.norm()).tolist(), float(residual)


def locate(adapted: torch.Tensor, initial: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """What the adapted kernel reflects besides K₀: the label kernels, and points with y near 0."""
    sign, diagonal = torch.sign(y), adapted.diagonal()
    labels = {"linear": torch.outer(y, y), "binarised": torch.outer(sign, sign)}
    kernels = {"initial": initial, **labels}
    weights, residual = fit_kernels(adapted, list(kernels.values()))
    found = {f"weight_of_{name}": weight for name, weight in zip(kernels, weights, strict=True)}
    found["three_kernels_residual"] = residual
    correlation = torch.corrcoef(torch.stack([diagonal, (sign - y).abs()]))[0, 1]
    found["pearson_diagonal_residual"] = float(correlation)
    near, far = diagonal[y.abs() < 0.25], diagonal[(y.abs() - 1).abs() < 0.25]
    # A small preset can leave either range empty; then there is no ratio to report.
    if len(near) and len(far):
        found["diagonal_ratio_near_boundary"] = float(near.mean() / far.mean())
    return found


def parts_of_prediction(
    average: Features, moved: Features, last: str, y: torch.Tensor, residual: torch.Tensor
) -> dict[str, float]:
    """Parts Σ_ℓ ∇̄f_ℓ(x)(θ − θ₀)_ℓ that the last and the earlier layers add to f_θ₀(x).

    `average` is ∇̄f, `moved` is θ − θ₀ in the parameters' shapes, and `residual`, (n,), is the
    trained targets minus f_θ₀(x). With αy the last layer's part along y, the earlier layers' part
    is compared with `residual` − αy. Source: lejeune2024, Section 3.2.
    """
    parts = {name: average[name] @ change.flatten() for name, change in moved.items()}
    of_last = torch.stack([part for name, part in parts.items() if name.startswith(f"{last}.")])
    of_last, total = of_last.sum(dim=0), torch.stack(list(parts.values())).sum(dim=0)
    earlier, sign, alpha = total - of_last, torch.sign(y), float(of_last @ y / y.square().sum())
    return {
        "last_layer_target_cosine": cosine_similarity(of_last, y),
        "last_layer_sign_cosine": cosine_similarity(of_last, sign),
        "last_layer_target_share": float(of_last @ y / (total @ y)),
        "earlier_layers_residual_cosine": cosine_similarity(earlier, residual - alpha * y),
        "earlier_layers_sign_cosine": cosine_similarity(earlier, sign),
    }


def last_features(features: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """How well linear functions of the final layer's features z(x) fit y and sign y, as cosines.

    `features` has the rows z(x), (n, k), and `y` is (n,), float64. Features of rank n fit any y.
    Source: lejeune2024, Section 3.2.
    """
    # Of the features, not of their kernel: in float32 its eigenvalues, the squares of these
    # singular values, drown in rounding for directions that fit a good part of sign y.
    directions, sizes, _ = torch.linalg.svd(features.double(), full_matrices=False)
    directions, sign = directions[:, sizes > ROUNDING * sizes[0]], torch.sign(y)
    linear, binarised = (directions @ (directions.T @ target) for target in (y, sign))
    return {
        "last_features_target_cosine": cosine_similarity(linear, y),
        "last_features_sign_cosine": cosine_similarity(binarised, sign),
        "best_linear_fit_cosine": cosine_similarity(binarised, y),
    }


def transformation(
    kernel: torch.Tensor, change: Features, residual: torch.Tensor
) -> dict[str, float]:
    """Measures of K₀ (`kernel`) and of the M closest to I with ∇̄f(x) = ∇f_θ₀(x) M at n samples.

    With features as rows, M − I = Φ₀⁺(Φ̄ − Φ₀). Its squared singular values are the eigenvalues of
    K₀⁺G, where G = (Φ̄ − Φ₀)(Φ̄ − Φ₀)ᵀ. `change` is Φ̄ − Φ₀, and `residual` is y − f_θ₀(x), (n,).
    Source: lejeune2024, Sections 2.2, 3.1 and 4.
    """
    kernel, gram = kernel.double(), kernel_of(change).total.double()
    n, white = len(kernel), _whitening(kernel)
    squares = torch.linalg.eigvalsh(white.T @ gram @ white).clamp(min=0)
    # M is fitted to every other sample and tested on the samples in between.
    fitted, others = slice(0, None, 2), slice(1, None, 2)
    half = _whitening(kernel[fitted, fitted])
    carried = kernel[others, fitted] @ half @ half.T
    moved = gram[others, others]
    left = moved - (2 * gram[others, fitted] - carried @ gram[fitted, fitted]) @ carried.T
    return {
        "initial_rank_share": white.shape[1] / n,
        "transformation_rank_share": effective_rank(squares.cpu().numpy()) / n,
        "transferred_share": 1 - float(left.trace() / moved.trace()),
        "ridgeless_norm": float((white.T @ residual.double()).norm()),
    }


def _whitening(kernel: torch.Tensor) -> torch.Tensor:
    """W with WWᵀ = K⁺, (n, rank)."""
    values, vectors = torch.linalg.eigh(kernel)
    kept = values > ROUNDING * values[-1]
    return vectors[:, kept] / values[kept].sqrt()

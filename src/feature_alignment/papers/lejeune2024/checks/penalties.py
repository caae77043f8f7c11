"""Statements on penalties and on the transformations of a product, in which nothing is random.

Source: lejeune2024, Section 3.1, Lemma 5, Propositions 3 and 4.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from feature_alignment.adaptive import penalties
from feature_alignment.adaptive.adaptive_scales import adaptive_scales
from feature_alignment.adaptive.penalties import PowerPenalty
from feature_alignment.pipeline.checks import Check, check_of

POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)


def propositions() -> Iterator[Check]:
    """How far the effective and joint power penalties are from rising, being concave, or 2|β|.

    Of what is said to increase strictly, the share of steps of the grid at which it does not.
    """
    square = np.linspace(0, 25, 101)
    # ω̃(v) = min over u of v²u + ω(u^(−1/2)), whose negative is a conjugate; in print ω(1/u).
    u = np.geomspace(1e-4, 1, 20_001)
    worst: dict[tuple[str, str], float] = {}
    for p in POWERS:
        omega = PowerPenalty(p)
        values = penalties.effective_penalty(omega)(np.sqrt(square))
        scales = penalties.adaptive_scale(omega, np.sqrt(square))
        falls = max(-np.diff(scales).min(), abs(scales[0] - 1)) / scales[-1]
        found = {
            ("proposition3_increasing", "stated"): np.mean(np.diff(values) <= 0),
            ("proposition3_concave", "stated"): np.diff(values, 2).max() / values[-1],
            ("scale_increasing", "stated"): falls,
        }
        for form, inner in (("corrected", u**-0.5), ("printed", 1 / u)):
            least = np.array([(v * u + omega(inner)).min() for v in square])
            found["proposition3_conjugate", form] = np.abs(least - values).max() / values[-1]
        worst = {key: max(value, worst.get(key, 0.0)) for key, value in found.items()}
    for (statement, form), value in worst.items():
        yield check_of(statement, value, form)
    v = np.linspace(1, 8, 101)
    pairs = itertools.product(map(PowerPenalty, POWERS), repeat=2)
    joints = [penalties.joint_penalty(*pair)(v) for pair in pairs]
    level = max(np.mean(np.diff(values) <= 0) for values in joints)
    starts = max(abs(values[0]) for values in joints)
    yield check_of("proposition4_increasing", max(level, starts))
    beta = np.linspace(-3, 3, 13)
    m = np.geomspace(1e-4, 1e2, 600_001)
    cost = sum((m**2 + (b / m) ** 2).min() for b in beta[beta != 0])
    yield check_of("diagonal_1_norm", abs(cost / np.abs(beta).sum() / 2 - 1), "corrected")
    yield check_of("diagonal_1_norm", abs(cost / np.abs(beta).sum() - 1), "printed")


def lemma_5_counterexamples() -> Iterator[Check]:
    """Products whose cost is less where the transformations do not share their singular vectors.

    Both of B = diag(3, 2), with transformations I + (s − 1)uuᵀ of one scale s along directions
    that are each other's mirror images. With fixed scales, as in the proof: S₁ = S₂ = diag(2, 1),
    whose larger ones may meet or not where vectors are shared. With free ones, as in the lemma: for
    ω = |v − 1|^½. Costs of the tilted ones are upper bounds of the minimum; s and the angle of u
    need not be the best.
    """
    values, flip = np.array([3.0, 2.0]), np.array([1.0, -1.0])
    inverse = np.array([1 / 2, 1.0])  # of the scales
    least = min(np.square(inverse * values * other).sum() for other in (inverse, inverse[::-1]))
    u = np.sqrt([2 / 3, 1 / 3])
    left, right = (np.eye(2) - np.outer(v, v) / 2 for v in (u, u * flip))  # (I + vvᵀ)⁻¹
    yield Check("shared_over_tilted", least / np.square(left @ np.diag(values) @ right).sum())
    omega = PowerPenalty(0.5)
    shared = adaptive_scales(omega, omega, values).penalty.sum()  # eq. 3
    scale, angle = 3.32, 0.66
    direction = np.array([np.cos(angle), np.sin(angle)])
    first, second = (
        np.eye(2) + (1 / scale - 1) * np.outer(v, v) for v in (direction, direction * flip)
    )
    w = first @ np.diag(values) @ second  # M₁⁻¹BM₂⁻¹
    mirrored = 2 * omega(np.array([scale])).sum() + np.square(w).sum()
    yield Check("shared_over_mirrored", shared / mirrored)

"""The alignment reversing data set, constructed to break the alignment of NFM and AGOP."""

from functools import cached_property

import numpy as np

from feature_alignment.errors import UserError, check_choice

READINGS = ("tempered", "square", "compact", "rounded")


class AlignmentReversing:
    """One draw of the alignment reversing data set, for every balance γ; n = d.

    The paper's construction, for n samples of which γn have label 1:

    1. X⁽¹⁾ and X̃⁽²⁾ have rows from N(0, 11ᵀ + ε₁ I), U₁ S₁ U₁ᵀ = (X⁽¹⁾)ᵀX⁽¹⁾ and X̃⁽²⁾ = V₂ S₂ U₂ᵀ.
    2. X⁽²⁾ = V₂ S₁⁻¹ U₁ᵀ, so that its Gram is the inverse square of that of X⁽¹⁾.
    3. X stacks X⁽¹⁾ with labels 1 on X⁽²⁾ with labels 0.
    4. X ← X + ε₂ Z with Z standard normal, y ← y + label_shift.

    Taken literally this is impossible: with γn < d rows the Gram of X⁽¹⁾ is singular, and the
    shapes in step 2 do not match. There are four readings:

    - "compact": X⁽¹⁾ has γn rows and X̃⁽²⁾ the other (1 − γ)n; step 2 keeps as many singular
      triples as both have. The spike 11ᵀ makes all matrices effectively rank one.
    - "square": X⁽¹⁾ and X̃⁽²⁾ are both n × n, so step 2 works; X has the first γn rows of X⁽¹⁾
      and the last (1 − γ)n rows of X⁽²⁾.
    - "tempered": square, with the covariance 11ᵀ/d + ε₁ I, rows divided by √n, and (S₁ + δ)⁻¹ in
      place of S₁⁻¹. With this reading the correlation varies with γ.
    - "rounded": step 2 as printed, for the Gram of γn rows rounded to float32, which keeps its
      singular values away from zero; X̃⁽²⁾ is n × n, and X has the last (1 − γ)n rows of X⁽²⁾.
      Everything else is in float64, so that hardware rounding has no effect.

    The generator draws X⁽¹⁾, X̃⁽²⁾ and Z, in this order; δ is positive.

    Source: Beaglehole et al. 2024, Appendix G, which gives the default ε₁, ε₂ and shift, but no δ.

    Raises:
        UserError: if the reading is unknown, n, ε₁ or δ is not positive, ε₂ is negative, or one of
            them or the shift is not finite.
    """

    def __init__(
        self,
        n: int,
        generator: np.random.Generator,
        *,
        reading: str = "tempered",
        epsilon1: float = 0.5,
        epsilon2: float = 1e-2,
        delta: float = 1e-3,
        label_shift: float = 1e-5,
    ) -> None:
        check_choice("reading", reading, READINGS)
        if not (n > 0 and epsilon1 > 0 and epsilon2 >= 0):
            raise UserError(
                f"n, epsilon1, epsilon2: {n}, {epsilon1}, {epsilon2}; n and ε₁ are to be positive, "
                "ε₂ at least 0."
            )
        if not delta > 0:
            raise UserError(f"delta: {delta}, wanted a positive number; at 0 take square.")
        if not np.isfinite([epsilon1, epsilon2, delta, label_shift]).all():
            raise UserError(
                f"epsilon1, epsilon2, delta, label_shift: {epsilon1}, {epsilon2}, {delta}, "
                f"{label_shift}, wanted finite numbers."
            )
        self.n = n
        self.reading = reading
        scale = 1 / np.sqrt(n) if reading == "tempered" else 1.0
        drawn = []
        for _ in range(2):  # rows from N(0, s² 11ᵀ + ε₁ I), times s
            common = scale * generator.standard_normal((n, 1))
            drawn.append(scale * (common + np.sqrt(epsilon1) * generator.standard_normal((n, n))))
        self._first, self._other = drawn
        self._noise = epsilon2 * generator.standard_normal((n, n))
        self._delta = delta if reading == "tempered" else 0.0
        self._label_shift = label_shift

    def sample(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Inputs x (n, d = n) and labels y (n,) at balance γ, the share of label 1, in (0, 1].

        Raises:
            UserError: if γ is not in (0, 1] or leaves no sample with label 1.
        """
        n = self.n
        if not 0 < gamma <= 1 or round(gamma * n) == 0:
            raise UserError(f"gamma: {gamma} of {n} samples, wanted 1/{n} to 1; correct it.")
        ones = round(gamma * n)
        first = self._first[:ones]
        if self.reading == "compact":
            _, singular, right = np.linalg.svd(first, full_matrices=False)
            left = np.linalg.svd(self._other[ones:], full_matrices=False)[0]
            rank = min(ones, n - ones)
            second = (left[:, :rank] / singular[:rank] ** 2) @ right[:rank]
        elif self.reading == "rounded":
            gram = (first.T @ first).astype(np.float32)
            _, singular, right = np.linalg.svd(gram.astype(np.float64))
            second = (self._left[ones:] / singular) @ right
        else:
            second = self._inverse[ones:]
        x = np.concatenate([first, second]) + self._noise
        y = np.where(np.arange(n) < ones, 1.0, 0.0) + self._label_shift
        return x, y

    @cached_property
    def _left(self) -> np.ndarray:
        """V₂ of the n × n X̃⁽²⁾, (n, n)."""
        return np.linalg.svd(self._other)[0]

    @cached_property
    def _inverse(self) -> np.ndarray:
        """X⁽²⁾ = V₂ (S₁ + δ)⁻¹ U₁ᵀ of the square and tempered readings, (n, n)."""
        _, singular, right = np.linalg.svd(self._first)
        return (self._left / (singular**2 + self._delta)) @ right  # S₁ is that of the Gram

"""Measurement schedules: the steps at which a run is measured, 0 before the first update."""

from collections.abc import Iterable

from feature_alignment.errors import UserError


def every(k: int, steps: int) -> list[int]:
    """Steps 0, k, 2k, … up to `steps`, and `steps` itself.

    Raises:
        UserError: if k is not positive.
    """
    if k < 1:
        raise UserError(f"measure_at: every {k} steps is not possible; give at least 1.")
    return sorted({*range(0, steps + 1, k), steps})


def geometric(steps: int, first: float = 5, ratio: float = 1.15) -> list[int]:
    """Step 0 and the distinct integer parts of first · ratioʲ, j = 0, 1, …, up to `steps`.

    Source: Baratin et al. 2021, released code, which measures nothing before the first update.

    Raises:
        UserError: if `first` is below 1, or `ratio` is not above 1.
    """
    if first < 1 or ratio <= 1:
        raise UserError(
            f"measure_at: first {first} and ratio {ratio} do not make a growing schedule; "
            "give first at least 1 and ratio above 1."
        )
    chosen = {0}
    position = float(first)
    while int(position) <= steps:
        chosen.add(int(position))
        position *= ratio
    return sorted(chosen)


def explicit(chosen: Iterable[int], steps: int) -> list[int]:
    """The listed steps, in order and without duplicates.

    Raises:
        UserError: if a step is outside 0 … steps.
    """
    ordered = sorted(set(chosen))
    if outside := [step for step in ordered if not 0 <= step <= steps]:
        raise UserError(
            f"measure_at: step {outside[0]} is outside the run's 0 to {steps}; "
            "remove it or train longer."
        )
    return ordered

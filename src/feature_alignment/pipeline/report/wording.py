"""Numbers as the report writes them."""

import math
from collections.abc import Callable, Mapping, Sequence

MINUS = "−"
NOTHING = "–"
_MORE = 4  # the most digits that are added to tell a number from a bound


def number_text(value: float | None, digits: int = 3, *bounds: float | None) -> str:
    """A number with `digits` significant digits, or a dash for None or NaN.

    It has more digits where it would read like one of the bounds without being equal to it.

    Example:
        >>> number_text(0.0135), number_text(-2.0), number_text(12345.6), number_text(None)
        ('0.0135', '−2', '12300', '–')
        >>> number_text(1.0026, 3, 1.0)
        '1.003'
    """
    if value is None or math.isnan(value):
        return NOTHING
    return _significant(value, _digits_apart(_significant, value, digits, bounds))


def stated_text(value: float | None, decimals: int | None = None) -> str:
    """A paper's number, with the decimals that it prints if the last of them are zeros.

    Example:
        >>> stated_text(0.4), stated_text(0.4, 2)
        ('0.4', '0.40')
    """
    return number_text(value) if value is None or decimals is None else _rounded(value, decimals)


def _digits_apart(
    write: Callable[[float, int], str], value: float, digits: int, bounds: Sequence[float | None]
) -> int:
    """The fewest digits, at least those given, with which a value and bounds differ in print."""
    others = [bound for bound in bounds if bound not in (None, value) and not math.isnan(bound)]
    for enough in range(digits, digits + _MORE + 1):
        if all(write(value, enough) != write(bound, enough) for bound in others):
            return enough
    return digits


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -5 <= magnitude < 7:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    text = f"{round(value, digits - 1 - magnitude):.{max(digits - 1 - magnitude, 0)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS)


def measured_text(mean: float | None, sd: float | None, *bounds: float | None) -> str:
    """A mean with its spread, both up to the second digit of the spread.

    The mean has more digits where it would read like one of the bounds without being equal to it.

    Example:
        >>> measured_text(0.95324, 0.0871), measured_text(1234.5, 120.0)
        ('0.953 ± 0.087', '1230 ± 120')
        >>> measured_text(2.0, float("nan"))
        '2'
        >>> measured_text(None, None)
        '–'
    """
    if mean is None or math.isnan(mean) or sd is None or math.isnan(sd):
        return number_text(mean, 3, *bounds)
    last = 1 - math.floor(math.log10(sd)) if sd else 0
    if sd == 0 or last > 6 or max(abs(mean), sd) >= 1e6:
        return f"{number_text(mean, 3, *bounds)} ± {number_text(sd, 2)}"
    enough = _digits_apart(_rounded, mean, last, bounds)
    return f"{_rounded(mean, enough)} ± {_rounded(sd, last)}"


def _rounded(value: float, decimals: int) -> str:
    return f"{round(value, decimals):.{max(decimals, 0)}f}".replace("-", MINUS)


def count_text(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> count_text(1, "seed"), count_text(10, "seed")
        ('1 seed', '10 seeds')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def share_text(seconds: Mapping[str, float], part: str) -> str:
    """Share of one part in the total time, or a dash if no time was taken.

    Example:
        >>> share_text({"training": 30.0, "measuring": 10.0}, "measuring"), share_text({}, "x")
        ('25 %', '–')
    """
    total = sum(seconds.values())
    return f"{100 * seconds[part] / total:.0f} %" if total else "–"


def duration_text(seconds: float) -> str:
    """An elapsed time.

    Example:
        >>> duration_text(4.24), duration_text(65), duration_text(7380)
        ('4.2 s', '1 min 5 s', '2 h 3 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def memory_text(mebibytes: float | None) -> str:
    """An amount of memory.

    Example:
        >>> memory_text(511.6), memory_text(2560), memory_text(None)
        ('512 MiB', '2.5 GiB', '–')
    """
    if mebibytes is None:
        return NOTHING
    if mebibytes < 1024:
        return f"{mebibytes:.0f} MiB"
    return f"{mebibytes / 1024:.1f} GiB"

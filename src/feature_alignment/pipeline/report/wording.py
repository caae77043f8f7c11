"""Numbers as the report writes them."""

import math
from collections.abc import Mapping

MINUS = "−"
NOTHING = "–"


def number_text(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, or a dash for None or NaN.

    Example:
        >>> number_text(0.0135), number_text(-2.0), number_text(12345.6), number_text(None)
        ('0.0135', '−2', '12300', '–')
    """
    if value is None or math.isnan(value):
        return NOTHING
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -5 <= magnitude < 7:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    text = f"{round(value, digits - 1 - magnitude):.{max(digits - 1 - magnitude, 0)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS)


def measured_text(mean: float | None, sd: float | None) -> str:
    """A mean with its spread, both up to the second digit of the spread.

    Example:
        >>> measured_text(0.95324, 0.0871), measured_text(1234.5, 120.0)
        ('0.953 ± 0.087', '1230 ± 120')
        >>> measured_text(2.0, float("nan"))
        '2'
        >>> measured_text(None, None)
        '–'
    """
    if mean is None or math.isnan(mean) or sd is None or math.isnan(sd):
        return number_text(mean)
    last = 1 - math.floor(math.log10(sd)) if sd else 0
    if sd == 0 or last > 6 or max(abs(mean), sd) >= 1e6:
        return f"{number_text(mean)} ± {number_text(sd, 2)}"
    texts = (f"{round(value, last):.{max(last, 0)}f}" for value in (mean, sd))
    return " ± ".join(texts).replace("-", MINUS)


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

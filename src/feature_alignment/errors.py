"""Errors caused by a user's input, explained in one sentence."""

import difflib
import reprlib
import textwrap
from collections.abc import Collection, Iterable
from numbers import Integral
from typing import Any

_LONGEST, _LONGEST_LIST, _LONGEST_REASON = 60, 120, 180


class UserError(ValueError):
    """A mistake in a config, a file or a request; the message says in one sentence what to do.

    Scripts and the Snakefile print the message without a traceback.
    """

    @property
    def traceback(self) -> str:
        """The traceback to show before the message: empty, except for faults in code."""
        return ""


def suggestion(value: object, allowed: Iterable[str]) -> str:
    """The end of an error message: the allowed values, after a suggestion if one is close.

    Example:
        >>> suggestion("quik", ["smoke", "quick"])
        "did you mean 'quick'? Allowed: quick, smoke"
        >>> suggestion("disk", ["key2024_coin", "key2024_disk"])
        "did you mean 'key2024_disk'? Allowed: key2024_coin, key2024_disk"
        >>> suggestion("x", ["smoke", "quick"])
        'allowed: quick, smoke'
        >>> suggestion("x", [])
        'allowed: none'
    """
    names = sorted(allowed)
    listed = textwrap.shorten(", ".join(names), _LONGEST_LIST, placeholder=" …") or "none"
    text = shortened(value, quoted=False)
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.7)
    near += [name for name in names if name.partition("_")[2] == text]  # without the paper's key
    return f"did you mean {near[0]!r}? Allowed: {listed}" if near else f"allowed: {listed}"


def check_choice(key: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse a value that is not among the allowed ones.

    Raises:
        UserError: with the key, the value, the allowed values and a suggestion.
    """
    check_known(f"{key}: {shortened(value)} is unknown", value, list(allowed))


def check_known(told: str, name: object, known: Collection[str]) -> None:
    """Refuse a name that is not among the known ones.

    Raises:
        UserError: with `told`, such as "papers: unknown paper 'x'", and a suggestion.
    """
    if name not in known:
        raise UserError(f"{told}; {suggestion(name, known)}.")


def check_kind(key: str, value: object, kind: Any, wanted: str) -> None:
    """Refuse what is of another kind, a class or several, such as `collections.abc.Callable`.

    Raises:
        UserError: with the key, the value's class, and what is wanted.

    Example:
        >>> check_kind("plan", 3, int, "a number")
    """
    if not isinstance(value, kind):
        raise UserError(f"{key}: a {type(value).__name__}; give {wanted}.")


def check_whole(key: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse what is not a whole number from `least` to `most`; None: without an upper bound.

    Raises:
        UserError: with the key, the value and the bounds.

    Example:
        >>> check_whole("points", 2, 2)
    """
    whole = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if whole is None or whole < least or (most is not None and whole > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UserError(f"{key}: {shortened(value)}; it must be a whole number {bounds}.")


class _Short(reprlib.Repr):
    """Reads no more of a value than it shows, because YAML aliases can make values endless."""

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 1000 else f"an integer of {x.bit_length()} bits"


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 1000, 1000
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = 8
_SHORT.fillvalue = "…"


def shortened(value: object, *, quoted: bool = True) -> str:
    """A value as text, with the middle cut out if it is long; strings unquoted unless `quoted`.

    Example:
        >>> shortened("quik"), len(shortened("x" * 1000))
        ("'quik'", 60)
    """
    text = value if isinstance(value, str) and not quoted else _SHORT.repr(value)
    text = text if text.isprintable() else repr(text)[1:-1]
    half = (_LONGEST - 1) // 2
    return text if len(text) <= _LONGEST else f"{text[: half + 1]}…{text[-half:]}"


def reason(error: BaseException) -> str:
    """An exception's message on one line, shortened if long; its type if there is no message."""
    return textwrap.shorten(str(error), _LONGEST_REASON, placeholder=" …") or type(error).__name__

"""Errors caused by a user's input, told in one sentence."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in a config, a file or a request; its message says in one sentence what to do.

    Scripts and the Snakefile print the message without a traceback.
    """

    @property
    def traceback(self) -> str:
        """What to show of a traceback before the message: nothing, but for faults in code."""
        return ""


def suggestion(value: object, allowed: Iterable[str]) -> str:
    """The end of an error message: what is allowed, nearest first if one is near.

    Example:
        >>> suggestion("quik", ["smoke", "quick"])
        "did you mean 'quick'? Allowed: quick, smoke"
        >>> suggestion("x", ["smoke", "quick"])
        'allowed: quick, smoke'
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.7)
    if near:
        return f"did you mean {near[0]!r}? Allowed: {', '.join(names)}"
    return f"allowed: {', '.join(names)}"

"""What the pipeline requires of a paper's code, and its faults in one sentence that says where.

Every job imports this module before its environment is checked: standard library only.
"""

import errno
import re
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from feature_alignment.errors import UserError
from feature_alignment.pipeline.imports import PACKAGE

_OWED = {
    "points": "it takes the settings and returns a list of Points",
    "table": "it takes the runs and returns a FigureTable whose frame has the columns seed, metric "
    "and value",
    "draw": "it takes a FigureTable and returns a matplotlib Figure",
    "run_seed": "it takes a SeedRun and returns a SeedResult with rows",
}
# Faults of the machine rather than the code: a disk that is full, failing, not accessible, or of
# another machine that does not answer.
DISK_FAULTS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN, errno.EHOSTDOWN),
)
_OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory", re.IGNORECASE)
_FRAMES = 5
_LONGEST = 300


class PaperError(UserError):
    """A fault in a paper's code; if an exception revealed it, that is its cause."""

    @property
    def traceback(self) -> str:
        """The part of the cause's traceback from the paper's code on; empty without a cause."""
        return "" if self.__cause__ is None else short_traceback(self.__cause__)


class BreachError(Exception):
    """A paper's function did what it must not; the message ends a sentence."""


def must(holds: bool, otherwise: str) -> None:
    """Require, within `owed_by`, that a condition holds.

    Raises:
        BreachError: with the message `otherwise`, such as "returned nothing", if it does not hold.
    """
    if not holds:
        raise BreachError(otherwise)


@contextmanager
def owed_by(function: str, module: str, what: str) -> Iterator[None]:
    """Turn the errors of a paper's function that is called in this context into one sentence.

    `function` is points, table, draw or run_seed, `module` its dotted name, and `what` the figure
    or point that it is called for.

    Raises:
        PaperError: naming all three, what went wrong and where, and what the function must do.
        UserError: for a user's mistake, prefixed with where it was found; or a lack of memory.
        OSError: for a fault of the disk, unchanged.
    """
    where = f"{what}: {function} of {module}"
    try:
        yield
    except UserError as error:
        if str(error).startswith("experiments."):  # it names a key of the configuration
            raise
        raise UserError(f"{where if function == 'points' else what}: {error}") from error
    except BreachError as breach:
        raise PaperError(f"{where} {breach}; {_OWED[function]}.") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_FAULTS:
            raise
        if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
            raise UserError(
                f"{what}: there is not enough memory for these settings ({told(error)}); lower "
                "samples or widths, or run it where there is more."
            ) from None
        raise PaperError(f"{where} failed ({told(error)}); {_OWED[function]}.") from error


def told(error: Exception, place: str = "") -> str:
    """An exception in one line: where in a paper's code, or else the given place, and what."""
    from pydantic import ValidationError

    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_of_a_paper(frame):
            place = f"{frame.f_code.co_filename}:{line}"
    kind, words = type(error).__name__, str(error)
    if isinstance(error, SyntaxError):
        place, words = f"{error.filename}:{error.lineno}", error.msg
    elif isinstance(error, ValidationError):
        first = error.errors()[0]
        words = ": ".join([error.title, ".".join(map(str, first["loc"])), first["msg"]])
    elif isinstance(error, KeyError) and error.args:
        words = str(error.args[0])
    if not isinstance(error, UserError):
        words = f"{kind}: {words}" if words else kind
    words = textwrap.shorten(words, _LONGEST, placeholder=" …").rstrip(".")
    return f"{place}: {words}" if place else words


def short_traceback(error: BaseException) -> str:
    """The first frames of a traceback from a paper's code on; without any, the last frames."""
    own = error.__traceback__
    while own is not None and not _is_of_a_paper(own.tb_frame):
        own = own.tb_next
    frames = own or error.__traceback__
    limit = _FRAMES if own else -_FRAMES
    return "".join(traceback.format_exception(type(error), error, frames, limit, chain=False))


def _is_of_a_paper(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(f"{PACKAGE}.papers.")

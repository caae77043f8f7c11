"""What a paper's own code owes the pipeline, and its faults: one sentence that says where.

Every job imports this before its environment is checked: the standard library only.
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
# Faults of the machine, not of the code that meets them: a full, failing or forbidden disk.
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)
_OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory", re.IGNORECASE)
_FRAMES = 5
_LONGEST = 300


class PaperError(UserError):
    """A fault in a paper's own code; where code raised it, the cause has the traceback."""

    @property
    def traceback(self) -> str:
        """The part of the cause's traceback that is the paper's."""
        return "" if self.__cause__ is None else short_traceback(self.__cause__)


class BreachError(Exception):
    """What a paper's function did that it must not, as the end of a sentence."""


def must(holds: bool, otherwise: str) -> None:
    """Say, within `owed_by`, what a function owes.

    Raises:
        BreachError: with the words of `otherwise`, such as "returned nothing", if it does not hold.
    """
    if not holds:
        raise BreachError(otherwise)


@contextmanager
def owed_by(function: str, module: str, what: str) -> Iterator[None]:
    """Call a paper's function in here: what it raises becomes one sentence.

    The function is points, table, draw or run_seed, the module is named with dots, and `what` is
    the figure or point that it is called for.

    Raises:
        PaperError: naming all three, what went wrong and where, and what the function owes.
        UserError: a user's mistake, after what it was found at; or a want of memory.
        OSError: a fault of the disk, as it is.
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
    """An exception in one line: the place in a paper's code, or else the given one; what it is."""
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
    """The first frames of a traceback from the paper's own code on; without any, the last ones."""
    own = error.__traceback__
    while own is not None and not _is_of_a_paper(own.tb_frame):
        own = own.tb_next
    frames = own or error.__traceback__
    limit = _FRAMES if own else -_FRAMES
    return "".join(traceback.format_exception(type(error), error, frames, limit, chain=False))


def _is_of_a_paper(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(f"{PACKAGE}.papers.")

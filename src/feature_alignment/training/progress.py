"""Progress of a run: a log line every few seconds, and a bar where a person is watching."""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

import torch

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger(__name__)


class Progress:
    """Reports steps done, loss and remaining time of one training run, by its label.

    The loss is read from the device only when a line is due, after `interval` seconds by the clock,
    so that reporting does not slow training down. The bar is drawn on a terminal only, to `stream`
    or standard error, and where tqdm is installed.
    """

    def __init__(
        self,
        steps: int,
        label: str,
        interval: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        stream: TextIO | None = None,
    ) -> None:
        self._steps, self._label = steps, label
        self._interval, self._clock = interval, clock
        self._begin = self._last = clock()
        self._first = 0
        terminal: TextIO = sys.stderr if stream is None else stream
        self._bar = _bar(steps, label, terminal) if terminal.isatty() else None

    def start_after(self, step: int) -> None:
        """Report that an earlier attempt did `step` updates, in a time that is not known."""
        self._begin = self._last = self._clock()
        self._first = step
        if self._bar is not None:
            self._bar.update(step)

    def update(self, step: int, loss: torch.Tensor) -> None:
        """Report that `step` updates are done and the last batch had this loss."""
        if self._bar is not None:
            self._bar.update(1)
        now = self._clock()
        if now - self._last >= self._interval:
            self._last = now
            left = (now - self._begin) * (self._steps - step) / (step - self._first)
            logger.info(
                "%s: step %d of %d, loss %.4g, about %.0f s left",
                self._label,
                step,
                self._steps,
                float(loss),
                left,
            )

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def summarise(self, seconds: Mapping[str, float]) -> None:
        """Log how long the run took, and what share of it each part; see `Recorder.seconds`."""
        total = max(sum(seconds.values()), 1e-9)
        shares = (f"{100 * value / total:.0f} % {part}" for part, value in seconds.items())
        logger.info("%s: %.1f s: %s", self._label, total, ", ".join(shares))


def _bar(steps: int, label: str, terminal: TextIO) -> "tqdm | None":
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return None
    return tqdm(total=steps, desc=label, file=terminal, mininterval=0.5, leave=False)

"""Progress of a run: a log line every few seconds, and a progress bar in a terminal."""

import logging
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import torch

logger = logging.getLogger(__name__)


class Progress:
    """Reports steps done, loss and remaining time of one training run, under its label.

    The loss is read from the device only when a line is due, every `interval` seconds, so that
    training is not slowed down. A bar is drawn on standard error if that is a terminal with tqdm.
    """

    def __init__(self, steps: int, label: str, interval: float = 10.0) -> None:
        self._steps, self._label, self._interval = steps, label, interval
        self._begin = self._last = time.monotonic()
        self._first, self._measure_at = 0, list[int]()
        self._measuring, self._measurements = 0.0, 0
        self._bar = None
        if sys.stderr.isatty():
            with suppress(ModuleNotFoundError):
                from tqdm import tqdm

                self._bar = tqdm(total=steps, desc=label, mininterval=0.5, leave=False)

    def start_after(self, step: int, measure_at: Iterable[int] = ()) -> None:
        """Report that an earlier attempt did `step` updates, in unknown time.

        `measure_at` are the measured steps, whose time is told by `measured`.
        """
        self._begin = self._last = time.monotonic()
        self._first, self._measure_at = step, list(measure_at)
        if self._bar is not None:
            self._bar.update(step)

    def measured(self, seconds: float) -> None:
        """Report that a measurement took that long; updates and measurements count separately."""
        self._measuring += seconds
        self._measurements += 1

    def update(self, step: int, loss: torch.Tensor) -> None:
        """Report that `step` updates are done and the last batch had this loss."""
        if self._bar is not None:
            self._bar.update(1)
        now = time.monotonic()
        if now - self._last >= self._interval:
            self._last = now
            updates = (now - self._begin - self._measuring) / (step - self._first)
            coming = sum(at >= step for at in self._measure_at)
            measuring = coming * self._measuring / max(self._measurements, 1)
            left = updates * (self._steps - step) + measuring
            told = self._label, step, self._steps, float(loss), left
            logger.info("%s: step %d of %d, loss %.4g, about %.0f s left", *told)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def summarise(self, seconds: Mapping[str, float]) -> None:
        """Log how long the run took, and the share of each part; see `Recorder`."""
        total = max(sum(seconds.values()), 1e-9)
        shares = (f"{100 * value / total:.0f} % {part}" for part, value in seconds.items())
        logger.info("%s: %.1f s: %s", self._label, total, ", ".join(shares))

"""The monitor as a callback of Lightning and of Hugging Face's Trainer.

Each class exists where its package is installed.
"""

import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from feature_alignment.errors import UserError, suggestion
from feature_alignment.files import write_whole
from feature_alignment.instrument.monitor import Monitor
from feature_alignment.instrument.record_state import STATE, identity

try:
    from lightning.pytorch import Callback, LightningModule
except ModuleNotFoundError:
    Callback = None
    LightningModule = nn.Module
try:
    from transformers.trainer_callback import TrainerCallback
except ModuleNotFoundError:
    TrainerCallback = None

FOLDER, WEIGHTS = "alignment", "weights.sha256"
"""In the trainer's checkpoints: the record, and in it of which parameters it is."""

log = logging.getLogger(__name__)


class _Watching:
    """A monitor that is made when training begins, None before, with the options of `Monitor`.

    Its record is saved to `folder`, if there is one, at the training's end. What goes wrong then is
    logged: it must not end what follows the training. Of several processes that train together each
    measures, and the first one saves. Several monitors of one training, as on other samples, each
    need a `name`, by which the trainer's checkpoints keep their records apart.

    Raises:
        UserError: if there is a `state`, or an option that `Monitor` has not; at the training's
            begin, if `folder` cannot be written to.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        folder: str | Path | None = None,
        name: str = "",
        **options: Any,
    ) -> None:
        if "state" in options:
            raise UserError("state: a callback goes on by itself from the trainer's checkpoints.")
        known = set(inspect.signature(Monitor).parameters) - {"model", "x", "y", "state"}
        for option in options.keys() - known:
            raise UserError(f"{option}: is no option of Monitor; {suggestion(option, known)}.")
        self.monitor: Monitor | None = None
        self._x, self._y, self._folder, self._options = x, y, folder, options
        self._state: Any = None
        self._name = name

    def _begin(self, model: nn.Module, step: int, place: str) -> None:
        # Begin a record, or go on with that from a place.
        state, self._state = self._state, None  # a later training is another
        if self._folder is not None:
            try:
                Path(self._folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"folder: {self._folder}: {error.strerror}; give another."
                ) from error
            if not os.access(self._folder, os.W_OK | os.X_OK):
                raise UserError(f"folder: {self._folder} must not be written to; give another.")
        told = self.monitor is not None and (self.monitor.model, self.monitor.at)
        if state is None and step > 0 and told == (model, step):
            return  # the same training is fitted further
        options = {"first": step, **self._options, "state": state}
        self.monitor = Monitor(model, self._x, self._y, **options)
        if state is None and step > 0:
            self.monitor.note(step, f"there is no record in {place}, so it begins here")

    def _update(self, step: int) -> None:
        """Take note of an update; batches of one accumulated update count once."""
        if self.monitor is not None and step > self.monitor.at:
            self.monitor.step(step)

    def _end(self, writes: bool) -> None:
        if writes and self.monitor is not None and self._folder is not None:
            try:
                self.monitor.save(self._folder)
            except Exception:
                log.exception("the record of the training could not be saved to %s", self._folder)


@contextmanager
def _unlogged(model: nn.Module) -> Iterator[None]:
    """In here Lightning's modules log nothing: a measurement is no batch of the training."""
    names = ("log", "log_dict")
    owners = [vars(module) for module in model.modules() if isinstance(module, LightningModule)]
    before = [{name: own[name] for name in names if name in own} for own in owners]
    try:
        for own in owners:
            own.update(dict.fromkeys(names, lambda *_, **__: None))
        yield
    finally:
        for own, kept in zip(owners, before, strict=True):
            for name in names:
                own.pop(name, None)
            own.update(kept)


if Callback is not None:

    class LightningMonitor(_Watching, Callback):
        """`Monitor` for `lightning.Trainer(callbacks=[LightningMonitor(x, y, every=100)])`.

        The record is part of Lightning's checkpoints, and goes on where these are resumed, or where
        `fit` goes on with the same model.
        """

        @property
        def state_key(self) -> str:
            """Where Lightning's checkpoints hold the record."""
            return f"{type(self).__qualname__}{self._name}"

        def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
            """Measure the start, or go on; when fitting starts, the step is not yet restored."""
            with _unlogged(pl_module):
                self._begin(pl_module, trainer.global_step, "the checkpoint")

        def on_train_batch_end(
            self, trainer: Any, pl_module: nn.Module, *_: Any, **__: Any
        ) -> None:
            """Take note of an update."""
            with _unlogged(pl_module):
                self._update(trainer.global_step)

        def on_fit_end(self, trainer: Any, pl_module: nn.Module) -> None:
            """Save the record."""
            self._end(trainer.is_global_zero)

        def on_exception(self, trainer: Any, pl_module: nn.Module, exception: Any) -> None:
            """Save the record so far."""
            self._end(trainer.is_global_zero)

        def state_dict(self) -> dict[str, Any]:
            """The record so far."""
            return {} if self.monitor is None else self.monitor.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Go on with a record."""
            self._state = state_dict or None


if TrainerCallback is not None:

    class TrainerMonitor(_Watching, TrainerCallback):
        """`Monitor` for `transformers.Trainer(callbacks=[TrainerMonitor(x, output="logits")])`.

        The record is saved into each of the trainer's checkpoints, and goes on where these are
        resumed in the same `output_dir`. Of a checkpoint from elsewhere a callback is not told
        where: then the record begins anew, which is one of its `problems`.
        """

        def on_train_begin(self, args: Any, state: Any, control: Any, **kept: Any) -> None:
            """Measure the start, or go on.

            Raises:
                UserError: if the record is that of another training's checkpoint.
            """
            saved, model = self._checkpoint(args, state), kept["model"]
            found = self._state = saved if (saved / STATE).exists() else None
            known = saved / WEIGHTS
            of_these = known.is_file() and known.read_text("utf-8") == identity(model.parameters())
            if found and not of_these:
                raise UserError(
                    f"{saved}: is the record of another training than the one that goes on; "
                    "remove it, or give another output_dir."
                )
            self._begin(model, state.global_step, str(saved))

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Take note of an update."""
            self._update(state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Save the record beside the checkpoint."""
            if self.monitor is not None and state.is_world_process_zero:
                folder = self._checkpoint(args, state)  # with a record, if whole, there are weights
                write_whole(folder / WEIGHTS, identity(self.monitor.model.parameters()))
                self.monitor.save(folder)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Save the record."""
            self._end(state.is_world_process_zero)

        def _checkpoint(self, args: Any, state: Any) -> Path:
            folder = FOLDER + (f"-{self._name}" if self._name else "")
            return Path(args.output_dir) / f"checkpoint-{state.global_step}" / folder


def __getattr__(name: str) -> Any:
    """Say what a class that is not there needs.

    Raises:
        AttributeError: if there is no such class.
        ImportError: if its package is not installed.
    """
    package = {"LightningMonitor": "lightning", "TrainerMonitor": "transformers"}.get(name)
    if package is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(f"{name} needs {package}: pip install {package}.")

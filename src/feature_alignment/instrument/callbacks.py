"""The monitor as a callback of Lightning and of Hugging Face's Trainer.

Each class exists only if its package is installed.
"""

import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from feature_alignment.errors import UserError, check_known
from feature_alignment.files import write_whole
from feature_alignment.instrument import STATE
from feature_alignment.instrument.arguments import identity
from feature_alignment.instrument.monitor import Monitor

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
"""In the trainer's checkpoints: the folder of the record, and in it the hash of the parameters."""

log = logging.getLogger(__name__)


class _Watching:
    """A `monitor` with the options of `Monitor`, created when training begins and None before.

    Its record is saved to `folder`, if given, when training ends; a failure to save is logged and
    does not stop what follows the training. In distributed training every process measures and the
    main process saves. Several monitors of one training, for example on different samples, each
    need a `name`, which separates their records in the trainer's checkpoints.

    Raises:
        UserError: if `state` or `first` is given, or an option that `Monitor` does not have; when
            training begins, if `folder` is not writable.
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
        if "first" in options:
            raise UserError("first: a callback counts the trainer's own steps; leave it out.")
        known = set(inspect.signature(Monitor).parameters) - {"model", "x", "y", "state", "first"}
        for option in options:
            check_known(f"{option}: is not an option of Monitor", option, known)
        self.monitor: Monitor | None = None
        self._x, self._y, self._folder, self._options = x, y, folder, options
        self._state: Any = None
        self._name = name

    def _begin(self, model: nn.Module, step: int, place: str) -> None:
        # Begin a record, or resume the one from `place`.
        state, self._state = self._state, None  # not for a later training
        if self._folder is not None:
            folder = Path(self._folder)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"folder: {folder}: {error.strerror}; give another.") from error
            if not os.access(folder, os.W_OK | os.X_OK):
                raise UserError(f"folder: {folder} is not writable; give another.")
        told = self.monitor is not None and (self.monitor.model, self.monitor.at)
        if state is None and step > 0 and told == (model, step):
            return  # fit() continues the same training
        options = {"first": step, **self._options, "state": state}
        self.monitor = Monitor(model, self._x, self._y, **options)
        if state is None and step > 0:
            self.monitor.note(step, f"there is no record in {place}, so it begins here")

    def _update(self, step: int) -> None:
        """Count an update; several batches of one accumulated update count once."""
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
    """Disable logging by Lightning modules, because a measurement is not a training batch."""
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

        The record is part of Lightning's checkpoints. It continues when these are resumed, or when
        `fit` continues with the same model.
        """

        @property
        def state_key(self) -> str:
            """Key of the record in Lightning's checkpoints."""
            return f"{type(self).__qualname__}{self._name}"

        def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
            """Forget a record that a test or validation of a checkpoint has loaded."""
            self._state = None

        def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
            """Measure the start, or resume; on fit start the step would not yet be restored."""
            with _unlogged(pl_module):
                self._begin(pl_module, trainer.global_step, "the checkpoint")

        def on_train_batch_end(
            self, trainer: Any, pl_module: nn.Module, *_: Any, **__: Any
        ) -> None:
            """Count an update."""
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
            """Resume a record."""
            self._state = state_dict or None


if TrainerCallback is not None:

    class TrainerMonitor(_Watching, TrainerCallback):
        """`Monitor` for `transformers.Trainer(callbacks=[TrainerMonitor(x, output="logits")])`.

        The record is saved in each of the trainer's checkpoints, and continues when these are
        resumed in the same `output_dir`. For a checkpoint from elsewhere, a callback cannot know
        the place: the record starts again, which is noted in its `problems`.
        """

        def on_train_begin(self, args: Any, state: Any, control: Any, **kept: Any) -> None:
            """Measure the start, or resume.

            Raises:
                UserError: if the record is of another training than the checkpoint.
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
            """Count an update."""
            self._update(state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Save the record in the checkpoint's folder."""
            if self.monitor is not None and state.is_world_process_zero:
                folder = self._checkpoint(args, state)  # WEIGHTS first: no record without it
                write_whole(folder / WEIGHTS, identity(self.monitor.model.parameters()))
                self.monitor.save(folder)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Save the record."""
            self._end(state.is_world_process_zero)

        def _checkpoint(self, args: Any, state: Any) -> Path:
            folder = FOLDER + (f"-{self._name}" if self._name else "")
            return Path(args.output_dir) / f"checkpoint-{state.global_step}" / folder


def __getattr__(name: str) -> Any:
    """Explain which package a missing class needs.

    Raises:
        AttributeError: if there is no such class.
        ImportError: if its package is not installed.
    """
    package = {"LightningMonitor": "lightning", "TrainerMonitor": "transformers"}.get(name)
    if package is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(f"{name} needs {package}: pip install {package}.")

"""The monitor as a callback of Lightning and of Hugging Face's Trainer.

Each class exists where its package is installed.
"""

from pathlib import Path
from typing import Any

from torch import nn

from feature_alignment.instrument.monitor import STATE, Monitor

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    Callback = None
try:
    from transformers.trainer_callback import TrainerCallback
except ModuleNotFoundError:
    TrainerCallback = None

FOLDER = "alignment"


class _Watching:
    """A monitor that is made when training begins, None before, with the options of `Monitor`.

    Its record is saved to `folder`, if there is one, at the training's end.
    """

    def __init__(
        self, x: Any, y: Any = None, *, folder: str | Path | None = None, **options: Any
    ) -> None:
        self.monitor: Monitor | None = None
        self._x, self._y, self._folder, self._options = x, y, folder, options
        self._state: Any = None

    def _begin(self, model: nn.Module, step: int) -> None:
        options = {"first": step, **self._options, "state": self._state}
        self.monitor = Monitor(model, self._x, self._y, **options)

    def _update(self, step: int) -> None:
        """Take note of an update; batches of one accumulated update count once."""
        if self.monitor is not None and step > self.monitor.at:
            self.monitor.step(step)

    def _end(self) -> None:
        if self.monitor is not None and self._folder is not None:
            self.monitor.save(self._folder)


if Callback is not None:

    class LightningMonitor(_Watching, Callback):
        """`Monitor` for `lightning.Trainer(callbacks=[LightningMonitor(x, y, every=100)])`.

        The record is part of Lightning's checkpoints, and goes on where these are resumed.
        """

        def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
            """Measure the start, or go on."""
            self._begin(pl_module, trainer.global_step)

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            """Take note of an update."""
            self._update(trainer.global_step)

        def on_fit_end(self, trainer: Any, pl_module: nn.Module) -> None:
            """Save the record."""
            self._end()

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
        resumed.
        """

        def on_train_begin(self, args: Any, state: Any, control: Any, **kept: Any) -> None:
            """Measure the start, or go on."""
            saved = _checkpoint(args, state)
            self._state = saved if (saved / STATE).exists() else None
            self._begin(kept["model"], state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Take note of an update."""
            self._update(state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Save the record beside the checkpoint."""
            if self.monitor is not None:
                self.monitor.save(_checkpoint(args, state))

        def on_train_end(self, *_: Any, **__: Any) -> None:
            """Save the record."""
            self._end()


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


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / FOLDER

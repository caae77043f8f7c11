"""Checkpoints: an interrupted run resumes near where it stopped, and ends with the same numbers.

The files contain tensors, numbers, strings and containers of these, and only these are loaded:
others may be able to write to a folder of results, and none of their code must run. Each file
begins with the SHA-256 of its content, so that a damaged file is never taken for an intact one.
"""

import hashlib
import io
import logging
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from feature_alignment.errors import UserError
from feature_alignment.files import whole_file

log = logging.getLogger(__name__)


@runtime_checkable
class Stateful(Protocol):
    """An object that changes during training and can be restored, as PyTorch's modules can."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors, numbers and containers of these."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Restore a state."""


class Checkpoints:
    """The saved states of one run, in a folder that contains nothing else.

    States saved with another identity (other settings, code or data) are not used. `interval` is
    the number of seconds between checkpoints of a training. `earlier` are the elapsed and the CPU
    seconds that interrupted attempts took up to the states loaded from them. `ending` is set when
    the run is to end; consecutive runs may share it. `machines` are those that made the loaded
    states; this one is called `machine`.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        interval: float = 300.0,
        ending: threading.Event | None = None,
        machine: str = "",
    ) -> None:
        self._folder, self._interval, self._last = folder, interval, time.monotonic()
        self._started, self.earlier = self._last, (0.0, 0.0)
        self._identity = f"{identity} torch {torch.__version__}"
        self._machine, self.machines = machine, set[str]()
        self._ending = threading.Event() if ending is None else ending

    def load(self, name: str) -> Any:
        """The content saved under a name, or None.

        Raises:
            UserError: if the file belongs to another user, or was not written by `save`.
        """
        path = self._folder / f"{name}.pt"
        if not path.exists():
            return None
        if (owner := path.stat().st_uid) != os.getuid() and owner != self._owner():
            raise UserError(f"{path}: belongs to another user; remove it, or run elsewhere.")
        try:
            saved = read_state(path)
            same = saved["identity"] == self._identity
            elapsed, processor = map(float, saved["seconds"]) if same else (0.0, 0.0)
            machines = {str(machine) for machine in saved["machines"]} if same else set()
            content = saved["content"]
        except Exception as error:  # a file made by hand can contain anything
            raise UserError(f"{path}: not a readable checkpoint; remove it.") from error
        if not same:
            log.info("%s was saved with other settings, code or data, and is not used", path)
            return None
        self.earlier = max(self.earlier, (elapsed, processor))
        self.machines |= machines
        return content

    def _owner(self) -> int:
        """Whose a file is that is made here now; network disks may give all files one owner."""
        with tempfile.TemporaryFile(dir=self._folder) as file:
            return os.fstat(file.fileno()).st_uid

    def save(self, name: str, content: Any) -> None:
        """Save under a name, atomically, replacing any earlier content."""
        elapsed, processor = self.earlier
        seconds = [elapsed + time.monotonic() - self._started, processor + time.process_time()]
        saved = {"identity": self._identity, "seconds": seconds, "content": content}
        saved["machines"] = sorted({*self.machines, self._machine})
        write_state(self._folder / f"{name}.pt", saved)
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next checkpoint of a training."""
        return self._ending.is_set() or time.monotonic() - self._last >= self._interval

    def end_soon(self) -> None:
        """Let the run end once it has next saved its state, which is `due` from now on."""
        self._ending.set()

    def end_if_told(self) -> None:
        """End here, where no work is lost, if `end_soon` was called.

        Raises:
            KeyboardInterrupt: to end as Ctrl-C does.
        """
        if self._ending.is_set():
            raise KeyboardInterrupt


def write_state(path: Path, content: Any) -> None:
    """Write tensors, arrays, numbers, strings and containers of these, atomically.

    They are on the disk before they replace what was there, so that a machine that fails keeps it.
    """
    packed = io.BytesIO()  # on a full disk, `torch.save` to a file fails without giving the reason
    torch.save(plain(content), packed)
    with whole_file(path) as partial, partial.open("wb") as file:
        file.write(hashlib.sha256(packed.getbuffer()).digest())
        file.write(packed.getbuffer())
        file.flush()
        os.fsync(file.fileno())


def read_state(path: Path) -> Any:
    """The content that `write_state` wrote.

    Raises:
        ValueError: if the file is damaged; for one made by hand PyTorch may raise anything.
    """
    whole = memoryview(path.read_bytes())
    digest, packed = whole[:_DIGEST], whole[_DIGEST:]
    if hashlib.sha256(packed).digest() != digest:
        raise ValueError(f"{path}: does not have the SHA-256 that it begins with.")
    return as_it_was(torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True))


_DIGEST = hashlib.sha256().digest_size
_ARRAY = "numpy array"


def plain(value: Any) -> Any:
    """Replace arrays by tensors under a key that marks them, and NumPy scalars by Python's."""
    if isinstance(value, np.ndarray):
        # In the order in which files hold it: NumPy writes an array by columns as such.
        order = "F" if value.flags.fnc else "C"
        return {_ARRAY: torch.from_numpy(value.copy(order))}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {plain(key): plain(content) for key, content in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def as_it_was(value: Any) -> Any:
    """Undo `plain`, except for NumPy scalars."""
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return value[_ARRAY].numpy()
        return {key: as_it_was(content) for key, content in value.items()}
    return type(value)(map(as_it_was, value)) if type(value) in (list, tuple) else value


@dataclass(frozen=True)
class TrainingCheckpoint:
    """The saved state of one training, under a name unique among the run's trainings.

    In addition to the parts it contains PyTorch's global random state, which dropout draws from.
    """

    checkpoints: Checkpoints
    name: str

    def restore(self, parts: Mapping[str, Stateful]) -> int:
        """Restore the saved parts; return the number of updates made before, 0 if none is saved."""
        saved = self.checkpoints.load(self.name)
        if saved is None:
            return 0
        for name, part in parts.items():
            part.load_state_dict(saved["parts"][name])
        torch.set_rng_state(saved["random"])
        if saved["random_cuda"]:
            torch.cuda.set_rng_state_all(saved["random_cuda"])
        log.info("%s goes on after step %d", self.name, saved["step"])
        return saved["step"]

    def save_if_due(self, step: int, parts: Mapping[str, Stateful]) -> None:
        """Save after `step` updates, if a checkpoint is due; end here if the run is to end."""
        if self.checkpoints.due():
            self.save(step, parts)
            self.checkpoints.end_if_told()

    def save(self, step: int, parts: Mapping[str, Stateful]) -> None:
        """Save after `step` updates, for example at the end of a training that others follow."""
        content = {
            "step": step,
            "parts": {name: part.state_dict() for name, part in parts.items()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        self.checkpoints.save(self.name, content)

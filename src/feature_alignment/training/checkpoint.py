"""Checkpoints: a run that was killed goes on near where it was, and ends with the same numbers.

The files hold tensors, numbers, texts and containers of them, and are read as such: a folder of
results may be one that others can write to, and no code of theirs is run. Before them stands their
SHA-256, so that a damaged file is never taken for a whole one.
"""

import hashlib
import io
import logging
import os
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
    """What changes during a training and can be put back, as PyTorch's modules can."""

    def state_dict(self) -> dict[str, Any]:
        """All that has changed, as tensors, numbers and containers of them."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Put a state back."""


class Checkpoints:
    """The saved states of one run, in a folder that holds nothing else.

    States that were saved with another identity, as of other settings, code or data, are not used.
    `interval` is the number of seconds between two checkpoints of a training. `earlier` are the
    seconds, elapsed and of the processor, that attempts cut off took up to what was loaded of them.
    `ending` is set when the run is to end; several runs that follow each other may share it.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        interval: float = 300.0,
        ending: threading.Event | None = None,
    ) -> None:
        self._folder, self._interval, self._last = folder, interval, time.monotonic()
        self._started, self.earlier = self._last, (0.0, 0.0)
        self._identity = f"{identity} torch {torch.__version__}"
        self._ending = threading.Event() if ending is None else ending

    def load(self, name: str) -> Any:
        """What was saved under a name, or None.

        Raises:
            UserError: if the file is another user's, or is not what `save` writes.
        """
        path = self._folder / f"{name}.pt"
        if not path.exists():
            return None
        if path.stat().st_uid != os.getuid():
            raise UserError(f"{path}: a checkpoint of another user's; remove it, or run elsewhere.")
        try:
            saved = read_state(path)
            same = saved["identity"] == self._identity
            elapsed, processor = map(float, saved["seconds"]) if same else (0.0, 0.0)
            content = saved["content"]
        except Exception as error:  # a file made by hand can hold anything
            raise UserError(f"{path}: no checkpoint that can be read; remove it.") from error
        if not same:
            log.info("%s was saved by other settings, code or data, and is not used", path)
            return None
        self.earlier = max(self.earlier, (elapsed, processor))
        return content

    def save(self, name: str, content: Any) -> None:
        """Save under a name, in place of what was there, whole or not at all."""
        elapsed, processor = self.earlier
        seconds = [elapsed + time.monotonic() - self._started, processor + time.process_time()]
        saved = {"identity": self._identity, "seconds": seconds, "content": content}
        write_state(self._folder / f"{name}.pt", saved)
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next checkpoint of a training."""
        return self._ending.is_set() or time.monotonic() - self._last >= self._interval

    def end_soon(self) -> None:
        """Let the run end where it has next saved its state: `due` from now on."""
        self._ending.set()

    def end_if_told(self) -> None:
        """End here, where nothing would be lost, if `end_soon` was called.

        Raises:
            KeyboardInterrupt: to end as by Ctrl-C.
        """
        if self._ending.is_set():
            raise KeyboardInterrupt


def write_state(path: Path, content: Any) -> None:
    """Write tensors, arrays, numbers, texts and containers of them, whole or not at all."""
    packed = io.BytesIO()  # of a full disk `torch.save` would only say that it could not go on
    torch.save(plain(content), packed)
    with whole_file(path) as partial, partial.open("wb") as file:
        file.write(hashlib.sha256(packed.getbuffer()).digest())
        file.write(packed.getbuffer())


def read_state(path: Path) -> Any:
    """What `write_state` wrote.

    Raises:
        ValueError: if the file is damaged; of one made by hand PyTorch raises what it likes.
    """
    whole = memoryview(path.read_bytes())
    digest, packed = whole[:_DIGEST], whole[_DIGEST:]
    if hashlib.sha256(packed).digest() != digest:
        raise ValueError(f"{path}: does not have the SHA-256 that it begins with.")
    return as_it_was(torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True))


_DIGEST = hashlib.sha256().digest_size
_ARRAY = "numpy array"


def plain(value: Any) -> Any:
    """Arrays as tensors under a key that tells them, NumPy's numbers as Python's."""
    if isinstance(value, np.ndarray):
        return {_ARRAY: torch.from_numpy(value.copy())}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {plain(key): plain(content) for key, content in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def as_it_was(value: Any) -> Any:
    """What `plain` was given, but for NumPy's numbers."""
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return value[_ARRAY].numpy()
        return {key: as_it_was(content) for key, content in value.items()}
    return type(value)(map(as_it_was, value)) if type(value) in (list, tuple) else value


@dataclass(frozen=True)
class TrainingCheckpoint:
    """The saved state of one training, by a name that tells it from the run's other trainings.

    Besides the parts it holds PyTorch's global random state, which dropout draws from.
    """

    checkpoints: Checkpoints
    name: str

    def restore(self, parts: Mapping[str, Stateful]) -> int:
        """Put the parts back as they were saved; returns the updates made before, 0 for none."""
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
        """Save after `step` updates, if the last time is long enough ago or the run is to end."""
        if self.checkpoints.due():
            self.save(step, parts)
            self.checkpoints.end_if_told()

    def save(self, step: int, parts: Mapping[str, Stateful]) -> None:
        """Save after `step` updates, as at the end of a training that others follow."""
        content = {
            "step": step,
            "parts": {name: part.state_dict() for name, part in parts.items()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        self.checkpoints.save(self.name, content)

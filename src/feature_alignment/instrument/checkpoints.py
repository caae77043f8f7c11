"""The record of a training from its checkpoints, for `feature-alignment measure`."""

import importlib
import inspect
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.errors import UserError, check_known, shortened, suggestion
from feature_alignment.files import sha256_of, write_whole
from feature_alignment.instrument import METRICS, STATE
from feature_alignment.instrument.arguments import check_no_file
from feature_alignment.instrument.monitor import Monitor
from feature_alignment.kernels.average_features import copy_parameters

STATE_KEYS = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts and Lightning save the parameters."""
FILES = "checkpoints.json"
"""File of a record with the hashes, by step, of the checkpoints it was measured from."""
_EXTRA = "_extra_state"  # suffix of a module's custom state, which can be anything
_COUNTS = ("step", "iter(?:ation)?", "epoch")
"""Words before a step number, the surest first; other numbers may be an accuracy or of a model."""
_IN_FOLDER = re.compile(r"(?i)^(?:.*(?:checkpoint|ckpt|step|iter|iteration|epoch)\D?)?(\d+)$")
_WRAPPER = re.compile(r"^(module|_orig_mod|model)\.")
"""Prefix that a wrapper adds to the parameter names of the model it contains."""
SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")

log = logging.getLogger(__name__)


def measure_checkpoints(
    model: nn.Module, x: Any, y: Any, files: Mapping[int, Path], out: Path, **options: Any
) -> Monitor:
    """Measure a model at each of its checkpoints, and save the record to `out` after each.

    An existing record is resumed: what it contains is not measured again. `files` maps steps to
    checkpoints, the first being the start W₀; `options` are further arguments of `Monitor`.

    Raises:
        UserError: if a checkpoint cannot be read or is not of this model, or `out` does not fit.
    """
    steps, found = sorted(files), _changed(out / STATE)
    load_parameters(model, files[steps[0]])
    state = out if (out / STATE).exists() else None
    try:
        monitor = Monitor(model, x, y, first=steps[0], state=state, **options)
    except UserError as error:
        hint = "" if state is None else f" (--out: {out} holds a record already)"
        raise UserError(f"{error}{hint}") from error
    start = copy_parameters(model)
    if any(not torch.equal(value, start[name]) for name, value in monitor.initial.items()):
        raise UserError(
            f"--out: {out} holds the record of a training with another start than "
            f"{files[steps[0]]}; choose another folder."
        )
    digests = {str(step): sha256_of(file) for step, file in files.items()}
    known = out / FILES
    try:
        before = dict(json.loads(known.read_text(encoding="utf-8"))) if known.exists() else {}
    except (ValueError, TypeError) as error:
        raise UserError(f"--out: {known} is damaged; choose another folder.") from error
    for step in monitor.measured & files.keys():
        if before.get(str(step), digests[str(step)]) != digests[str(step)]:
            raise UserError(
                f"--out: {out} holds the record of another {files[step]}; choose another folder."
            )
    log.info("the start (W₀, the first kernel) is that of %s", files[steps[0]])
    left = [step for step in steps if step not in monitor.measured]
    if len(left) < len(steps):
        log.info("%s: %d of %d checkpoints are measured", out, len(steps) - len(left), len(steps))
    with held(out, found):
        write_whole(known, json.dumps({**before, **digests}))
        monitor.save(out)
        begin = time.monotonic()
        for number, step in enumerate(left, start=1):
            load_parameters(model, files[step])
            monitor.measure(step)
            monitor.save(out)
            remaining = (time.monotonic() - begin) / number * (len(left) - number)
            log.info("step %d: %d of %d, about %.0f s left", step, number, len(left), remaining)
    return monitor


def _changed(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None


@contextmanager
def held(out: Path, found: int | None) -> Iterator[None]:
    """Context in which no other process holds the folder of a record; no lock remains of it.

    `found` is the time of its last change, None if there is no record.

    Raises:
        UserError: if another process holds it, or has changed the record since.
        OSError: if its file cannot be opened, as if it is a link.
    """
    import fcntl  # which Windows lacks

    check_no_file(out)
    out.mkdir(parents=True, exist_ok=True)
    told = f"--out: {out} is written to by another process; wait for it, or choose another folder."
    plain = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # no link that another left
    with os.fdopen(os.open(out / ".lock", plain, 0o666)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(told) from error
        except OSError as error:  # a file system without locks
            log.debug("%s: cannot be locked (%s)", out, error)
        if _changed(out / STATE) != found:
            raise UserError(told)
        yield


def load_parameters(model: nn.Module, file: Path) -> None:
    """Load the parameters and buffers of a checkpoint into a model.

    The file is read with `weights_only`, so that no code in it is run.

    Raises:
        UserError: if the file cannot be read, or does not fit the model.
    """
    found = _read(file)
    for key in STATE_KEYS:
        if isinstance(found.get(key), Mapping):
            found = found[key]
    values = {
        str(key): value
        for key, value in found.items()
        if isinstance(value, torch.Tensor) or str(key).endswith(_EXTRA)
    }
    own, parameters = model.state_dict(), dict(model.named_parameters(remove_duplicate=False))
    if own and not values:
        held, keys = ", ".join(shortened(key) for key in list(found)[:3]), ", ".join(STATE_KEYS)
        raise UserError(
            f"{file}: holds no parameters, but {held or 'nothing'}; save model.state_dict(), alone "
            f"or under one of {keys}."
        )
    while not own.keys() & values.keys() and any(_WRAPPER.match(name) for name in values):
        values = {_WRAPPER.sub("", name): value for name, value in values.items()}
    for name, value in own.items():
        if name not in values:  # safetensors' `save_model` keeps only one of tied weights
            tied = (other for other, p in parameters.items() if p is parameters.get(name))
            if alike := next((other for other in tied if other in values), None):
                values[name] = values[alike]
        check_known(f"{file}: there is no {name!r}, which the model has", name, values)
        if not name.endswith(_EXTRA) and values[name].shape != value.shape:
            raise UserError(
                f"{file}: {name!r} has the shape {tuple(values[name].shape)}, the model's is "
                f"{tuple(value.shape)}; build the model that was trained."
            )
    if unknown := sorted(values.keys() - own.keys()):
        raise UserError(f"{file}: {unknown[0]!r} is not in the model; build the one of the file.")
    model.load_state_dict(values)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
    except ImportError as error:
        raise UserError(f"{file}: needs safetensors; pip install safetensors.") from error
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        if "weights only" in first.lower():  # the rest is about PyTorch's own options
            whole = "unsupported global" in str(error).lower()
            first = "a whole model, or more" if whole else "no file of torch.save, or cut off"
        raise UserError(
            f"{file}: cannot be read as weights ({type(error).__name__}: {first}); save "
            "model.state_dict() by torch.save, or as .safetensors."
        ) from error
    if not isinstance(found, Mapping):
        raise UserError(f"{file}: holds a {type(found).__name__}; a state_dict is needed.")
    return found


def find_checkpoints(pattern: str) -> dict[int, Path]:
    """Files that match a pattern, by step: the last number in the name, else that of the folder.

    A number after "step", "iter" or "epoch" takes precedence, in this order. Lightning's `-v1` and
    decimals, such as a loss of 0.25, do not count.

    Raises:
        UserError: if there are none, or their steps cannot be determined.
    """
    found: dict[int, Path] = {}
    try:
        path = Path(pattern).expanduser()  # no shell has done it if it is quoted
        root = Path(path.anchor)
        files = sorted(root.glob(str(path.relative_to(root))))
    except (ValueError, IndexError, RuntimeError) as error:  # the last of an unknown user
        raise UserError(
            f"{pattern!r} is not a pattern of files; give one as 'ckpt/*.pt'."
        ) from error
    for file in files:
        if file.name[:1] in {"", "."} or (file.name == STATE and (file.parent / METRICS).exists()):
            continue  # left by a process that was killed while it wrote; a record's own
        if file.suffix not in SUFFIXES:
            raise UserError(f"{file} ends in none of {', '.join(SUFFIXES)}; narrow the pattern.")
        name = re.sub(r"-v\d+$|\d+(\.\d+)?e[-+]?\d+|\d+\.\d+|(?<=[=_-])\.\d+", "", file.stem)
        name = re.sub(r"(?<=\d),(?=\d{3})", "", name)
        if short := re.search(r"\d+[kKmM](?![a-zA-Z])", name):
            raise UserError(f"{file}: {short[0]} is not a step in digits; name it as step1000.pt.")
        patterns = [rf"{word}s?\D?(\d+)" for word in _COUNTS]  # step100, Steps_100
        patterns += [rf"(\d+)\D?{word}s?(?![a-z])" for word in _COUNTS]  # 100steps
        counted = (re.findall(pattern, name, re.IGNORECASE) for pattern in patterns)
        numbers = next(filter(None, counted), None) or re.findall(r"\d+", name)
        numbers = numbers or _IN_FOLDER.findall(file.parent.name)
        if not numbers:
            raise UserError(f"{file} has no number in its name; name it by its step: step100.pt.")
        step = int(numbers[-1])
        if step in found:
            raise UserError(f"{found[step]} and {file} both have step {step}; narrow the pattern.")
        found[step] = file
    if not found:
        raise UserError(f"no file matches {pattern!r}; quote it, as 'ckpt/*.pt'.")
    return found


def imported(target: str, option: str) -> Callable[..., Any]:
    """A function given as "module:name"; modules in the working directory are found, too.

    Raises:
        UserError: if there is no such function, or it needs arguments.
        ModuleNotFoundError: if the module imports one that is not installed.
    """
    module_name, _, name = target.partition(":")
    if not name or not re.fullmatch(r"\w+(\.\w+)*", module_name):
        raise UserError(f"{option}: {target!r} is not of the form module:function.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise
        plain = module_name.removesuffix(".py")
        hint = "" if plain == module_name else f"; leave out .py: {plain}:{name}"
        raise UserError(
            f"{option}: there is no module {module_name!r} here or among the installed ones{hint}."
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise UserError(
            f"{option}: {module_name} has no function {name!r}; {suggestion(name, names)}."
        )
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UserError(
            f"{option}: {target} cannot be called without arguments ({error}); give a function "
            "that can, such as one that makes the arguments."
        ) from error
    except ValueError:  # of some built-in functions, the arguments are not known
        log.debug("%s: the arguments of %s are not known", option, target)
    return function


def built(target: str) -> nn.Module:
    """The model that a function builds.

    Raises:
        UserError: if it returns something else.
    """
    model = imported(target, "model")()
    if not isinstance(model, nn.Module):
        raise UserError(f"model: {target} returned a {type(model).__name__}, not an nn.Module.")
    return model


def batch(target: str) -> tuple[Any, Any]:
    """Inputs and labels from a function that returns x, (x, y), or a mapping, maybe with "labels".

    Raises:
        UserError: if it returns something else.
    """
    found = imported(target, "--data")()
    if isinstance(found, tuple) and len(found) == 2:
        return found[0], found[1]
    if isinstance(found, Mapping):
        rest = {key: value for key, value in found.items() if key != "labels"}
        return rest, found.get("labels")
    if isinstance(found, torch.Tensor | np.ndarray):
        return found, None
    raise UserError(
        f"--data: {target} returned a {type(found).__name__}; return x, (x, y), or a mapping of "
        "the model's arguments."
    )

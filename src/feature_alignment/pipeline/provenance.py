"""Provenance: what made a result, recorded next to it."""

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = (
    *("numpy", "scipy", "pandas", "scikit-learn", "torch", "torchvision"),
    *("matplotlib", "seaborn", "pillow"),
)


def machine_name() -> str:
    """The processor and the instructions that PyTorch uses of it, on which last bits depend."""
    torch = sys.modules.get("torch")  # a figure's environment has none
    instructions = "" if torch is None else f" ({torch.backends.cpu.get_cpu_capability()})"
    return _processor() + instructions


def provenance(
    wall_seconds: float, cpu_seconds: float, seconds_by_part: Mapping[str, float]
) -> dict[str, Any]:
    """The machine that made a result, and the cost in seconds and MiB."""
    torch = sys.modules.get("torch")  # a figure's environment has none
    gpu = torch.cuda if torch is not None and torch.cuda.is_initialized() else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gpu_bytes = None if gpu is None else gpu.max_memory_allocated()
    return {
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "instructions": None if torch is None else torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
            "device": "cpu" if gpu is None else gpu.get_device_name(),
        },
        "threads": None if torch is None else torch.get_num_threads(),
        "wall_seconds": round(wall_seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "seconds_by_part": {name: round(value, 3) for name, value in seconds_by_part.items()},
        "peak_memory_mib": round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1),
        "peak_gpu_memory_mib": None if gpu_bytes is None else round(gpu_bytes / 2**20, 1),
    }


def git_state() -> dict[str, Any]:
    """The commit of the checkout that this package is in, and whether it has been edited since.

    Both are None without git or a checkout, for example in an installed package. The folders
    `results` and `figures` do not count: they may be removed. New files count where code is.
    """
    home = Path(__file__).resolve().parent
    # Else git refuses a checkout of another user's, whose code runs here anyway.
    here = ["git", "-c", f"safe.directory={home.parents[2]}", "-C", str(home)]
    # Else git looks, in a hook or `git rebase --exec`, at what it is at work on.
    named = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}
    environment = {name: text for name, text in os.environ.items() if name not in named}

    def ask(*arguments: str) -> str | None:
        with suppress(OSError, subprocess.CalledProcessError):
            return subprocess.run(
                [*here, *arguments], env=environment, capture_output=True, text=True, check=True
            ).stdout.strip()
        return None

    made = [f":(top,exclude){folder}" for folder in ("results", "figures")]
    status = "status", "--porcelain"
    edited = ask(*status, "--untracked-files=no", "--", ":/", *made)
    added = ask(*status, "--untracked-files=normal", "--", ":/src", ":/workflow")
    dirty = None if edited is None or added is None else bool(edited or added)
    return {"commit": ask("rev-parse", "HEAD"), "dirty": dirty}


@cache
def package_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):  # a figure's environment lacks some
            found[name] = version(name)
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

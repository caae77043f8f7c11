"""Measuring functions of the benchmarks, without PyTorch: another environment uses them, too."""

import multiprocessing
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What the scripts import, so that it is imported once and not in every process.
_PRELOADED = ["torch", "pandas", "matplotlib.pyplot"]


def made_with() -> dict[str, str]:
    """Columns of a table: the version of Python, the processor's name, and the commit."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    commit = subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
    return {
        "python": platform.python_version(),
        "processor": found[1] if found else platform.machine(),
        "commit": commit or "unknown",
    }


def peak_memory() -> int:
    """Largest resident memory of this process since the last reset, in bytes; Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) * 1024


def reset_peak_memory() -> None:
    """Forget earlier peaks: from now on, the largest is the present one or a later one."""
    Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def cpu_seconds(times: list[float]) -> Iterator[None]:
    """Append the CPU seconds that the block takes."""
    start = time.process_time()
    yield
    times.append(time.process_time() - start)


def measured(compute: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """A result with its time and memory; the memory is the growth of this process."""
    reset_peak_memory()
    memory, cpu, start = peak_memory(), time.process_time(), time.perf_counter()
    result = compute()
    return result, {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_growth_mb": (peak_memory() - memory) / 1e6,
    }


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result from a new process, which has done nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(function, *arguments).result()

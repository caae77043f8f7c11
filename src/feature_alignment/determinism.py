"""Bitwise reproducible runs: random streams, threads, deterministic kernels.

The same spec on the same machine gives the same bytes. Randomness comes only from named streams, so
that adding a probe, or drawing one more number for one purpose, never shifts those for another.
"""

import hashlib
import os
import random
import shutil
from typing import TYPE_CHECKING

import numpy as np

from feature_alignment.errors import UserError

if TYPE_CHECKING:
    import torch


def _seed_sequence(seed: int, name: str) -> np.random.SeedSequence:
    digest = hashlib.sha256(name.encode()).digest()
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.SeedSequence(entropy=seed, spawn_key=key)


def stream(seed: int, name: str) -> np.random.Generator:
    """NumPy generator that depends only on the seed (at least 0) and the name.

    The name is the purpose of the stream: "data", "init", "batches", "probe/eigenfunctions", ...

    Example:
        >>> bool(stream(0, "data").integers(9) == stream(0, "data").integers(9))
        True
        >>> bool(stream(0, "data").random() == stream(0, "init").random())
        False
    """
    return np.random.default_rng(_seed_sequence(seed, name))


def torch_stream(seed: int, name: str) -> "torch.Generator":
    """PyTorch generator for a seed and a name, see `stream`, always on the CPU.

    Draw on the CPU and move the result, so that CPU and GPU runs start from the same numbers.
    """
    import torch

    state = _seed_sequence(seed, name).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) % 2**63)


def seed_global_generators(seed: int) -> None:
    """Seed what PyTorch, NumPy and Python draw from by default; here nothing does, others may."""
    import torch

    drawn = stream(seed, "global generators")
    torch.manual_seed(int(drawn.integers(2**63)))
    np.random.seed(int(drawn.integers(2**32)))  # noqa: NPY002
    random.seed(int(drawn.integers(2**63)))


def configure(threads: int) -> None:
    """Make this process deterministic: fixed thread count, deterministic algorithms, no TF32.

    The number of threads of PyTorch and the BLAS libraries changes the order of sums and so the
    last bits. It is therefore part of the spec and set here, whatever the scheduler's environment
    says. Needs the package threadpoolctl, from the extra `pipeline`.
    """
    import threadpoolctl
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    threadpoolctl.threadpool_limits(threads)
    # Like torch.use_deterministic_algorithms(True), which also loads the compiler, for seconds.
    torch.set_deterministic_debug_mode("error")
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def resolve_device(name: str) -> "torch.device":
    """The device that a spec requests: "cpu", "cuda", or "auto" for CUDA if available, else CPU.

    Raises:
        UserError: if CUDA is requested but not available.
    """
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "device: cuda was asked for, but PyTorch finds no CUDA device here; "
            "set device to 'auto' or 'cpu', or submit to a GPU machine."
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def may_use_gpu(name: str) -> bool:
    """Whether a run on this device may use a GPU of this machine, without importing PyTorch.

    The name is as for `resolve_device`; "auto" assumes a GPU if nvidia-smi is installed.
    """
    return name == "cuda" or (name == "auto" and shutil.which("nvidia-smi") is not None)

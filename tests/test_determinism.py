"""Named random streams do not disturb each other, and threads are what the spec says."""

import numpy as np
import pytest
import threadpoolctl
import torch

from feature_alignment.determinism import (
    configure,
    may_use_gpu,
    resolve_device,
    stream,
    torch_stream,
)
from feature_alignment.errors import UserError

PINNED_NUMPY = [236559, 535574, 592272]
PINNED_TORCH = [757099, 325872, 917968]


def test_a_stream_depends_on_seed_and_name_only():
    first = stream(3, "data").random(4)
    stream(3, "probe/new").random(100)
    assert np.array_equal(stream(3, "data").random(4), first)
    assert not np.array_equal(stream(4, "data").random(4), first)
    assert not np.array_equal(stream(3, "init").random(4), first)


def test_torch_streams_are_named_too():
    first = torch.randn(4, generator=torch_stream(3, "init"))
    assert torch.equal(torch.randn(4, generator=torch_stream(3, "init")), first)
    assert not torch.equal(torch.randn(4, generator=torch_stream(3, "batches")), first)


def test_streams_are_pinned():
    # A change here changes every result of the project: it must be deliberate.
    assert stream(0, "data").integers(10**6, size=3).tolist() == PINNED_NUMPY
    drawn = torch.randint(10**6, (3,), generator=torch_stream(0, "init"))
    assert drawn.tolist() == PINNED_TORCH


def test_streams_look_independent():
    rows = np.stack([stream(0, f"s{i}").standard_normal(2000) for i in range(20)])
    off_diagonal = np.corrcoef(rows)[~np.eye(20, dtype=bool)]
    assert abs(off_diagonal).max() < 0.1  # 4.5 standard errors


@pytest.mark.parametrize("threads", [2, 1])
def test_configure_sets_the_threads_of_torch_and_blas(threads):
    configure(threads)
    assert torch.get_num_threads() == threads
    pools = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
    assert pools == {threads}
    assert torch.are_deterministic_algorithms_enabled()


def test_asking_for_cuda_without_one_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(UserError, match="device: cuda was asked for"):
        resolve_device("cuda")


def test_a_run_may_use_a_gpu_if_told_to_or_if_the_machine_has_one(
    monkeypatch, tmp_path, executable
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [may_use_gpu(name) for name in ("cpu", "auto", "cuda")] == [False, False, True]
    (tmp_path / "nvidia-smi").touch(mode=0o755)
    assert [may_use_gpu(name) for name in ("cpu", "auto", "cuda")] == [False, True, True]

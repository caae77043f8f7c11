"""Every experiment runs on a GPU, an emulated one, and goes on there after it was killed."""

import numpy as np
import pandas as pd
import pytest
import torch

from emulated_gpu import GPU, OnGPU
from feature_alignment.pipeline import run
from feature_alignment.pipeline.run import run_experiment
from feature_alignment.training.checkpoint import Checkpoints


def test_the_emulation_computes_what_the_cpu_does_and_refuses_what_cuda_would(emulation):
    x = torch.randn(4, 3)
    layer = torch.nn.Linear(3, 2)
    expected = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
    with emulation():
        there = x.to(GPU)
        layer = layer.to(GPU)
        assert there.device == layer.weight.device == GPU
        found = torch.autograd.grad(layer(there).square().sum(), layer.weight)[0]
        assert found.device == torch.zeros(2, device=GPU).device == GPU
        torch.testing.assert_close(found.cpu(), expected)
        changed = torch.zeros(5, device=GPU)
        changed[2:] += 1
        assert changed.tolist() == [0, 0, 1, 1, 1]
        with pytest.raises(RuntimeError, match="two devices"):
            layer(x)
        with pytest.raises(RuntimeError, match="generator of the CPU"):
            torch.randn(3, generator=torch.Generator(), device=GPU)
        with pytest.raises(TypeError, match="NumPy"):
            np.asarray(there)
        index = torch.zeros(3, dtype=torch.int64, device=GPU)
        for refused in (
            lambda: there.median(dim=0),
            lambda: there[0].scatter_reduce(0, index, there[1], "amax"),
            lambda: index.bincount(there[0]),
        ):
            with pytest.raises(RuntimeError, match="does not have a deterministic form"):
                refused()
        total = there[0].scatter_reduce(0, index, there[1], "sum")
        assert total[0].item() == pytest.approx(float(x[0, 0] + x[1].sum()), rel=1e-5)
        assert index.bincount().tolist() == [3]
        with torch.device("meta"):
            assert not isinstance(torch.nn.Linear(3, 2).weight, OnGPU)


@pytest.mark.slow
def test_an_experiment_gives_the_same_numbers_on_the_gpu(
    experiment, smoke_run, killed, emulation, monkeypatch, tmp_path
):
    arguments = smoke_run(seeds=1)
    expected = run_experiment(*arguments)
    checkpoints = Checkpoints(tmp_path / "scratch", "the same in both attempts")
    monkeypatch.setattr(run, "resolve_device", lambda name: GPU)
    with emulation():
        with killed(1):
            run_experiment(*arguments, checkpoints=checkpoints)
        found = run_experiment(*arguments, checkpoints=checkpoints)
    tables = [result.metrics for result in (found, expected)]
    pd.testing.assert_frame_equal(*tables, check_exact=False, rtol=1e-6, atol=1e-12)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; none is emulated here")
def test_a_gpu_gives_the_same_bytes_twice(experiment, smoke_run):
    spec, *files = smoke_run(seeds=1)
    found, again = (run_experiment({**spec, "device": "cuda"}, *files) for _ in range(2))
    pd.testing.assert_frame_equal(found.metrics, again.metrics, check_exact=True)
    assert found.arrays.keys() == again.arrays.keys()
    for name, array in again.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
    expected = run_experiment(spec, *files).metrics
    settings = [column for column in expected if column != "value"]
    pd.testing.assert_frame_equal(found.metrics[settings], expected[settings])

"""The engine on a GPU, an emulated one: every usage case, and what it is given from the CPU."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

import feature_alignment as fa
from emulated_gpu import GPU
from zoo.contract import close
from zoo.oracle import grams
from zoo.test_layers import CASES, made

pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated:FutureWarning")

FAST = {"linear", "batch norm", "self-attention"}
CPU_ONLY = {
    # They make tensors on the CPU themselves.
    "a layer on a table that all samples share",
    "embedding bag with a flat list",
    "packed sequences",
    "positions looked up",
    "positions looked up for each sample",
    "scattered",
    # The emulation has no gradients of complex numbers, sparse gradients, or forward mode of them.
    "complex arithmetic",
    "table of sparse gradients",
    "tangent of a network",
    "view as complex",
}


def marked(name):
    return pytest.param(name, marks=() if name in FAST else pytest.mark.exhaustive)


@pytest.fixture(autouse=True)
def any_algorithms():
    """Users' models may take what CUDA has no deterministic form of; the experiments' must not."""
    torch.set_deterministic_debug_mode("default")
    yield
    torch.set_deterministic_debug_mode("error")


def on_gpu(x):
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(GPU), x)


@pytest.mark.parametrize("name", [marked(name) for name in CASES if name not in CPU_ONLY])
def test_quantities(name, emulation):
    case = made(name)
    kernel = sum(grams(case.rows).values())
    u = torch.ones(next(iter(case.rows.values())).shape[:2], dtype=torch.float64)
    model = case.build()
    with emulation():
        model, x = model.to(GPU), on_gpu(case.x)
        close(fa.tangent_kernel(model, x).total.cpu(), kernel, case.tolerance)
        assert fa.tangent_trace(model, x) == pytest.approx(kernel.trace().item(), rel=1e-6)
        pulled = fa.Jacobian(model, x).transpose_times(u)
        for key, rows in case.rows.items():
            expected = torch.einsum("ny,nyp->p", u, rows)
            torch.testing.assert_close(
                pulled[key].cpu().flatten().double(), expected, rtol=1e-6, atol=1e-6
            )


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_arrays_labels_and_starts_of_the_cpu_are_moved(emulation):
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6) % 3
    start = {name: 0.5 * value for name, value in fa.copy_parameters(network()).items()}
    expected = fa.tangent_kernel(network(), x)
    adapted = fa.adapted_kernel(network(), start, fa.copy_parameters(network()), x)
    table = fa.features(network(), x, initial=start).frame()
    with emulation():
        model = network().to(GPU)
        kernel = fa.tangent_kernel(model, x)
        assert kernel.alignment(y) == pytest.approx(expected.alignment(y), rel=1e-5)
        assert kernel.alignment(torch.from_numpy(y)) == pytest.approx(kernel.alignment(y))
        other = expected.total.numpy()
        assert fa.kernel_alignment(kernel.total, other) == pytest.approx(1, rel=1e-6)
        ours = fa.adapted_kernel(model, start, fa.copy_parameters(model), x)
        torch.testing.assert_close(ours.total.cpu(), adapted.total)
        found = fa.features(model, x, initial=start).frame()
    pd.testing.assert_frame_equal(found, table, check_exact=False, rtol=1e-5)


def test_tensors_of_another_device_are_named(emulation):
    x = torch.randn(6, 4)
    with emulation():
        model = network().to(GPU)
        with pytest.raises(ValueError, match=r"x: on cpu, .* are on cuda:0; give x.to\('cuda:0'\)"):
            fa.tangent_kernel(model, x)
        with pytest.raises(ValueError, match="x: on cpu"):
            fa.features(model, x)


def test_a_model_that_moves_its_inputs_raises_its_own_errors(emulation):
    class Moving(nn.Linear):
        def forward(self, x):
            f = super().forward(x.to(GPU))
            if self.broken:
                raise RuntimeError("broken")
            return f

    x, model = torch.randn(6, 4), Moving(4, 3)
    model.broken = False
    expected = fa.tangent_kernel(nn.Sequential(nn.Linear(4, 3)), x).total
    with emulation():
        model = model.to(GPU)
        torch.testing.assert_close(fa.tangent_kernel(model, x).total.cpu(), expected)
        model.broken = True
        with pytest.raises(RuntimeError, match="broken"):
            fa.tangent_kernel(model, x)

import subprocess
import sys

import pytest
import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels import tangent
from feature_alignment.kernels.tangent import tangent_kernel


def network(width=4):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * width, 3),
    ).double()


def images(n, seed=0):
    return torch.randn(n, 2, 8, 8, dtype=torch.float64, generator=torch_stream(seed, "data"))


@pytest.mark.parametrize("budget", [110_000, 130_000, 10**9])
def test_any_budget_gives_the_same_kernel(budget, explicit_kernel, assert_same_kernel):
    model, x, x2 = network(), images(7), images(5, seed=1)
    found = tangent_kernel(model, x, memory_budget=budget)
    assert torch.equal(found.total, found.total.T)
    assert_same_kernel(found, explicit_kernel(model, x), 1e-10)
    cross = tangent_kernel(model, x, x2, memory_budget=budget)
    assert_same_kernel(cross, explicit_kernel(model, x, x2), 1e-10)


def test_progress_grows_to_one_and_counts_the_blocks():
    few, many = [], []
    tangent_kernel(network(), images(7), progress=few.append)
    tangent_kernel(network(), images(7), memory_budget=110_000, progress=many.append)
    assert few == pytest.approx([1 / 3, 2 / 3, 1])
    assert len(many) > 3 * len(few)
    for shares in (few, many):
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1)


def test_two_sets_share_the_budget():
    """Where it holds the gradients of one of them, but not of both."""
    model, x, x2 = nn.Linear(10, 100).double(), *torch.randn(2, 8, 10).double()
    shares, both = [], 8 * 2 * 8 * (10 + 100 * 100)  # bytes for the gradients of 16 samples
    tangent_kernel(model, x, memory_budget=0.8 * both, progress=shares.append)
    assert shares == [1]
    tangent_kernel(model, x, x2, memory_budget=0.8 * both, progress=shares.append)
    assert len(shares) > 2


def test_columns_that_fit_are_one_block_beside_fewer_rows():
    shares = []
    tangent_kernel(nn.Linear(10, 3), torch.ones(1, 10), torch.ones(9, 10), progress=shares.append)
    assert shares == [1]


def test_an_eighth_of_the_budget_is_for_passes(monkeypatch):
    capture, given = tangent.capture_gradients, []

    def noted(plan, samples, workspace):
        given.append(workspace)
        return capture(plan, samples, workspace)

    monkeypatch.setattr(tangent, "capture_gradients", noted)
    tangent_kernel(network(), images(3), memory_budget=800_000)
    assert given == [100_000]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_budget_that_is_too_small_says_which_is_enough(n):
    held = "one sample" if n == 1 else "two samples"

    def refused(budget):
        with pytest.raises(ValueError, match=rf"memory_budget: .* of {held} need \d+\.$") as told:
            tangent_kernel(network(), images(n), memory_budget=budget)
        return int(str(told.value).split()[-1].rstrip("."))

    needed = refused(1000)
    assert refused(needed - 1) == needed
    tangent_kernel(network(), images(n), memory_budget=needed)


def test_where_gradients_are_larger_than_passes_enough_is_an_eighth_more():
    model, x = nn.Linear(10, 100).double(), torch.randn(3, 10).double()
    with pytest.raises(ValueError, match=r"of two samples need \d+\.$") as told:
        tangent_kernel(model, x, memory_budget=1000)
    tangent_kernel(model, x, memory_budget=int(str(told.value).split()[-1].rstrip(".")))


MEASURE = """
import torch
from torch import nn

from feature_alignment.kernels.tangent import tangent_kernel


def resident():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmHWM"].split()[0]) * 1024


torch.set_num_threads(1)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
    nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32 * 64, 4),
)
tangent_kernel(model, torch.randn(2, 3, 32, 32))  # libraries allocate at their first use
x = torch.randn(40, 3, 32, 32)
before = resident()
for budget in (30, 300):
    tangent_kernel(model, x, memory_budget=budget * 2**20)
    print((resident() - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's /proc")
def test_peak_memory_stays_within_the_budget(root):
    result = subprocess.run(
        [sys.executable, "-c", MEASURE],
        env={"PYTHONPATH": str(root / "src")},
        capture_output=True,
        check=True,
    )
    small, large = (float(line) for line in result.stdout.split())
    assert small < 30
    assert 40 < large < 300  # so that the first bound is one

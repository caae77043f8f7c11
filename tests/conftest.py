"""What several test files share: the checkout, and small complete configurations."""

import gc
import importlib
import os
import sys
from pathlib import Path

import pytest
import torch

from feature_alignment import papers
from feature_alignment.data import download
from feature_alignment.determinism import configure
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.plan import make_plan

ROOT = Path(__file__).resolve().parent.parent
# The made-up paper, which is found as every paper is; tests of the pipeline name no other.
papers.__path__.append(str(ROOT / "tests" / "example_paper"))
sys.path += [str(ROOT / "tests"), str(ROOT / "tools")]  # for `toys` and `tool`
# In `git rebase --exec` or a hook, git's variables would lead the tests' commits to this checkout.
for name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[name]
os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}  # no signing, no hooks


LONG = (
    "tests/workflow/test_smoke.py",  # makes the smoke run that others look at
    "tests/workflow/test_slurm.py",
    "tests/workflow/test_faults.py",
    "tests/zoo/test_models.py",
    "tests/workflow/test_command_line.py",
    "tests/papers/test_gpu.py",
    "tests/workflow/test_conda.py",
    "tests/zoo",
    "tests/workflow",
    "tests/test_packaging.py",
    "tests/pipeline/test_hostile_config.py",
    "tests/papers/test_",
    "tests/free_probability/test_words.py",
    "tests/papers",
)
"""Where the tests take longest."""


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their marks
def pytest_collection_modifyitems(items):
    """The longest first, so that no process has much to do when the others have nothing left."""
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
    items.sort(key=lambda item: _place(item.nodeid))


def _place(name):
    return next((i for i, start in enumerate(LONG) if name.startswith(start)), len(LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart():
    """PyTorch's stream begins anew, so that no test depends on which ones a process ran before."""
    torch.default_generator.manual_seed(int(os.environ.get("TEST_SEED", "0")))


# Not only what a file draws when it is imported: also what fixtures and tests draw.
pytest_runtest_setup = pytest_runtest_call = pytest_collectstart


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One more than there are cores, since tests of a scheduler wait most of their time.

    The fast ones don't.
    """
    mine = getattr(os, "sched_getaffinity", None)  # where there is one, the cores of this process
    return (len(mine(0)) if mine else os.cpu_count()) + (config.option.markexpr != "not slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imports without the garbage collector, which would look at all that they leave, often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def emulation(monkeypatch):
    """A context in which tensors can be on an emulated GPU."""
    from emulated_gpu import emulation  # found by the path above

    return emulation(monkeypatch)


@pytest.fixture(scope="session")
def root():
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="module")
def tool(request):
    """The module of `tools` that the file of the test is about."""
    return importlib.import_module(request.path.stem.removeprefix("test_"))


@pytest.fixture(scope="session")
def smoke_config():
    """The complete smoke configuration."""
    return resolve_config({}, ROOT / "workflow", preset="smoke")


@pytest.fixture(scope="session")
def smoke_plan(smoke_config):
    """The plan of the smoke configuration."""
    return make_plan(smoke_config)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One thread for the session: tiny operations on two cost more than they gain."""
    configure(1)


@pytest.fixture(scope="session")
def executable(tmp_path_factory):
    """For tests that write programs."""
    if os.statvfs(tmp_path_factory.getbasetemp()).f_flag & getattr(os, "ST_NOEXEC", 0):
        pytest.skip("nothing can be executed in the temporary folder; name another by TMPDIR")


@pytest.fixture
def quick_downloads(monkeypatch):
    """Downloads from this machine that are tried again without a wait."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(download, "FIRST_WAIT_SECONDS", 0.001)


def _jacobian(model, x):
    """Rows ∇f_y(x_i), samples first, by layer: each sample alone, each output alone."""
    named = list(model.named_parameters())
    layers = {name.rpartition(".")[0]: [] for name, _ in named}
    for i in range(len(x)):
        f = model(x[i : i + 1]).flatten()
        for y in range(len(f)):
            values = [value for _, value in named]
            found = torch.autograd.grad(f[y], values, retain_graph=True, allow_unused=True)
            row = {layer: [] for layer in layers}
            for (name, value), gradient in zip(named, found, strict=True):
                gradient = torch.zeros_like(value) if gradient is None else gradient
                row[name.rpartition(".")[0]].append(gradient.flatten())
            for layer, parts in row.items():
                layers[layer].append(torch.cat(parts))
    return {layer: torch.stack(rows) for layer, rows in layers.items()}


@pytest.fixture(scope="session")
def explicit_jacobian():
    """Function (model, x) → Jacobian (n·c, p), the columns in parameter order."""
    return lambda model, x: torch.cat(list(_jacobian(model, x).values()), dim=1)


@pytest.fixture(scope="session")
def explicit_kernel():
    """Function (model, x, x2=None) → Gram matrix (n·c, n₂·c) by layer, from explicit Jacobians."""

    def kernel(model, x, x2=None):
        rows = _jacobian(model, x)
        columns = rows if x2 is None else _jacobian(model, x2)
        return {layer: rows[layer] @ columns[layer].T for layer in rows}

    return kernel


@pytest.fixture(scope="session")
def assert_same_kernel():
    """Function (found, expected by layer, tolerance) that compares layers, total and symmetry."""

    def check(found, expected, tolerance):
        assert set(found.layers) == set(expected)
        for layer, gram in expected.items():
            error = (found.layers[layer].double() - gram.double()).norm()
            assert error <= tolerance * gram.norm(), f"{layer}: {error / gram.norm():.2g}"
        total = sum(gram.double() for gram in expected.values())
        assert (found.total.double() - total).norm() <= tolerance * total.norm()

    return check

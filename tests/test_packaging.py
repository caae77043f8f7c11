"""The wheel works in an empty environment, with no more packages than it says."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md",)
IMPORT_ALL = """
import importlib, pkgutil, sys
import feature_alignment
above = ("papers", "pipeline", "data", "__main__", "adaptive.adaptive_features")
skipped = tuple(f"feature_alignment.{name}" for name in above)
names = [
    module.name
    for module in pkgutil.walk_packages(
        [*feature_alignment.__path__], "feature_alignment.",
    )
    if not module.name.startswith(skipped)
]
for name in names:
    importlib.import_module(name)
print(*names)
"""
MEASURE = """
import torch
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.training.progress import Progress
model = torch.nn.Linear(3, 2, bias=False)
x = torch.randn(4, 3)
total = tangent_kernel(model, x).total
assert torch.allclose(total, torch.kron(x @ x.T, torch.eye(2)), atol=1e-5)
Progress(1, "run").update(1, torch.tensor(0.0))
"""


class Environment:
    """An environment of its own, in the versions of the lock file."""

    def __init__(self, folder):
        uv(f"build --quiet --wheel --out-dir {folder} {ROOT}")
        self.wheel = next(folder.glob("*.whl"))
        self.python = folder / "env" / "bin" / "python"
        uv(f"venv --quiet --python {sys.executable} {folder / 'env'}")

    def install(self, extras):
        lock = ROOT / "requirements.lock"
        uv(
            f"pip install --quiet --python {self.python} --constraint {lock} "
            f"feature-alignment{extras}@file://{self.wheel}"
        )

    def run(self, *arguments):
        return subprocess.run(
            [self.python, "-I", "-W", "error", *arguments],
            cwd=self.wheel.parent,
            capture_output=True,
            text=True,
            check=False,
        )

    def succeed(self, code):
        done = self.run("-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout


def uv(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "uv", *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """The wheel with what it cannot do without."""
    environment = Environment(tmp_path_factory.mktemp("wheel"))
    environment.install("")
    return environment


def test_the_core_brings_four_packages_and_measures(core):
    names = core.succeed(IMPORT_ALL).split()
    rooms = {name.split(".")[1] for name in names}
    assert rooms >= {"gradients", "kernels", "layer_features", "adaptive", "complexity", "probes"}
    assert rooms >= {"free_probability", "models", "training", "errors", "files", "determinism"}
    core.succeed(MEASURE)
    find = "from importlib.util import find_spec; print(*filter(find_spec, {}))"
    absent = ["matplotlib", "seaborn", "sklearn", "pydantic", "yaml", "tqdm", "threadpoolctl"]
    assert core.succeed(find.format([*absent, "torch"])).split() == ["torch"]


def test_what_is_not_installed_is_asked_for_in_one_sentence(core):
    done = core.run("-m", "feature_alignment", "--help")
    assert done.returncode == 0, done.stderr
    assert "pip install 'feature-alignment[pipeline]'" in " ".join(done.stdout.split())
    done = core.run("-c", "import feature_alignment as fa; fa.AdaptiveTangentFeatures")
    assert "needs sklearn: pip install 'feature-alignment[solver]'" in done.stderr


def test_types_and_the_command_come_along(core):
    package = core.succeed("import feature_alignment as fa; print(fa.__path__[0])").strip()
    assert (Path(package) / "py.typed").is_file()
    assert (core.python.parent / "feature-alignment").is_file()

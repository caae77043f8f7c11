"""The wheel works in an empty environment, with no more packages than it says."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from fetching import uv

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
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

OWN_MODEL = """
import torch
def build():
    return torch.nn.Linear(3, 1)
def batch():
    return torch.eye(3), torch.tensor([0.0, 1.0, 1.0])
"""
RUN_BLOCKS = """
import re, sys, torch
torch.manual_seed(0)
names = {}
for block in re.findall(r"```python\\n(.*?)```", sys.stdin.read(), re.DOTALL):
    exec(block, names)
"""


def test_all_files_name_the_same_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## (\S+), (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == (version, str(citation["date-released"]))
    assert citation["version"] == version


class Environment:
    """An environment of its own, in the versions of the lock file."""

    def __init__(self, folder):
        uv("build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
        self.wheel = next(folder.glob("*.whl"))
        self.python = folder / "env" / "bin" / "python"
        uv("venv", "--quiet", "--python", sys.executable, folder / "env")

    def install(self, extras):
        lock = ROOT / "requirements.lock"
        wheel = f"feature-alignment{extras}@{self.wheel.as_uri()}"
        uv("pip", "install", "--quiet", "--python", self.python, "--constraint", lock, wheel)

    def succeed(self, *arguments, page=""):
        done = subprocess.run(
            [self.python, "-W", "error", *arguments],
            cwd=self.wheel.parent,
            env={"PYTHONPATH": ".", "MPLBACKEND": "agg", "COLUMNS": "200"},
            input=page,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """The wheel with what it cannot do without."""
    environment = Environment(tmp_path_factory.mktemp("wheel"))
    environment.install("")
    return environment


def test_the_wheel_has_the_same_bytes_from_another_folder_at_another_time(core, tmp_path):
    folder = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        (folder / file).write_bytes((ROOT / file).read_bytes())
    uv("build", "--quiet", "--wheel", "--out-dir", tmp_path, folder)
    assert next(tmp_path.glob("*.whl")).read_bytes() == core.wheel.read_bytes()


def test_the_core_brings_four_packages_and_measures(core):
    names = core.succeed("-c", IMPORT_ALL).split()
    rooms = {name.split(".")[1] for name in names}
    assert rooms >= {"gradients", "kernels", "layer_features", "adaptive", "complexity", "probes"}
    assert rooms >= {"free_probability", "models", "training", "errors", "files", "determinism"}
    core.succeed("-c", MEASURE)
    find = "from importlib.util import find_spec; print(*filter(find_spec, {}))"
    absent = ["matplotlib", "seaborn", "sklearn", "pydantic", "yaml", "tqdm", "threadpoolctl"]
    assert core.succeed("-c", find.format([*absent, "torch"])).split() == ["torch"]


def test_the_core_measures_checkpoints(core):
    folder = core.wheel.parent
    (folder / "own.py").write_text(OWN_MODEL)
    save = "import own, torch; torch.save(own.build().state_dict(), 'step_5.pt')"
    core.succeed("-c", save)
    command = "measure own:build --data own:batch --checkpoints *.pt --out record"
    core.succeed("-m", "feature_alignment", *command.split())
    assert "effective_rank" in (folder / "record" / "metrics.csv").read_text()


def test_what_is_not_installed_is_asked_for_in_one_sentence(core):
    shown = core.succeed("-m", "feature_alignment", "--help")
    assert "pip install 'feature-alignment[pipeline]'" in shown
    solver = """
import feature_alignment as fa
try:
    fa.AdaptiveTangentFeatures
except ImportError as error:
    print(error)
"""
    said = "AdaptiveTangentFeatures needs sklearn: pip install 'feature-alignment[solver]'.\n"
    assert core.succeed("-c", solver) == said


def test_types_and_the_command_come_along(core):
    package = core.succeed("-c", "import feature_alignment as fa; print(fa.__path__[0])").strip()
    assert (Path(package) / "py.typed").is_file()
    assert (core.python.parent / "feature-alignment").is_file()


@pytest.mark.exhaustive
def test_the_tutorial_runs_with_the_extras_that_it_names(core):
    core.install("[plots,solver]")
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert "[plots,solver]" in page
    core.succeed("-c", RUN_BLOCKS, page=page)


@pytest.mark.exhaustive
def test_the_readme_runs_with_the_extras_that_it_names(core):
    core.install("[plots,solver]")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = page.partition("## Measuring your own model")
    own_model, _, after = rest.partition("## Running the pipeline")
    assert "[plots,solver]" in own_model
    core.succeed("-c", RUN_BLOCKS, page=own_model)
    core.install("[pipeline]")  # for a figure of one's own
    core.succeed("-c", RUN_BLOCKS, page=before + after)


def test_cleaning_keeps_snakemakes_records(root):
    """Without them, verdicts on claims that have changed since would be kept."""
    removed = (root / "Makefile").read_text().partition("\nclean:\n")[2].split()
    assert ".pytest_cache" in removed
    assert ".snakemake" not in removed

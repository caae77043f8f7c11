"""Import closures are what Python really loads, and layers import downwards only."""

import subprocess
import sys
from pathlib import Path

import pytest

from feature_alignment.pipeline.imports import (
    PACKAGE,
    SOURCE_ROOT,
    closure_hash,
    external_imports,
    import_closure,
)

MODULES = sorted(
    ".".join(path.relative_to(SOURCE_ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE_ROOT / PACKAGE).rglob("*.py")
)


def loaded_files(module):
    """The files of this package that Python has loaded after importing the module."""
    code = (
        f"import sys, {module}; print('\\n'.join(m.__file__ for n, m in sys.modules.items() "
        f"if n.partition('.')[0] == '{PACKAGE}'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE_ROOT), "PATH": ""},
    )
    return {Path(line) for line in done.stdout.split()}


@pytest.mark.parametrize(
    "module", ["feature_alignment.pipeline.run", "feature_alignment.pipeline.figures.make"]
)
def test_the_closure_holds_all_that_python_loads(module):
    assert loaded_files(module) <= set(import_closure(module))


def test_the_closure_holds_no_module_that_is_not_imported():
    closure = {path.name for path in import_closure("feature_alignment.pipeline.spec")}
    assert closure == {"__init__.py", "spec.py", "errors.py"}


def test_imports_inside_functions_count_and_type_checking_ones_do_not():
    closure = {path.name for path in import_closure("feature_alignment.determinism")}
    assert "errors.py" in closure
    assert "torch" in external_imports("feature_alignment.determinism")


def test_the_hash_follows_the_content_of_what_is_imported(monkeypatch):
    before = closure_hash("feature_alignment.pipeline.spec")
    assert closure_hash("feature_alignment.pipeline.spec") == before
    read = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda p: read(p) + (b"#" if p.name == "errors.py" else b"")
    )
    assert closure_hash("feature_alignment.pipeline.spec") != before


def test_an_unknown_module_is_an_error():
    with pytest.raises(ModuleNotFoundError, match="kernals"):
        import_closure("feature_alignment.kernals")


@pytest.mark.parametrize("module", MODULES)
def test_nothing_in_the_library_imports_snakemake(module):
    assert "snakemake" not in external_imports(module)


def test_the_plan_imports_no_heavy_package():
    # The Snakefile builds the plan at every start, so it must be quick.
    assert not {"torch", "torchvision", "sklearn"} & external_imports(
        "feature_alignment.pipeline.plan"
    )

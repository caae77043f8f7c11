"""Import closures are what Python really loads, and their hashes follow what code means."""

import ast
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from feature_alignment.files import Memory
from feature_alignment.pipeline import imports
from feature_alignment.pipeline.imports import (
    PACKAGE,
    SOURCE_ROOT,
    closure_hash,
    external_imports,
    import_closure,
)
from feature_alignment.pipeline.papers import all_parameters, experiment_module


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["feature_alignment.pipeline.run", "feature_alignment.pipeline.figures.make"]
)
def test_the_closure_holds_all_that_python_loads(module):
    assert loaded_files(module) <= set(import_closure(module).values())


def test_the_closure_holds_no_module_that_is_not_imported():
    closure = {path.name for path in import_closure("feature_alignment.pipeline.spec").values()}
    assert closure == {"__init__.py", "spec.py", "errors.py"}


def test_imports_inside_functions_count_and_type_checking_ones_do_not():
    closure = {path.name for path in import_closure("feature_alignment.determinism").values()}
    assert "errors.py" in closure
    assert "torch" in external_imports("feature_alignment.determinism")


@pytest.mark.parametrize(
    ("line", "holds", "holds_not"),
    [
        ("from feature_alignment import tangent_kernel", "kernels.tangent", "instrument.monitor"),
        ("import feature_alignment as fa", "instrument.monitor", "pipeline.run"),
        ("from feature_alignment import errors", "errors", "kernels.tangent"),
        ("if not TYPE_CHECKING: import feature_alignment.files", "files", "errors"),
        ("if typing.TYPE_CHECKING: import feature_alignment.files", "papers", "files"),
    ],
)
def test_what_a_name_of_the_package_stands_for_counts(
    tmp_path, monkeypatch, line, holds, holds_not
):
    (tmp_path / "mine2030").mkdir()
    (tmp_path / "mine2030" / "coin.py").write_text(f"{line}\n")
    papers = importlib.import_module("feature_alignment.papers")
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path)])
    found = import_closure("feature_alignment.papers.mine2030.coin")
    forget()
    assert f"feature_alignment.{holds}" in found
    assert f"feature_alignment.{holds_not}" not in found


def forget():
    for cached in (imports._module_file, imports._internal_imports, imports._facts):
        cached.cache_clear()
    imports.MEMORY = Memory("sources.json")


@pytest.fixture
def hash_of(tmp_path, monkeypatch):
    """The hash of a package whose module `a` imports its module `b`, by the text of `b`."""
    package = tmp_path / PACKAGE
    package.mkdir()
    for name in ("__init__", "b"):
        (package / f"{name}.py").touch()
    (package / "a.py").write_text(f"import {PACKAGE}.b\n")
    monkeypatch.setattr(imports, "SOURCE_ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)

    def found(text):
        (package / "b.py").write_text(text)
        forget()
        return closure_hash(f"{PACKAGE}.a")

    yield found
    forget()


CODE = """
LIMIT = 3
def f(x):
    return x + LIMIT
"""
PROSE = '''"""What the module is for."""

LIMIT = 3  # why three
"""What the limit is for."""


def f(x):
    """Add the limit."""
    # Once.
    return x + LIMIT
'''


def test_the_hash_follows_what_code_means_and_not_its_prose(hash_of):
    before = hash_of(CODE)
    assert hash_of(PROSE) == before
    assert hash_of(CODE.replace("x + LIMIT", "LIMIT + x")) != before
    assert hash_of(CODE.replace("LIMIT = 3", 'LIMIT = "3"')) != before


def test_what_code_means_is_the_same_to_all_versions_of_python():
    """Some have type parameters, and ways to leave out fields that are empty."""
    tree = ast.parse("def f(x=None):\n    return g(), {**x}, 'é'\n")
    assert imports._told(tree) == (
        "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')], "
        "defaults=[Constant()]), body=[Return(value=Tuple(elts=[Call(func=Name(id='g', "
        "ctx=Load())), Dict(keys=[None], values=[Name(id='x', ctx=Load())]), "
        "Constant(value='\\xe9')], ctx=Load()))])])"
    )


def test_empty_strings_within_a_formatted_one_do_not_count(hash_of, monkeypatch):
    """Python 3.12.1 adds them to nested formats."""
    code = 'def f(x, form):\n    return f"{x:{form}}"\n'
    before = hash_of(code)

    class Padded(ast.NodeTransformer):
        def visit_JoinedStr(self, node):
            self.generic_visit(node)
            return ast.JoinedStr([*node.values, ast.Constant("")])

    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda *a, **k: Padded().visit(parse(*a, **k)))
    assert hash_of(code.replace("f(x", "f( x")) == before
    assert hash_of(code.replace("{form}", "{form}>")) != before


def test_a_file_is_read_in_the_encoding_that_python_reads_it_in(hash_of, tmp_path):
    before = hash_of(CODE)
    for mark, encoding in (("", "utf-8-sig"), ("# coding: latin-1, as in café\n", "latin-1")):
        (tmp_path / PACKAGE / "b.py").write_text(f"{mark}{CODE}", encoding=encoding)
        forget()
        assert closure_hash(f"{PACKAGE}.a") == before


def test_what_was_read_is_kept_as_long_as_the_file_is_the_same(hash_of, tmp_path):
    (tmp_path / ".snakemake").mkdir()
    first = hash_of(CODE)
    imports.MEMORY.keep()
    assert len(json.loads((tmp_path / imports.MEMORY.file).read_text())) == 3
    assert hash_of(CODE) == first
    assert hash_of("LIMIT = 4") != first
    (tmp_path / imports.MEMORY.file).write_text("[damaged")
    assert hash_of(CODE) == first


def test_an_edit_of_the_same_size_and_time_is_seen(hash_of, tmp_path):
    (tmp_path / ".snakemake").mkdir()
    first = hash_of("LIMIT = 4")
    imports.MEMORY.keep()
    edited = next(file for file in tmp_path.rglob("*.py") if "LIMIT = 4" in file.read_text())
    times = edited.stat()
    edited.write_text(edited.read_text().replace("LIMIT = 4", "LIMIT = 5"))
    os.utime(edited, ns=(times.st_atime_ns, times.st_mtime_ns))
    forget()
    assert closure_hash(f"{PACKAGE}.a") != first


def test_what_was_read_is_known_in_a_copy(hash_of, tmp_path, monkeypatch):
    (tmp_path / ".snakemake").mkdir()
    first = hash_of(CODE)
    imports.MEMORY.keep()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
    monkeypatch.setattr(imports, "SOURCE_ROOT", copy)
    monkeypatch.chdir(copy)
    forget()
    monkeypatch.setattr(imports, "_read", None)
    assert closure_hash(f"{PACKAGE}.a") == first


def test_parameters_of_papers_do_not_count_since_the_spec_has_their_values():
    module = experiment_module(next(iter(all_parameters())))
    assert not [
        path
        for path in import_closure(module).values()
        if path.name == "parameters.py" and "papers" in path.parts
    ]


def test_an_unknown_module_is_an_error():
    with pytest.raises(ModuleNotFoundError, match="kernals"):
        import_closure("feature_alignment.kernals")


def test_the_plan_imports_no_heavy_package():
    # The Snakefile builds the plan at every start, so it must be quick.
    assert not {"torch", "torchvision", "sklearn"} & external_imports(
        "feature_alignment.pipeline.plan"
    )

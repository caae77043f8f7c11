"""The files for --use-conda list exactly what their rules import, in the lock file's versions."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker

from feature_alignment.pipeline.imports import external_imports

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {
    "pydantic_core": "pydantic-core",
    "yaml": "pyyaml",
    "PIL": "pillow",
    "markdown_it": "markdown-it-py",
    "sklearn": "scikit-learn",
}
SCRIPTS = ROOT / "workflow" / "scripts"
ENVIRONMENTS = sorted((ROOT / "envs").glob("*.yaml"))
# Modules that a rule chooses by wildcard.
WILDCARD_MODULES = {"run_experiment": "experiments", "make_figure": "figures"}


def locked_versions(python="3.11"):
    """The versions that the lock file gives for a Python version on Linux."""
    versions = {}
    environment = {"python_full_version": f"{python}.9", "python_version": python}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        match = re.match(r"([\w.-]+)==([\w.+]+)(?: ; (.*?))?(?: \\)?$", line)
        if match and (not match[3] or Marker(match[3]).evaluate(environment)):
            versions[match[1]] = match[2]
    return versions


def listed(environment):
    """The versions that an environment file lists, and its conda packages."""
    *conda, pip = yaml.safe_load(environment.read_text())["dependencies"]
    return dict(line.split("==") for line in pip["pip"]), conda


def rules_of(environment):
    """The scripts of the rules that use an environment."""
    for rules in (ROOT / "workflow" / "rules").glob("*.smk"):
        for rule in re.split(r"^rule ", rules.read_text(), flags=re.MULTILINE)[1:]:
            if f"envs/{environment.name}" in rule:
                yield re.search(r"scripts/(\w+)\.py", rule)[1]


def modules_of(script):
    """The library modules that a script runs."""
    text = (SCRIPTS / f"{script}.py").read_text()
    yield from re.findall(r"from (feature_alignment\.[\w.]+) import", text)
    if script in WILDCARD_MODULES:
        layer = WILDCARD_MODULES[script]
        for path in (ROOT / "src/feature_alignment/papers").glob(f"*/{layer}/*.py"):
            paper = path.parents[1].name
            yield f"feature_alignment.papers.{paper}.{layer}.{path.stem}".removesuffix(".__init__")


def test_there_are_two_environments_and_every_rule_uses_one():
    assert [path.stem for path in ENVIRONMENTS] == ["compute", "figures"]
    used = [script for environment in ENVIRONMENTS for script in rules_of(environment)]
    assert sorted(used) == sorted(p.stem for p in SCRIPTS.glob("*.py"))


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.stem)
def test_versions_are_those_of_the_lock(environment):
    packages, conda = listed(environment)
    locked = locked_versions()
    assert packages == {name: locked[name] for name in packages}
    assert conda[0].startswith("python=3.11.")
    assert "snakemake" not in packages


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.stem)
def test_an_environment_lists_what_its_rules_import_and_no_more(environment):
    modules = {module for script in rules_of(environment) for module in modules_of(script)}
    imported = external_imports(*modules) - set(sys.stdlib_module_names)
    wanted = {DISTRIBUTIONS.get(name, name) for name in imported}
    assert set(listed(environment)[0]) == wanted


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_job_imports_what_takes_seconds_after_it_has_begun(script):
    # Else an interrupt, or a package that is missing, would end in a traceback.
    if "open_job" in script.read_text():
        text = re.split(r"^with open_job", script.read_text(), flags=re.MULTILINE)[0]
        first = re.findall(r"from (feature_alignment\.[\w.]+) import", text)
        heavy = {"matplotlib", "numpy", "pandas", "scipy", "seaborn", "torch"}
        assert external_imports(*first) & heavy == set()


def test_the_lock_holds_hashes_and_no_address():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert text.count("--hash=sha256:") > len(locked_versions())

"""The pipeline through --use-conda itself, with a stand-in that builds what the env files list.

Some figures of it; `python -m tests.workflow.whole_conda` makes all.
"""

import importlib.util
import os
from pathlib import Path

import pytest

from feature_alignment.pipeline.papers import paper_of

pytestmark = pytest.mark.exhaustive
SMOKE = ("--cores", "2", "--use-conda", "--config", "preset=smoke")
FEW = 3


@pytest.fixture(scope="module")
def stand_in():
    file = Path(__file__).with_name("stand_in_conda.py")
    spec = importlib.util.spec_from_file_location("stand_in_conda", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def chosen(smoke_plan):
    """Each paper's figure with the fewest runs; of a paper whose figures all have many, one run."""
    runs = {figure: smoke_plan.runs_of(figure) for figure in smoke_plan.figures}
    smallest = {}
    for figure in sorted(filter(runs.get, runs), key=lambda figure: -len(runs[figure])):
        smallest[paper_of(figure)] = figure
    figures = [figure for figure in smallest.values() if len(runs[figure]) <= FEW]
    others = [runs[figure][0] for figure in smallest.values() if figure not in figures]
    return figures, [f"results/smoke/runs/{name}/{point}/metrics.csv" for name, point in others]


@pytest.fixture(scope="module")
def through_conda(tmp_path_factory, pipeline_class, stand_in, chosen, executable):
    """What was chosen of each paper, made in the environments of its rules, and judged."""
    folder = tmp_path_factory.mktemp("conda")
    copy, command = pipeline_class(folder / "pipeline"), stand_in.install(folder / "prefix")
    copy.by_itself = True
    copy.variables = {"PATH": os.pathsep.join([str(command), os.environ["PATH"]])}
    figures, runs = chosen
    copy.succeed("all", *runs, *SMOKE, f"figures={','.join(figures)}")
    return copy


def test_what_is_made_of_each_paper_has_the_same_bytes(through_conda, finished, chosen):
    made, expected = through_conda.results(), finished.results()
    figures, runs = chosen
    pictures = [f"figures/smoke/{figure}.{kind}" for figure in figures for kind in ("pdf", "png")]
    shared = made.keys() & expected.keys()
    assert shared > {*pictures, *runs}
    assert [name for name in shared if made[name] != expected[name]] == []
    assert (through_conda.folder / "results/smoke/selected/report.html").exists()
    environments = list((through_conda.folder / ".snakemake/conda").glob("*_/bin/python"))
    assert len(environments) == 2


@pytest.mark.parametrize(("environment", "package"), [("figures", "seaborn"), ("compute", "tqdm")])
def test_a_package_that_a_file_does_not_list_is_named(through_conda, chosen, environment, package):
    file = through_conda.folder / f"envs/{environment}.yaml"
    whole = file.read_text()
    kept = [line for line in whole.splitlines() if f"- {package}==" not in line]
    file.write_text("\n".join(kept) + "\n")
    try:
        done = through_conda.run(*SMOKE, f"figures={chosen[0][0]}")
    finally:
        file.write_text(whole)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert f"package {package} comes from " in said
    assert "add it to the rule's file in envs/, or run without --use-conda;" in said
    assert "Traceback" not in said

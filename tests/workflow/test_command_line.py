"""What a user types: presets, selections, named targets, and mistakes."""

import re
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

MALFORMED = yaml.safe_load(
    (Path(__file__).parents[1] / "pipeline" / "malformed_configs.yaml").read_text()
)
FIGURE_FILES = Path(__file__).parents[2] / "src" / "feature_alignment" / "papers"


def number_of_figures(papers="*"):
    """How many figures there are, in all or of one paper: as many as there are files."""
    return len(list(FIGURE_FILES.glob(f"{papers}_fig*.py")))


ALL_FIGURES = number_of_figures()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory, pipeline_class):
    """A copy of the pipeline for dry runs, which change nothing."""
    return pipeline_class(tmp_path_factory.mktemp("dry") / "pipeline")


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_config_stops_with_one_sentence(fresh, tmp_path, case):
    config = tmp_path / "mine.yaml"
    config.write_text(MALFORMED[case]["config"])
    done = fresh.run("-n", "--configfile", str(config))
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in printed
    sentences = [line for line in printed.splitlines() if re.search(MALFORMED[case]["says"], line)]
    assert len(sentences) == 1, printed


@pytest.mark.parametrize("text", ["preset: [quick", "- preset", "preset: {"])
def test_a_config_that_is_no_yaml_mapping_stops_without_a_traceback(fresh, tmp_path, text):
    config = tmp_path / "mine.yaml"
    config.write_text(text)
    done = fresh.run("-n", "--configfile", str(config))
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in printed
    assert "Config file" in printed


@pytest.mark.parametrize("preset", ["smoke", "quick", "laptop", "paper"])
def test_every_preset_plans_every_figure(fresh, preset):
    planned = fresh.planned("--config", f"preset={preset}")
    assert planned["figure"] == planned["figure_table"] == ALL_FIGURES


def test_a_paper_is_a_target(fresh):
    for paper in ("baratin2021", "lejeune2024", "beaglehole2024"):
        planned = fresh.planned(paper)
        assert planned["figure"] == planned["figure_table"] == number_of_figures(paper) > 0
        assert planned[paper] == 1
        assert "claims" not in planned


def one_figure():
    return {"run": 1, "figure_table": 1, "figure": 1}


def test_a_figure_of_any_preset_is_a_target(fresh):
    planned = fresh.planned("figures/paper/beaglehole2024_fig1.pdf")
    assert planned == one_figure()


@pytest.mark.parametrize(
    ("selection", "figures"),
    [
        ("papers=lejeune2024", number_of_figures("lejeune2024")),
        (
            "papers=[baratin2021,beaglehole2024]",
            number_of_figures("baratin2021") + number_of_figures("beaglehole2024"),
        ),
        ("figures=lejeune2024_fig2,baratin2021_fig1", 2),
    ],
)
def test_a_selection_makes_a_part(fresh, selection, figures):
    planned = fresh.planned("--config", selection)
    assert planned["figure"] == figures
    assert planned["claims"] == planned["report"] == 1


def test_any_key_can_be_overridden_by_a_configfile(fresh, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("datasets: {mnist: {source: torchvision}}\n")
    text = fresh.succeed("-n", "--configfile", str(config))
    assert "results/data/mnist.torchvision.npz" in text or "mnist (torchvision)" in text


@pytest.mark.parametrize("profile", ["default", "gpu", "slurm"])
def test_every_profile_is_accepted(fresh, profile):
    planned = fresh.planned("--workflow-profile", profile)
    assert planned["figure"] == ALL_FIGURES


def test_a_users_mistake_in_a_job_is_one_sentence_and_leaves_nothing(fresh, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text(
        "preset: smoke\nexperiments: {beaglehole2024_chain_monomial: {dimension: 4}}\n"
    )
    target = "results/smoke/runs/beaglehole2024_chain_monomial/default/metrics.csv"
    done = fresh.run("--cores", "1", "--configfile", str(config), "--", target)
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert "beaglehole2024_chain_monomial/default: rank: found 5, above the dimension 4" in printed
    assert "Traceback" not in printed
    assert list((fresh.folder / "results").rglob("*.csv")) == []


@pytest.mark.parametrize(
    ("experiment", "point", "says"),
    [
        ("beaglehole2024_chain_monomial", "default", "training killed the network"),
        ("lejeune2024_digit_regression", "linear", "training diverged between steps"),
    ],
)
def test_a_failed_training_is_an_error_that_says_what_to_do(
    fresh, tmp_path, experiment, point, says
):
    config = tmp_path / "mine.yaml"
    config.write_text(f"preset: smoke\nexperiments: {{{experiment}: {{learning_rate: 1000.0}}}}\n")
    target = f"results/smoke/runs/{experiment}/{point}/metrics.csv"
    done = fresh.run("--cores", "1", "--configfile", str(config), "--", target)
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(rf"{says}.* use a smaller learning rate", printed)
    assert "Traceback" not in printed
    assert not (fresh.folder / target).exists()


def test_the_default_profile_is_used_by_itself(fresh):
    assert "Using workflow specific profile profiles/default" in fresh.succeed("-n")

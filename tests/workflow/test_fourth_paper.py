"""A paper is one folder: with it in its place, everything works, and no other file is touched."""

import shutil
import subprocess
import sys

import pandas as pd
import pytest

pytestmark = pytest.mark.slow
PAPER = "example2030"
SMOKE = ("--config", "preset=smoke")


@pytest.fixture(scope="module")
def with_the_paper(tmp_path_factory, pipeline_class):
    """A copy of the repository with the made-up paper's figures, claims and report."""
    copy = pipeline_class(tmp_path_factory.mktemp("fourth") / "pipeline")
    copy.succeed("--cores", "1", PAPER, *SMOKE)
    copy.succeed("--cores", "1", *SMOKE, f"papers={PAPER}")
    return copy


def test_the_paper_is_one_folder(root, with_the_paper):
    own = root / "tests" / "example_paper" / PAPER
    folder = with_the_paper.folder
    known = {path.relative_to(root) for path in root.rglob("*") if path.is_file()}
    added = folder / "src" / "feature_alignment" / "papers" / PAPER
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if not path.is_file() or name.parts[0] in {"results", "figures", ".snakemake", ".cache"}:
            continue
        if path.is_relative_to(added):
            assert path.read_bytes() == (own / path.relative_to(added)).read_bytes()
        else:
            assert name in known
            assert path.read_bytes() == (root / name).read_bytes()


def test_its_figures_claims_and_report_are_made(with_the_paper):
    results = with_the_paper.results()
    for figure in (f"{PAPER}_fig1", f"{PAPER}_fig2"):
        assert results[f"figures/smoke/{figure}.png"].startswith(b"\x89PNG")
    verdicts = pd.read_csv(with_the_paper.folder / "results/smoke/selected/claims.csv").set_index(
        "id"
    )
    assert verdicts["verdict"].to_dict() == {
        f"{PAPER}.fig1.fair_share": "not testable here",
        f"{PAPER}.fig1.bent_share": "not testable here",
        f"{PAPER}.fig2.loss_falls": "reproduced",
    }
    report = (with_the_paper.folder / "results/smoke/selected/report.html").read_text(
        encoding="utf-8"
    )
    assert report.count("data:image/png;base64,") == 2
    for text in ("Coins That Fall and Losses That Fall", "half of the throws", "Figure 2"):
        assert text in report


def test_its_mistakes_are_told_as_all_others_are(with_the_paper, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("experiments: {example2030_coin: {thorws: 3}}\n")
    done = with_the_paper.run("-n", "--configfile", str(config))
    assert done.returncode != 0
    said = "experiments.example2030_coin.thorws: unknown key; did you mean 'throws'?"
    assert said in done.stdout + done.stderr
    ledger = with_the_paper.folder / f"src/feature_alignment/papers/{PAPER}/claims.yaml"
    whole = ledger.read_text()
    ledger.write_text(whole.replace("comparator: near", "comparator: nera", 1))
    try:
        done = with_the_paper.run("--cores", "1", *SMOKE, f"papers={PAPER}")
    finally:
        ledger.write_text(whole)
    assert done.returncode != 0
    said = "claim example2030.fig1.fair_share: criterion.comparator: found 'nera'; did you mean"
    assert said in done.stdout + done.stderr


def test_a_module_that_cannot_be_read_is_one_sentence(with_the_paper):
    file = with_the_paper.folder / f"src/feature_alignment/papers/{PAPER}/figures"
    file /= "shares_and_losses.py"
    whole = file.read_text()
    file.write_text(whole.replace(f"feature_alignment.papers.{PAPER}.parameters", "..parameters"))
    try:
        done = with_the_paper.run("-n", PAPER, *SMOKE)
    finally:
        file.write_text(whole)
    shown = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in shown
    assert "Error: " in shown.splitlines()[-1]
    assert "shares_and_losses.py:3: a relative import; write the module's full name" in shown


def test_a_figure_that_fails_shows_one_sentence_and_one_traceback(with_the_paper):
    file = with_the_paper.folder / f"src/feature_alignment/papers/{PAPER}/figures"
    file /= "shares_and_losses.py"
    whole = file.read_text()
    file.write_text(whole.replace("    return figure\n", '    return int("x")\n', 1))
    try:
        done = with_the_paper.run("--cores", "1", PAPER, *SMOKE)
    finally:
        file.write_text(whole)
    shown = done.stdout + done.stderr
    assert done.returncode != 0
    assert shown.count("Traceback") == 1
    assert shown.count(f"{PAPER}_fig1: draw of feature_alignment.papers.{PAPER}.figures") == 1


def test_an_edit_reruns_it_and_nothing_else(with_the_paper):
    options = (*SMOKE, f"papers={PAPER}")
    with_the_paper.succeed("--cores", "1", *options)
    assert with_the_paper.planned(*options) == {}
    file = with_the_paper.folder / f"src/feature_alignment/papers/{PAPER}/experiments/descent.py"
    whole = file.read_text()
    file.write_text(whole + "\nEDITED = True\n")
    try:
        planned = with_the_paper.planned(*options)
    finally:
        file.write_text(whole)
    assert planned == {"run": 1, "figure": 1, "selected_claims": 1, "selected_report": 1}


def test_results_of_two_checkouts_are_compared(root, with_the_paper, tmp_path):
    results = with_the_paper.folder / "results" / "smoke"
    tool = [sys.executable, str(root / "tools" / "compare_results.py"), str(results)]
    same = subprocess.run([*tool, str(results)], capture_output=True, text=True, check=False)
    assert (same.returncode, same.stdout) == (0, "everything is the same\n")
    other = tmp_path / "smoke"
    for file in results.rglob("*"):
        if file.suffix in {".csv", ".npz"}:
            target = other / file.relative_to(results)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    changed = other / f"runs/{PAPER}_coin/fair/metrics.csv"
    frame = pd.read_csv(changed)
    frame["value"] *= 1 + 1e-9
    frame.to_csv(changed, index=False)
    found = subprocess.run([*tool, str(other)], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert f"runs/{PAPER}_coin/fair/metrics.csv: values differ by up to 1e-09" in found.stdout
    changed.with_name("arrays.npz").write_bytes(b"")
    (other / "selected/claims.csv").write_text("")
    damaged = subprocess.run([*tool, str(other)], capture_output=True, text=True, check=False)
    assert (damaged.returncode, damaged.stderr) == (1, "")
    assert f"runs/{PAPER}_coin/fair/arrays.npz: one of them cannot be read (" in damaged.stdout
    assert "\nselected/claims.csv: one of them cannot be read (" in damaged.stdout


@pytest.fixture(scope="module")
def outside(tmp_path_factory, pipeline_class):
    """A copy of the repository, and the made-up paper in a folder beside it."""
    home = tmp_path_factory.mktemp("outside")
    copy = pipeline_class(home / "pipeline")
    (home / "my_study").mkdir()
    (copy.folder / "src/feature_alignment/papers" / PAPER).rename(home / "my_study" / PAPER)
    return copy


def test_a_paper_outside_of_the_repository_is_made_as_one_inside(outside, with_the_paper):
    options = (*SMOKE, "papers_path=../my_study/", f"papers={PAPER}")
    outside.succeed("--cores", "1", *options)
    made = outside.results()
    assert {f"figures/smoke/{PAPER}_fig1.png", "results/smoke/selected/claims.csv"} <= made.keys()
    assert made == {name: with_the_paper.results()[name] for name in made}
    assert outside.planned(*options) == {}
    experiment = outside.folder.parent / "my_study" / PAPER / "experiments" / "descent.py"
    experiment.write_text(experiment.read_text() + "\nEDITED = True\n")
    planned = outside.planned(*options)
    assert planned == {"run": 1, "figure": 1, "selected_claims": 1, "selected_report": 1}


def test_it_runs_by_hand_too(outside):
    (outside.folder / "mine.yaml").write_text("papers_path: ../my_study\n")
    command = [sys.executable, "-m", "feature_alignment", "run", f"{PAPER}/coin"]
    done = subprocess.run(
        [*command, "--preset", "smoke", "--configfile", "mine.yaml"],
        cwd=outside.folder,
        env={**outside.environment(), "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (outside.folder / done.stdout.strip()).is_file()


def test_a_folder_without_papers_stops_before_anything_is_planned(outside):
    done = outside.run("-n", *SMOKE, "papers_path=workflow")
    assert done.returncode != 0
    assert "workflow) contains no paper, no <key>/paper.py" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_paper_whose_key_is_a_rules_name_is_one_sentence(root, outside):
    folder = outside.folder.parent / "others" / "report"
    shutil.copytree(root / "tests" / "example_paper" / PAPER, folder)
    for file in (path for path in folder.rglob("*.*") if path.suffix in {".py", ".yaml"}):
        file.write_text(file.read_text().replace(PAPER, "report"))
    done = outside.run("-n", *SMOKE, "papers_path=../others")
    assert done.returncode != 0
    said = f"Error: {folder}: report is the name of a rule; rename the folder.\n"
    assert done.stderr.endswith(said), done.stdout + done.stderr

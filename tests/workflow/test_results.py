"""Results have names, say what was changed, prove what they hold, and are made one at a time."""

import contextlib
import json
import os
import re
import shutil
import signal
import time

import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.pipeline.proof import verify

pytestmark = pytest.mark.slow
PAPER = ("preset=smoke", "papers=example2030")
BASE = ("--cores", "2", "--config", *PAPER)


def changed_settings(pipeline, name, **descent):
    file = pipeline.folder / f"{name}.yaml"
    settings = {"name": name, "experiments": {"example2030_descent": descent}}
    file.write_text(json.dumps(settings))
    return ("--cores", "2", "--configfile", file.name, "--config", *PAPER)


@pytest.fixture(scope="module")
def two(tmp_path_factory, made_up):
    """The smoke preset of the made-up paper, and beside it a result with changed settings."""
    made = made_up.copy(tmp_path_factory.mktemp("named") / "pipeline")
    before = made.results()
    made.succeed(*changed_settings(made, "wide", dimension=8))
    assert {name: made.results()[name] for name in before} == before
    return made


def provenance(pipeline, path):
    return json.loads((pipeline.folder / path).read_text())


def test_what_was_changed_is_told_everywhere(two):
    verdicts = pd.read_csv(two.folder / "results/wide/selected/claims.csv", keep_default_na=False)
    assert set(verdicts["name"]) == {"wide"}
    assert set(verdicts["preset"]) == {"smoke"}
    by_figure = verdicts.groupby("figure")["changed"].agg(set).to_dict()
    assert by_figure == {"example2030_fig1": {""}, "example2030_fig2": {"dimension = 8"}}
    record = provenance(two, "figures/wide/example2030_fig2.provenance.json")
    assert record["spec"]["changed"] == ["dimension = 8"]
    report = (two.folder / "results/wide/selected/report.html").read_text(encoding="utf-8")
    assert "experiments.example2030_descent.dimension" in report
    assert "1 of them are verdicts of changed settings and are not counted here" in report
    base = (two.folder / "results/smoke/selected/report.html").read_text(encoding="utf-8")
    assert "changed settings" not in base


def test_what_two_results_share_is_run_once(two):
    shared = "runs/example2030_coin/fair/provenance.json"
    record = provenance(two, f"results/wide/{shared}")
    assert record["taken_over_from"] == f"results/smoke/{shared}"
    own = provenance(two, "results/wide/runs/example2030_descent/default/provenance.json")
    assert "taken_over_from" not in own


def test_a_selection_leaves_the_full_verdicts_alone(two):
    full = [two.folder / "results/smoke" / name for name in ("claims.csv", "report.html")]
    for file in full:
        file.write_text("of all figures")
    (two.folder / "results/smoke/selected/claims.csv").unlink()
    try:
        two.succeed(*BASE)
        assert [file.read_text() for file in full] == ["of all figures"] * 2
    finally:
        for file in full:
            file.unlink()
    assert (two.folder / "results/smoke/selected/claims.csv").exists()


def test_two_results_are_compared(two):
    two.succeed("--cores", "1", "compare", "--config", *PAPER, "with=wide")
    table = pd.read_csv(two.folder / "results/smoke/compare/wide.csv").set_index("id")
    assert table.loc["example2030.fig2.loss_falls", "changed_there"] == "dimension = 8"
    page = (two.folder / "results/smoke/compare/wide.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 4
    assert "example2030_descent: dimension" in page
    assert "example2030_coin: " not in page
    asked = ("compare", "--config", *PAPER, "with=wide")
    assert two.planned(*asked) == {}
    made = "runs/example2030_coin/fair/provenance.json"
    assert made in provenance(two, "results/smoke/compare/wide.provenance.json")["inputs"]
    record = two.folder / "results/wide" / made
    whole = record.read_text(encoding="utf-8")
    record.write_text(f"{whole}\n", encoding="utf-8")
    planned = two.planned(*asked)
    record.write_text(whole, encoding="utf-8")
    assert planned == {"comparison": 1, "compare": 1}
    done = two.run("-n", "compare", "--config", *PAPER, "with=wied")
    assert "there is no finished result 'wied'" in done.stdout + done.stderr
    done = two.run("-n", "compare", "--config", *PAPER)
    assert "name another result" in done.stdout + done.stderr


@contextlib.contextmanager
def damaged(two, file):
    """While a file of a run is not what it was; gives what is told of it."""
    folder = two.folder / "results/smoke/runs/example2030_coin/bent"
    whole = (folder / file).read_bytes()
    false = whole.replace(b'"bent"', b'"fair"')  # a whole spec.json, of another point
    (folder / file).write_bytes(false if file == "spec.json" else whole[: len(whole) // 2])
    assert (folder / file).read_bytes() != whole
    try:
        yield rf"bent/{re.escape(file)}: has been changed since it was written; to remake"
    finally:
        (folder / file).write_bytes(whole)


@pytest.mark.parametrize("file", ["metrics.csv", "arrays.npz", "spec.json"])
def test_a_damaged_result_is_found(two, file, monkeypatch):
    monkeypatch.chdir(two.folder)
    with damaged(two, file) as said:
        gathered = two.run("--cores", "1", "--config", *PAPER)
        with pytest.raises(UserError, match=said):
            verify("smoke")
    assert gathered.returncode != 0
    assert re.search(said, gathered.stdout + gathered.stderr)


def test_the_command_finds_a_damaged_result_and_whole_again_all_goes_on(two):
    with damaged(two, "spec.json") as said:
        checked = two.run("--cores", "1", "verify", "--config", *PAPER)
    assert checked.returncode != 0
    assert re.search(said, checked.stdout + checked.stderr)
    two.succeed(*BASE)
    text = two.succeed("--cores", "1", "verify", "--config", *PAPER)
    assert "jobs are as they were written" in text


def test_verifying_a_result_that_is_not_there_says_so_and_leaves_no_folder(two):
    ended = two.run("--cores", "1", "verify", "--config", *PAPER, "name=nowhere")
    assert ended.returncode != 0
    assert "nowhere: holds no results; make them with --config name=nowhere." in ended.stderr
    assert not (two.folder / "results/nowhere").exists()


def test_a_comparison_of_fewer_figures_leaves_verdicts_and_report_of_the_same(two):
    asked = ("preset=smoke", "figures=example2030_fig1", "with=wide")
    two.succeed("--cores", "1", "compare", "--config", *asked)
    made = provenance(two, "results/smoke/selected/report.provenance.json")
    claims = two.folder / "results/smoke/selected/claims.csv"
    assert set(pd.read_csv(claims)["figure"]) == {"example2030_fig1"}
    assert made["inputs"]["selected/claims.csv"] == sha256_of(claims)
    two.succeed("--cores", "1", "compare", "--config", *PAPER, "with=wide")
    two.succeed("--cores", "1", "verify", "--config", *PAPER)
    two.succeed("--cores", "1", "--config", "preset=smoke", "figures=example2030_fig1")
    two.succeed("--cores", "1", "verify", "--config", *PAPER)
    two.succeed(*BASE)


def test_nothing_is_removed_for_a_device_that_is_not_there(two, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = two.results()
    done = two.run(*BASE, "device=cuda")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "no CUDA device here" in line]
    assert [line.partition("cuda")[0] for line in said] == ["Error: device: "]
    assert two.results() == before
    assert two.planned(*BASE) == {}


def test_a_comparison_has_the_others_verdicts_on_its_tables(two):
    selected, home = two.folder / "results/wide/selected", two.folder / "results/wide"
    whole = (selected / "claims.csv").read_bytes()
    record = json.loads((selected / "claims.provenance.json").read_text())
    record["inputs"]["tables/example2030_fig2.csv"] = "0" * 64
    try:
        (home / "claims.provenance.json").write_text(json.dumps(record))
        (home / "claims.csv").write_text("verdicts on an earlier table")
        two.succeed("--cores", "1", "compare", "--config", *PAPER, "with=wide")
        (selected / "claims.csv").unlink()
        done = two.run("-n", "compare", "--config", *PAPER, "with=wide")
    finally:
        (selected / "claims.csv").write_bytes(whole)
        for name in ("claims.csv", "claims.provenance.json"):
            (home / name).unlink()
    said = "results/wide/claims.csv: is on an earlier version of results/wide/tables/example2030_"
    assert f"Error: {said}fig2.csv; make the verdicts again" in done.stderr


@pytest.mark.parametrize("asked", [(), ("compare", "with=wide")])
def test_verdicts_that_were_edited_go_into_no_page(two, asked):
    file = two.folder / "results/smoke/selected/claims.csv"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace("not testable here", "reproduced"), encoding="utf-8")
    try:
        done = two.run("--cores", "1", *asked[:1], "--config", *PAPER, *asked[1:])
    finally:
        file.write_text(whole, encoding="utf-8")
    assert done.returncode != 0
    assert "selected/claims.csv: has been changed since it was written" in done.stdout + done.stderr
    two.succeed(*BASE)


def test_what_snakemake_has_no_record_of_is_kept_only_where_it_is_as_planned(two):
    records, aside = two.folder / ".snakemake/metadata", two.folder / "metadata"
    records.rename(aside)
    try:
        assert not {"run", "figure"} & two.planned("--config", *PAPER).keys()
        changed = "experiments={example2030_descent: {dimension: 9}}"
        done = two.run("--cores", "1", "--config", *PAPER, changed)
    finally:
        shutil.rmtree(records, ignore_errors=True)
        aside.rename(records)
    assert done.returncode == 1
    text = done.stdout + done.stderr
    run = "results/smoke/runs/example2030_descent/default/provenance.json"
    figure = "figures/smoke/example2030_fig2.provenance.json"
    assert f"Error: {run}: was made from other settings than are planned, as were 1 more" in text
    assert f"remove what cannot be kept: rm -f {run} {figure}\n" in text
    assert "Traceback" not in text
    assert sum(two.planned("--config", *PAPER, changed).values()) > 0


def test_what_other_code_made_than_snakemake_recorded_is_not_kept(two):
    run = "results/smoke/runs/example2030_coin/bent/provenance.json"
    file = two.folder / run
    whole = file.read_text()
    file.write_text(json.dumps({**json.loads(whole), "library_sha256": "of an edit taken back"}))
    try:
        done = two.run("-n", "--config", *PAPER)
    finally:
        file.write_text(whole)
    assert done.returncode == 1
    assert f"Error: {run}: was made from other code than are planned, and" in done.stderr
    assert two.planned("--config", *PAPER) == {}


def test_runs_made_again_are_the_same_or_told_with_a_reason(two):
    before = two.results()
    replay = ("replay", "--config", *PAPER)
    told = two.succeed("--cores", "1", *replay)
    assert "Runs made again: 1; the same: 1; differ: 0." in told
    folder = two.folder / "results/smoke/runs/example2030_coin/bent"
    whole = {name: (folder / name).read_bytes() for name in ("metrics.csv", "provenance.json")}
    rows = pd.read_csv(folder / "metrics.csv")
    rows["value"] *= 2
    rows.to_csv(folder / "metrics.csv", index=False)
    record = json.loads(whole["provenance.json"])
    record["outputs"]["metrics.csv"] = sha256_of(folder / "metrics.csv")
    (folder / "provenance.json").write_text(json.dumps({**record, "library_sha256": "older"}))
    done = two.run("--cores", "2", *replay, "fraction=1")
    for name, content in whole.items():
        (folder / name).write_bytes(content)
    assert done.returncode == 1
    text = done.stdout + done.stderr
    assert "Runs made again: 3; the same: 2; differ: 1." in text
    assert "example2030_coin/bent: heads_share by 0.5 of itself; library changed since" in text
    table = pd.read_csv(two.folder / "results/smoke/logs/replay.csv")
    assert sorted(table["verdict"]) == ["differs", "same", "same"]
    assert not (two.folder / "results/.replay/smoke").exists()
    verified = two.run("verify", "--cores", "1", "--config", *PAPER)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    (two.folder / "results/smoke/logs/replay.csv").unlink()
    assert two.results() == before


def test_files_that_are_written_anew_with_the_same_content_rerun_nothing(two):
    assert two.planned("--config", *PAPER) == {}
    for file in (two.folder / "src", two.folder / "workflow"):
        for path in file.rglob("*.*"):
            os.utime(path)
    assert two.planned("--config", *PAPER) == {}


def test_one_snakemake_at_a_time_makes_a_result_and_others_make_others(tmp_path, pipeline_class):
    copy = pipeline_class(tmp_path / "pipeline")
    mine = changed_settings(copy, "mine", steps=200_000)

    first = copy.start(*mine)
    log = copy.folder / "results/mine/logs/runs/example2030_descent/default.log"
    deadline = time.monotonic() + 600
    while not log.exists():
        assert time.monotonic() < deadline, first.communicate()
        time.sleep(0.05)
    second = copy.run(*mine)
    assert second.returncode != 0
    told = second.stdout + second.stderr
    assert f"results/mine: is being made by process {first.pid} on" in told
    copy.succeed(*BASE)  # a result of another name, at the same time
    os.killpg(first.pid, signal.SIGKILL)  # else its job would train on, to the end
    first.communicate()
    copy.succeed(*changed_settings(copy, "mine", steps=20))  # no lock is left behind

"""A result is what its job wrote, or one sentence says what is not and how to remake it."""

import errno
import json
import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.pipeline.proof import check_proof, verdicts_file, verify


@pytest.fixture
def result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        folder = tmp_path / "results" / "mine" / "runs" / "toy2030_thing" / name
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text("value\n1\n2\n")
        written = {"metrics.csv": sha256_of(folder / "metrics.csv")}
        (folder / "provenance.json").write_text(json.dumps({"outputs": written}))
    return tmp_path / "results" / "mine" / "runs" / "toy2030_thing"


def test_what_is_whole_passes(result):
    check_proof(result / "one" / "provenance.json")
    assert verify("mine") == 2


def test_a_folder_that_is_a_link_leads_to_the_outputs_in_others(result, tmp_path):
    (tmp_path / "disk" / "pictures" / "mine").mkdir(parents=True)
    (tmp_path / "figures").symlink_to(tmp_path / "disk" / "pictures")
    name = "../../results/mine/runs/toy2030_thing/one/metrics.csv"
    written = {name: sha256_of(result / "one" / "metrics.csv")}
    record = tmp_path / "figures" / "mine" / "fig1.provenance.json"
    record.write_text(json.dumps({"outputs": written}))
    check_proof(record)
    assert verify("mine") == 3


def test_runs_that_are_a_link_are_checked(result, tmp_path):
    (result.parent).rename(tmp_path / "scratch")
    result.parent.symlink_to(tmp_path / "scratch")
    (result / "one" / "notes.txt").touch()
    with pytest.raises(UserError, match=r"one/notes\.txt: no provenance file lists it"):
        verify("mine")
    (result / "one" / "notes.txt").unlink()
    (result / "one" / "loop").symlink_to(tmp_path)
    assert verify("mine") == 2


def test_lost_rows_lost_files_and_lost_proof_are_told_with_a_cure(result):
    (result / "one" / "metrics.csv").write_text("value\n1\n")
    with pytest.raises(UserError, match=r"one/metrics\.csv: has been changed since it was written"):
        check_proof(result / "one" / "provenance.json")
    (result / "two" / "metrics.csv").unlink()
    with pytest.raises(UserError) as caught:
        verify("mine")
    first, second = str(caught.value).splitlines()
    assert "one/metrics.csv" in first
    assert "two/metrics.csv: is missing; to remake it, remove it (rm -f results/mine/" in second
    (result / "two" / "provenance.json").write_text("{")
    with pytest.raises(UserError, match=r"two/provenance\.json: is damaged, or of an older"):
        verify("mine")


def test_what_was_made_from_files_that_are_others_or_gone_by_now_is_told(result):
    table, one = result.parents[1] / "tables" / "fig1.csv", "runs/toy2030_thing/one/metrics.csv"
    table.parent.mkdir()
    table.write_text("value\n3\n")
    file = result.parents[1] / one
    inputs = {one: sha256_of(file), f"home/me/results/mine/{one}": sha256_of(file)}
    record = {"outputs": {table.name: sha256_of(table)}, "inputs": inputs}
    table.with_name("fig1.provenance.json").write_text(json.dumps(record))
    assert verify("mine") == 3
    whole = file.read_text()
    file.write_text("value\n2\n")
    written = {"outputs": {file.name: sha256_of(file)}}
    file.with_name("provenance.json").write_text(json.dumps(written))
    with pytest.raises(
        UserError, match=r"fig1\.prov.*\.json: was made from an earlier .*one/metrics\.csv;"
    ):
        verify("mine")
    file.write_text(whole)
    shutil.rmtree(file.parent)
    with pytest.raises(UserError, match=r"one/metrics\.csv, which is missing; .* `-- results/m"):
        verify("mine")


def test_a_comparison_stays_whole_when_other_figures_are_selected(result):
    home, name = result.parents[1], "results/mine/selected/claims.csv"
    for folder, told in (("selected", {}), ("compare", {name: "of an earlier selection"})):
        file = home / folder / "claims.csv"
        file.parent.mkdir()
        file.write_text("id\n")
        record = {"outputs": {file.name: sha256_of(file)}, "inputs": told}
        (file.parent / "claims.provenance.json").write_text(json.dumps(record))
    assert verify("mine") == 4
    (home / "compare").rename(home / "another")
    with pytest.raises(UserError, match=r"another/.*: was made from an earlier .*/selected/claims"):
        verify("mine")


def test_a_file_that_was_read_may_have_its_name_in_both_folders(result, tmp_path):
    read = sha256(b"read").hexdigest()
    for top in ("results", "figures"):
        file = tmp_path / top / "mine" / "a.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("read" if top == "results" else "other")
        record = {"outputs": {file.name: sha256_of(file)}, "inputs": {file.name: read}}
        file.with_name("a.provenance.json").write_text(json.dumps(record))
    assert verify("mine") == 4


def test_an_input_that_cannot_be_read_condemns_no_other_file(result, monkeypatch):
    record = json.loads((result / "one" / "provenance.json").read_text())
    record["inputs"] = {"runs/toy2030_thing/two/metrics.csv": "0" * 64}
    (result / "one" / "provenance.json").write_text(json.dumps(record))

    def hashed(file):
        if file.parent.name == "two":
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return sha256_of(file)

    monkeypatch.setattr("feature_alignment.pipeline.proof.sha256_of", hashed)
    with pytest.raises(UserError) as caught:
        verify("mine")
    first, second = str(caught.value).splitlines()
    assert first.endswith("two/metrics.csv: cannot be read (Permission denied); make it readable.")
    assert "two/metrics.csv: cannot be read (Permission denied); to remake" in second


def test_files_that_no_job_speaks_for_are_told(result):
    (result / "one" / "provenance.json").unlink()
    (result / "two" / ".unfinished.csv").touch()
    (result.parents[1] / "logs").mkdir()
    (result.parents[1] / "logs" / "one.log").touch()
    with pytest.raises(UserError, match=r"^results/mine/runs/toy2030_thing/one/metrics\.csv: no "):
        verify("mine")


def test_a_result_that_is_not_there_is_told(result):
    with pytest.raises(UserError, match="results/yours: holds no results"):
        verify("yours")
    (result.parents[1] / "claims.csv").write_text("id\n")
    with pytest.raises(UserError, match="'mien' in results; did you mean 'mine'"):
        verdicts_file("mien")
    with pytest.raises(UserError, match=r"Make it first, with --config preset=laptop\."):
        verdicts_file("laptop")
    assert verdicts_file("mine").name == "claims.csv"
    (result.parents[2] / "wide" / "selected").mkdir(parents=True)
    (result.parents[2] / "wide" / "selected" / "claims.csv").write_text("id\n")
    with pytest.raises(UserError, match="'wid' in results; did you mean 'wide'"):
        verdicts_file("wid")


def judged(folder, **tables):
    """Write verdicts on tables with this content, and their record."""
    (folder / "claims.csv").parent.mkdir(exist_ok=True)
    (folder / "claims.csv").write_text("id\n")
    read = {f"tables/{f}.csv": sha256(text.encode()).hexdigest() for f, text in tables.items()}
    record = {"outputs": {}, "inputs": read}
    (folder / "claims.provenance.json").write_text(json.dumps(record))


def test_verdicts_on_earlier_tables_are_not_those_of_a_result(result):
    home, tables = result.parents[1], result.parents[1] / "tables"
    tables.mkdir()
    for figure in ("fig1", "fig2"):
        (tables / f"{figure}.csv").write_text("now")
    whole, selected = (Path("results/mine", scope, "claims.csv") for scope in ("", "selected"))
    judged(home, fig1="before", fig2="now")
    assert verdicts_file("mine", ["fig2"]) == whole
    with pytest.raises(UserError, match=r"^results/mine/claims\.csv: is on an earlier .*fig1\.csv"):
        verdicts_file("mine", ["fig1", "fig2"])
    judged(home / "selected", fig1="now")
    assert verdicts_file("mine", ["fig1"]) == selected
    assert verdicts_file("mine", ["fig2"]) == whole
    with pytest.raises(UserError, match=r"fig1\.csv; make .* again, with --config name=mine\.$"):
        verdicts_file("mine", ["fig1", "fig2"])
    judged(home / "selected", fig1="before too")
    with pytest.raises(UserError, match=r"^results/mine/claims\.csv: is on an earlier"):
        verdicts_file("mine", ["fig1"])
    (home / "claims.csv").unlink()
    judged(home / "selected", fig1="now")
    assert verdicts_file("mine", ["fig1", "fig2"]) == selected


@pytest.mark.parametrize(
    "name", ["../../../../../notes.txt", "/etc/passwd", "../../../../other/claims.csv"]
)
def test_a_record_of_files_outside_of_its_result_is_refused(result, name):
    (result / "one" / "provenance.json").write_text(json.dumps({"outputs": {name: "0" * 64}}))
    with pytest.raises(UserError, match="which is outside of its result; remove it") as told:
        verify("mine")
    assert "rm -f" not in str(told.value).partition("outside")[0]


def test_what_is_to_be_typed_is_quoted(result):
    (result / "one" / "provenance.json").write_text(json.dumps({"outputs": {"y; reboot #": "0"}}))
    with pytest.raises(UserError, match=r"rm -f 'results/mine/.*/y; reboot #'\)"):
        check_proof(Path("results/mine/runs/toy2030_thing/one/provenance.json"))


def test_a_pipe_in_the_place_of_a_result_is_told(result):
    (result / "one" / "metrics.csv").unlink()
    os.mkfifo(result / "one" / "metrics.csv")
    (result / "two" / "provenance.json").unlink()
    os.mkfifo(result / "two" / "provenance.json")
    with pytest.raises(UserError, match=r"cannot be read \(a pipe or device") as told:
        verify("mine")
    assert "two/provenance.json: is damaged" in str(told.value)


@pytest.mark.parametrize("name", ["results", "figures", ".replay/mine", "mine"])
def test_a_figures_record_may_tell_of_its_table_whatever_the_results_name(tmp_path, name):
    record = tmp_path / "figures" / name / "fig1.provenance.json"
    record.parent.mkdir(parents=True)
    table = os.path.relpath(tmp_path / "results" / name / "tables" / "fig1.csv", record.parent)
    record.write_text(json.dumps({"outputs": {table: "0"}}))
    with pytest.raises(UserError, match=r"fig1\.csv: is missing"):
        check_proof(record)


def test_records_that_are_made_to_do_harm_end_in_a_sentence(result):
    (result / "one" / "provenance.json").write_text("[" * 100_000)
    (result / "two" / "provenance.json").write_text(json.dumps({"outputs": {"a\0b": "0"}}))
    with pytest.raises(UserError, match=r"one/provenance\.json: is damaged") as told:
        verify("mine")
    assert "cannot be read (embedded null byte)" in str(told.value)

"""Results are packed as they were made or refused, and the pages made from them are current."""

import importlib
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import evidence_pages
import from_tables
import numpy as np
import packing
import pandas as pd
import pytest
import yaml
from packed import AGAIN, EVIDENCE, Packed, all_packed, best_robustness, best_verdicts, run_hours
from PIL import Image

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.pipeline.claims.evaluate import COLUMNS
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.imports import closure_hash
from feature_alignment.pipeline.papers import ledgers

FIGURE = "example2030_fig1"


class Made:
    """A result of one run and one figure, as the workflow leaves it."""

    numbers = itertools.count(1)

    def __init__(self, at, name="quick", verdict="reproduced"):
        self.at, self.name = at, name
        self.results, self.figures = at / "results" / name, at / "figures" / name
        self.run = self.results / "runs" / "example2030_coin" / "fair"
        self.changes, self.memory = [], float(next(self.numbers))  # that of no other result
        for folder in (self.run, self.results / "tables", self.results / "data", self.figures):
            folder.mkdir(parents=True)
        (self.run / "metrics.csv").write_text("step,value\n0,1\n")
        (self.run / "arrays.npz").write_bytes(b"arrays")
        self.table = self.results / "tables" / f"{FIGURE}.csv"
        self.table.write_text("step,value\n0,1\n")
        noise = np.random.default_rng(0).integers(0, 256, (40, 40, 1), dtype=np.uint8)
        self.picture = self.figures / f"{FIGURE}.png"
        Image.fromarray(noise.repeat(3, axis=2)).save(self.picture)
        row = dict.fromkeys(COLUMNS) | {
            "id": "example2030.fig1.a",
            "kind": "number",
            "paper": "example2030",
            "figure": FIGURE,
            "statement": "Half | heads.",
            "paper_value": 0.5,
            "verdict": verdict,
            "ours": 0.51,
            "sd": 0.02,
            "seeds": 5,
        }
        self.claims = self.results / "claims.csv"
        pd.DataFrame([row]).to_csv(self.claims, index=False)
        (self.results / "data" / "mnist.npz").write_bytes(b"images")
        self.dirty, self.library = False, "code"

    def record(self, path, spec, outputs, modules=("m",), library=None, **facts):
        """Write a provenance file."""
        record = {
            "spec": spec,
            "spec_sha256": "spec",
            "git": {"commit": "c0ffee00", "dirty": self.dirty},
            "library_sha256": library or self.library,
            "modules": list(modules),
            "versions": {"python": "3"},
            "machine": {"processor": "abacus", "device": "cpu"},
            "threads": 1,
            "wall_seconds": 3600.0,
            "cpu_seconds": 1800.0,
            "peak_memory_mib": self.memory,
            "inputs": {},
            "outputs": {os.path.relpath(file, path.parent): sha256_of(file) for file in outputs},
            **facts,
        }
        path.write_text(json.dumps(record))

    def finish(self, figures_code=None):
        """Write what speaks for every file."""
        settings = {"changed": [], "datasets": [["mnist", "npz"]]}
        spec = {
            "name": self.name,
            "preset": self.name,
            "changes": self.changes,
            "figures": {FIGURE: settings},
        }
        outputs = [self.run / "metrics.csv", self.run / "arrays.npz"]
        self.record(self.run / "provenance.json", {"experiment": "example2030_coin"}, outputs)
        data = {
            "name": "mnist",
            "source": "npz",
            "stand_in": False,
            "counts": {"train": 1},
            "notes": [],
            "origin": [{"file": "/home/me/mnist.npz", "sha256": "5a"}],
        }
        files = [self.results / "data" / "mnist.npz"]
        self.record(self.results / "data" / "mnist.provenance.json", {}, files, ("d",), data=data)
        made = self.figures / f"{FIGURE}.provenance.json"
        drawn = {"figure": FIGURE, "points": [{"experiment": "example2030_coin", "name": "fair"}]}
        self.record(made, drawn, [self.picture, self.table], library=figures_code)
        judged = {"inputs": {f"tables/{FIGURE}.csv": sha256_of(self.table)}}
        of_claims = self.claims.with_name("claims.provenance.json")
        self.record(of_claims, spec, [self.claims], ("c",), **judged)
        return self


@pytest.fixture
def made(tmp_path):
    """An unfinished result."""
    return Made(tmp_path)


def packed(made, *stand_ins):
    """The folder that a result was packed into."""
    target = made.at / "evidence" / made.name
    packing.pack(made.name, made.at, stand_ins, target)
    return target


def test_the_pages_are_current(tool, capsys):
    assert tool.main(["pages", "--check"]) == 0, capsys.readouterr().out


def test_a_result_is_packed_with_what_made_it_and_twice_to_the_same_bytes(made):
    made.changes = [["datasets.mnist.path", None, "/home/me/mnist.npz"]]
    folder = packed(made.finish())
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    names = {path.relative_to(folder).as_posix() for path in files}
    table, picture = f"tables/{FIGURE}.csv.xz", f"figures/{FIGURE}.png"
    assert names == {"about.json", "claims.csv", "runs.csv", table, picture}
    assert b"/home/me" not in b"".join(files.values())
    assert pd.read_csv(folder / table)["value"].tolist() == [1]
    about = json.loads((folder / "about.json").read_text())
    assert about["commits"] == ["c0ffee00"]
    assert about["run_hours"] == 0.5
    assert about["devices"] == ["abacus"]
    assert len(files[folder / picture]) < len(made.picture.read_bytes())
    assert packed(made) == folder
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files


def test_runs_are_told_with_their_files_and_machines_and_their_hours_are_added(made):
    made.finish()
    other = shutil.copytree(made.run, made.run.with_name("bent"))
    (other / "arrays.npz").write_bytes(b"other arrays")
    outputs, spec = (
        [other / "metrics.csv", other / "arrays.npz"],
        {"experiment": made.run.parts[-2]},
    )
    made.record(other / "provenance.json", spec, outputs, earlier_machines=["fingers"])
    drawn = made.figures / f"{FIGURE}.provenance.json"
    record = json.loads(drawn.read_text())
    record["spec"]["points"].append({**spec, "name": "bent"})
    drawn.write_text(json.dumps(record))
    found = Packed(packed(made))
    assert found.runs["point"].tolist() == ["bent", "fair"]
    assert found.runs["device"].tolist() == ["fingers and abacus", "abacus"]
    for file, column in (("metrics.csv", "metrics_sha256"), ("arrays.npz", "arrays_sha256")):
        assert found.runs[column].tolist() == [sha256_of(at / file) for at in (other, made.run)]
    assert found.about["devices"] == ["abacus", "fingers and abacus"]
    assert found.about["run_hours"] == 1.0


def test_figures_of_other_runs_than_are_there_are_refused(made):
    drawn = made.figures / f"{FIGURE}.provenance.json"
    run = made.run.relative_to(made.results).as_posix()
    made.finish()
    record = json.loads(drawn.read_text())
    inputs = {f"{run}/{name}": sha256_of(made.run / name) for name in ("metrics.csv", "arrays.npz")}
    drawn.write_text(json.dumps(record | {"inputs": inputs}))
    packed(made)
    drawn.write_text(json.dumps(record | {"inputs": inputs | {f"{run}/metrics.csv": "other"}}))
    with pytest.raises(UserError, match=r"was made from an earlier version of .*metrics\.csv;"):
        packed(made)


def test_packages_of_several_versions_are_refused(made):
    made.finish()
    drawn = made.figures / f"{FIGURE}.provenance.json"
    record = json.loads(drawn.read_text())
    drawn.write_text(json.dumps(record | {"versions": {"python": "2"}}))
    with pytest.raises(UserError, match=r"was made with python 2, .* with 3; remove what the old"):
        packed(made)


@pytest.fixture
def multiverse(made):
    """A result with a multiverse of three universes, made at another commit."""
    made.finish()
    results, preset = made.results, {"preset": made.name}
    claims = {"claim": ["example2030.fig1.a", "example2030.fig1.b"], "changed": ["", "width = 8"]}
    counts = {"universes": 3, "holding": 3, "word": ["robust", ""], "setting": "", "difference": 0}
    counts["group"] = "example2030_coins"
    pd.DataFrame({**claims, **counts, "p_value": 1}).to_csv(results / "robustness.csv", index=False)
    where = {"universe": 2, "group": counts["group"]}
    pd.DataFrame({**claims, **where}).to_csv(results / "multiverse.csv", index=False)
    folder = results / "multiverse" / "example2030_coins"
    folder.mkdir(parents=True)
    block, judged = folder / "0.zip", folder / "claims.csv"
    git = {"commit": "beef0000", "dirty": False}
    for file, spec in ((block, {"universes": [0, 1, 2]}), (judged, preset)):
        file.write_bytes(b"what came out")
        record = file.with_name(f"{file.stem}.provenance.json")
        made.record(record, spec, [file], (file.name,), git=git)
    tables = [results / "robustness.csv", results / "multiverse.csv"]
    made.record(results / "multiverse.provenance.json", preset, tables, ("g",), git=git)
    return made


def pack_both(made):
    folder = packed(made)
    packing.pack_multiverse(made.name, made.at, folder)
    return folder


def test_a_multiverse_is_packed_beside_the_result_with_its_own_commits(multiverse):
    folder = pack_both(multiverse)
    for name in ("robustness.csv", "multiverse.csv.xz"):  # changed settings are left out
        assert pd.read_csv(folder / name)["claim"].tolist() == ["example2030.fig1.a"]
    (told,) = json.loads((folder / "multiverse.json").read_text())
    assert (told["universes"], told["run_hours"], told["devices"]) == (3, 0.5, ["abacus"])
    assert told["commits"] == ["beef0000", "c0ffee00"]  # the second is the data's
    assert json.loads((folder / "about.json").read_text())["commits"] == ["c0ffee00"]
    found = all_packed(folder.parent)
    page = evidence_pages.verdicts_page(found, best_verdicts(found))
    assert "- `quick`: 1 claims.\n" in page
    assert "    - 3 readings, in groups example2030_coins; commit beef000," in page
    assert "| robust | 1 |" in page
    assert "- example2030.fig1: `a`" in page
    assert "| 5 | reproduced | quick | 3 of 3 |" in page


def test_a_multiverse_stays_beside_a_result_of_the_same_data_that_is_packed_anew(multiverse):
    folder = pack_both(multiverse)
    files = [folder / name for name in packing.MULTIVERSE]
    kept = [file.read_bytes() for file in files]
    packed(multiverse)
    assert [file.read_bytes() for file in files] == kept
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps(about | {"datasets": []}))
    packed(multiverse)
    assert not any(file.exists() for file in files)


def test_groups_are_joined_to_a_packed_multiverse(multiverse):
    folder = pack_both(multiverse)
    rows = [["a", "0", "coins"], ["b", "0", "dice"], ["b", "1", "dice"]]
    rows.append(["c", "1", "dice"])
    old = pd.DataFrame(rows, columns=["claim", "universe", "group"])
    old["group"] = "example2030_" + old["group"]
    old.to_csv(folder / "multiverse.csv.xz", index=False)
    old.to_csv(folder / "robustness.csv", index=False)
    (told,) = json.loads((folder / "multiverse.json").read_text())
    part = told | {"groups": ["example2030_coins", "example2030_dice"], "commits": ["0ld"]}
    (folder / "multiverse.json").write_text(json.dumps([part]))
    packing.pack_multiverse("quick", multiverse.at, folder, join=True)
    found = pd.read_csv(folder / "multiverse.csv.xz")[["claim", "universe"]].values.tolist()
    assert found == [["example2030.fig1.a", 2], ["b", 0], ["b", 1], ["c", 1]]
    assert pd.read_csv(folder / "robustness.csv")["claim"].tolist()[1:] == ["b", "b", "c"]
    first, second = json.loads((folder / "multiverse.json").read_text())
    assert first == told
    assert second == part | {"groups": ["example2030_dice"], "universes": 2, "replaced": 1}
    everything = all_packed(folder.parent)
    page = evidence_pages.verdicts_page(everything, best_verdicts(everything))
    assert "commit 0ld; 0.5 hours of runs, those of 1 groups since made anew with them" in page


def test_a_multiverse_of_other_data_or_preset_or_none_is_refused(multiverse):
    with pytest.raises(UserError, match="holds no packed result; pack quick first"):
        packing.pack_multiverse("quick", multiverse.at, multiverse.at / "evidence" / "quick")
    folder = pack_both(multiverse)
    about = json.loads((folder / "about.json").read_text())
    for key, other, words in (
        ("datasets", [], "give what was made of the same"),
        ("preset", "laptop", "pack what was made at one"),
    ):
        (folder / "about.json").write_text(json.dumps(about | {key: other}))
        with pytest.raises(UserError, match=words):
            packing.pack_multiverse("quick", multiverse.at, folder)


def test_a_changed_or_dirty_multiverse_is_refused(multiverse):
    folder = packed(multiverse)
    (multiverse.results / "robustness.csv").write_text("claim,group\na,example2030_coins\n")
    with pytest.raises(UserError, match=r"robustness\.csv: has been changed since"):
        packing.pack_multiverse("quick", multiverse.at, folder)
    path = multiverse.results / "multiverse" / "example2030_coins" / "0.provenance.json"
    record = json.loads(path.read_text())
    multiverse.record(
        multiverse.results / "multiverse.provenance.json",
        {"preset": "quick"},
        [multiverse.results / name for name in ("robustness.csv", "multiverse.csv")],
    )
    path.write_text(json.dumps(record | {"git": {"commit": "beef0000", "dirty": True}}))
    with pytest.raises(UserError, match="by a checkout with changes of its own"):
        packing.pack_multiverse("quick", multiverse.at, folder)


def test_a_result_made_again_tells_the_verdicts_that_differ(tmp_path):
    def made(folder, verdict, **machine):
        found = Made(tmp_path / folder, verdict=verdict)
        record = found.record
        machine = {"machine": {"processor": "abacus", "device": "cpu"} | machine}
        found.record = lambda *given, **facts: record(*given, **machine, **facts)
        return found.finish()

    first = made("first", "reproduced")
    with pytest.raises(UserError, match=r"holds no packed result; pack quick first\."):
        packing.confirm("quick", first.at, first.at / "evidence" / "quick")
    folder = packed(first)
    other = made("other", "partly", processor="Aba(R) Cus(TM) Processor", instructions="AVX2")
    same = made("same", "reproduced")
    for itself in (first.at, folder):
        with pytest.raises(UserError, match="is the packed result itself; make it again first"):
            packing.confirm("quick", itself, folder)
    assert packing.confirm("quick", same.at, folder) == {}
    differ = {"example2030.fig1.a": ["reproduced", "partly"]}
    for _ in range(2):  # the same machine's is replaced
        assert packing.confirm("quick", other.at, folder) == differ
    told = json.loads((folder / AGAIN).read_text())
    assert [one["devices"] for one in told] == [["abacus"], ["Aba Cus (AVX2)"]]
    assert [one["verdicts_that_differ"] for one in told] == [{}, differ]
    page = evidence_pages.verdicts_page([Packed(folder)], best_verdicts([Packed(folder)]))
    assert "on Aba Cus (AVX2) at commit c0ffee0: 0 of 1 verdicts are the same" in page
    assert "(`example2030.fig1.a`, partly in place of reproduced)" in page
    elsewhere = shutil.copytree(packed(other), tmp_path / "elsewhere")
    assert packing.confirm("quick", elsewhere, folder) == differ
    assert json.loads((folder / AGAIN).read_text()) == told


def test_a_value_that_is_missing_both_times_does_not_differ(tmp_path):
    first, again = (Made(tmp_path / folder) for folder in ("first", "again"))
    for made in (first, again):
        claims = pd.read_csv(made.claims)
        more = [claims, claims.assign(id="example2030.fig1.b", ours=None)]
        pd.concat(more).to_csv(made.claims, index=False)
    folder = packed(first.finish())
    assert packing.confirm("quick", again.finish().at, folder) == {}
    (told,) = json.loads((folder / AGAIN).read_text())
    assert (told["claims"], told["values_that_differ"]) == (2, 0)


def test_some_figures_made_again_are_compared_by_themselves(two):
    folder, again = two
    claims = pd.read_csv(again.claims)
    claims = pd.concat([claims.assign(id="example2030.fig1.z", verdict="reproduced"), claims])
    claims.to_csv(again.claims, index=False)
    differ = packing.confirm("quick", again.finish().at, folder)
    assert differ == {"example2030.fig1.a": ["reproduced", "partly"]}
    (told,) = json.loads((folder / AGAIN).read_text())
    assert (told["claims"], told["figures"]) == (2, ["example2030_fig1"])
    page = evidence_pages.verdicts_page([Packed(folder)], best_verdicts([Packed(folder)]))
    assert "Made again (`example2030_fig1`) on abacus at commit" in page


def test_a_result_of_another_preset_or_of_other_claims_is_not_the_same_again(made, tmp_path):
    folder = packed(made.finish())
    other = Made(tmp_path / "other")
    claims = pd.read_csv(other.claims).assign(id="example2030.fig1.b")
    claims.to_csv(other.claims, index=False)
    with pytest.raises(UserError, match=r"of other claims than .*: preset=quick\."):
        packing.confirm("quick", other.finish().at, folder)
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps(about | {"datasets": []}))
    with pytest.raises(UserError, match="is not the data of the packed result quick"):
        packing.confirm("quick", made.at, folder)
    assert not (folder / AGAIN).exists()


@pytest.fixture
def two(tmp_path, monkeypatch):
    """A packed result of two figures that share a run; and the first figure, made again."""
    shared = lambda figure, preset: [("example2030_coin", "fair")]  # noqa: E731
    monkeypatch.setattr(packing, "_runs_of", shared)
    first, again = Made(tmp_path / "first").finish(), Made(tmp_path / "again", verdict="partly")
    folder = packed(first)
    about = json.loads((folder / "about.json").read_text())
    about["figures"]["example2030_fig2"] = []
    about["datasets"].append(about["datasets"][0] | {"name": "kmnist"})
    (folder / "about.json").write_text(json.dumps(about))
    claims = pd.read_csv(folder / "claims.csv").iloc[0].to_dict()
    one, two = (
        claims | {"id": f"example2030.fig{i}.z", "figure": f"example2030_fig{i}"} for i in (1, 2)
    )
    rows = pd.DataFrame([two | {"id": "example2030.fig2.a"}, claims, one, two])
    rows.to_csv(folder / "claims.csv", index=False)
    table = pd.DataFrame({"point": ["fair"], "metric": ["heads"], "step": [0], "value": [1]})
    table.to_csv(folder / "tables" / "example2030_fig2.csv.xz", index=False)
    (folder / AGAIN).write_text("[]")
    return folder, again


def test_a_figure_takes_the_place_of_the_packed_one_and_leaves_the_others(two):
    folder, again = two
    table = (folder / "tables" / "example2030_fig2.csv.xz").read_bytes()
    again.table.write_text("step,value\n0,2\n")
    claims = pd.read_csv(again.claims)
    pd.concat([claims, claims.assign(id="example2030.fig1.b")]).to_csv(again.claims, index=False)
    again.finish()
    unneeded = again.run.with_name("unneeded")
    shutil.copytree(again.run, unneeded)
    record = json.loads((unneeded / "provenance.json").read_text())
    record["git"]["commit"] = "that of no figure"
    record["library_sha256"] = "that of a point that is gone"
    (unneeded / "provenance.json").write_text(json.dumps(record))
    packing.add("quick", again.at, (), folder)
    found = Packed(folder)
    assert found.claims["verdict"].to_dict() == {
        "example2030.fig2.a": "reproduced",
        "example2030.fig1.a": "partly",
        "example2030.fig2.z": "reproduced",
        "example2030.fig1.b": "partly",
    }
    assert list(found.about["figures"]) == [FIGURE, "example2030_fig2"]
    assert (found.about["run_hours"], found.about["commits"]) == (0.5, ["c0ffee00"])
    assert [one["name"] for one in found.about["datasets"]] == ["kmnist", "mnist"]
    assert found.runs[["point", "peak_memory_mib"]].to_numpy().tolist() == [["fair", again.memory]]
    assert pd.read_csv(folder / "tables" / f"{FIGURE}.csv.xz")["value"].tolist() == [2]
    assert (folder / "tables" / "example2030_fig2.csv.xz").read_bytes() == table
    assert found.again == []


def test_a_figure_that_is_dropped_leaves_no_trace(two, monkeypatch):
    folder, again = two
    packing.add("quick", again.finish().at, (), folder)
    runs = pd.read_csv(folder / "runs.csv")
    own = runs.assign(point="biased", commit="cafe", device="slide rule", working_seconds=60)
    pd.concat([runs, own]).to_csv(folder / "runs.csv", index=False)
    about = json.loads((folder / "about.json").read_text())
    about |= {"commits": ["c0ffee00", "cafe", "ledger"], "pictures": {"example2030_fig2": "cafe"}}
    (folder / "about.json").write_text(json.dumps(about))
    (folder / "figures" / "example2030_fig2.png").touch()
    told = {"devices": ["abacus"], "claims": 3, "verdicts_that_differ": {"example2030.fig2.a": []}}
    (folder / AGAIN).write_text(json.dumps([told]))
    points = {FIGURE: "fair", "example2030_fig2": "biased"}
    monkeypatch.setattr(packing, "_runs_of", lambda f, _: [("example2030_coin", points[f])])
    with pytest.raises(UserError, match=r"fig3: no such figure in .*did you mean"):
        packing.drop(["example2030_fig3"], folder)
    packing.drop(["example2030_fig2"], folder)
    found = Packed(folder)
    assert found.claims.index.tolist() == ["example2030.fig1.a"]
    assert found.runs["point"].tolist() == ["fair"]
    assert list(found.about["figures"]) == [FIGURE]
    assert found.about["commits"] == ["c0ffee00", "ledger"]
    assert (found.about["pictures"], found.about["run_hours"]) == ({}, 0.5)
    assert found.about["devices"] == runs["device"].tolist()
    assert (found.again[0]["figures"], found.again[0]["claims"]) == ([FIGURE], 1)
    assert found.again[0]["verdicts_that_differ"] == {}
    assert {file.stem for file in folder.glob("*/*.*")} == {FIGURE, f"{FIGURE}.csv"}
    with pytest.raises(UserError, match="no other figures; remove the folder itself"):
        packing.drop([FIGURE], folder)


def test_what_is_of_the_papers_own_sizes_is_counted(two):
    packed = Packed(two[0])
    row = {"kind": "number", "preset": "quick"}
    verdicts = pd.DataFrame([row, row | {"preset": "paper"}, {"kind": "ours", "preset": "paper"}])
    assert evidence_pages.own_sizes([packed], verdicts) == ""
    packed.about["preset"] = "paper"
    said = evidence_pages.own_sizes([packed], verdicts)
    assert "2 of the 2 figures, with 1 of the 2 claims" in said
    assert "in 0.5 hours of a core" in said


def test_packed_values_have_ten_digits_and_all_else_is_as_it_was():
    table = (
        'seed,value,remark\n0,0.12345678912,"a, b"\n1,-1.000000000049e-300,\n2,100,c\n3,,\n4,nan,\n'
        "5,inf,\n6,1.7976931348623157e+308,\n7,0.1,\n8,123456789.125,\n9,5e-324,\n"
    )
    short = table.replace("678912,", "67891,").replace("1.000000000049e", "1e")
    assert packing.shortened(table).decode() == short.replace("789.125", "789.1")


@pytest.mark.parametrize(("colours", "kept"), [(40, False), (4000, True)])
def test_pictures_have_few_colours_unless_it_is_seen(tmp_path, colours, kept):
    rng = np.random.default_rng(0)
    shades = rng.integers(256, size=(colours, 3), dtype=np.uint8)
    pixels, file = shades[rng.integers(colours, size=(60, 80))], tmp_path / "a.png"
    Image.fromarray(pixels).save(file)
    packing.shrink(file, tmp_path / "packed")
    assert ((tmp_path / "packed" / "a.png").read_bytes() == file.read_bytes()) == kept
    with Image.open(tmp_path / "packed" / "a.png") as packed:
        gap = np.abs(np.subtract(pixels, np.asarray(packed.convert("RGB")), dtype=int))
    assert (gap.max(axis=2) > packing.VISIBLE).mean() <= packing.VISIBLE_SHARE


def test_a_small_colour_bar_keeps_its_colours(tmp_path):
    """The bar is a three-hundredth of the picture, for whose rest few colours suffice."""
    grey = np.arange(800) / 800 * 240 + np.random.default_rng(0).integers(16, size=(800, 800))
    pixels, file = np.uint8(np.stack([grey, grey.T, 0 * grey], axis=-1)), tmp_path / "a.png"
    pixels[:200, :12] = np.linspace((120, 60, 255), (120, 60, 0), 200)[:, None]
    Image.fromarray(pixels).save(file)
    packing.shrink(file, tmp_path / "packed")
    with Image.open(tmp_path / "packed" / "a.png") as packed:
        gap = np.abs(np.subtract(pixels, np.asarray(packed.convert("RGB")), dtype=int))
    assert gap[:200, :12].max() <= packing.VISIBLE


def test_what_was_made_again_stays_known_of_the_figures_that_stay(two):
    folder, again = two
    common = {"devices": ["abacus"], "commits": ["c0ffee00"], "values_that_differ": 2}
    differ = {"example2030.fig1.a": ["partly", "reproduced"]}
    records = [
        {**common, "claims": 4, "verdicts_that_differ": differ},
        {**common, "claims": 1, "verdicts_that_differ": differ, "figures": [FIGURE]},
        {**common, "claims": 2, "verdicts_that_differ": {}, "figures": ["example2030_fig2"]},
    ]
    (folder / AGAIN).write_text(json.dumps(records))
    packing.add("quick", again.finish().at, (), folder)
    trimmed, whole = Packed(folder).again
    assert whole == records[2]
    assert trimmed == {**records[2], "values_counted_with_others": True}
    assert "up to 2 values differ" in evidence_pages._again(trimmed, list(trimmed["figures"]))


@pytest.mark.parametrize("key", ["pictures", "summaries"])
def test_what_was_made_from_tables_is_told_of_the_figures_that_stay(two, key):
    folder, again = two
    about = json.loads((folder / "about.json").read_text())
    made = dict.fromkeys((FIGURE, "example2030_fig2"), "c0ffee00")
    (folder / "about.json").write_text(json.dumps(about | {key: made}))
    assert "c0ffee0." in evidence_pages._source(Packed(folder))
    packing.add("quick", again.finish().at, (), folder)
    assert Packed(folder).about[key] == {"example2030_fig2": "c0ffee00"}


@pytest.mark.parametrize(("verdict", "kept"), [("reproduced", True), ("partly", False)])
def test_what_was_made_again_stays_known_where_the_same_comes_out(tmp_path, verdict, kept):
    folder = packed(Made(tmp_path / "first").finish())
    told = [{"devices": ["abacus"], "commits": ["c0ffee00"], "claims": 1}]
    told[0] |= {"values_that_differ": 0, "verdicts_that_differ": {}}
    (folder / AGAIN).write_text(json.dumps(told))
    again = Made(tmp_path / "again", verdict=verdict).finish()
    packing.pack(again.name, again.at, (), folder)
    assert Packed(folder).again == (told if kept else [])


def test_what_another_figure_shows_otherwise_is_not_added(two):
    folder, again = two
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (again.run / "metrics.csv").write_text("step,metric,value\n0,heads,2\n")
    with pytest.raises(
        UserError, match=r"example2030_coin/fair: is another run .* example2030_fig2"
    ):
        packing.add("quick", again.finish().at, (), folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("values", "agrees"),
    [
        ([1.0, 2.0, 9.0], True),
        ([1.0 + 1e-12, 2.0, 9.0], True),
        ([1.0 + 1e-6, 2.0, 9.0], False),
        ([1.0, 2.1, 9.0], False),
    ],
)
def test_a_run_that_was_made_again_with_more_metrics_is_what_another_figure_shows(
    tmp_path, values, agrees
):
    """The table also has another point, and a summary that is not of the run."""
    steps = {"seed": 0, "step": [0, 1, 1], "metric": ["loss", "loss", "new"], "value": values}
    for point in ("fair", "biased", "unknown"):
        (tmp_path / point).mkdir()
        pd.DataFrame(steps).to_csv(tmp_path / point / "metrics.csv", index=False)
    shown = {"point": ["fair", "fair", "fair", "biased"], "seed": 0, "step": [0, 1, 1, 0]}
    shown |= {"metric": ["loss", "loss", "gain", "loss"], "value": [1.0, 2.0, 2.0, 5.0]}
    pd.DataFrame(shown).to_csv(tmp_path / "table.csv", index=False)
    found = {
        name: packing._agrees(tmp_path / "table.csv", tmp_path / name)
        for name in ("fair", "biased", "unknown")
    }
    assert found == {"fair": agrees, "biased": False, "unknown": False}


@pytest.mark.parametrize(
    ("key", "other", "words"),
    [
        ("preset", "laptop", "preset: the packed result's is laptop, here quick"),
        ("versions", {"python": "2"}, "versions: the packed result's is"),
        ("datasets", [{"name": "mnist", "source": "other"}], "mnist: is other data"),
        ("changes", [["device", "cpu", "cuda"]], "changed settings: "),
    ],
)
def test_figures_of_other_circumstances_are_not_added(two, key, other, words):
    folder, again = two
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps(about | {key: other}))
    with pytest.raises(UserError, match=words):
        packing.add("quick", again.finish().at, (), folder)


def test_the_crate_names_every_file_and_what_made_them():
    text = evidence_pages.crate(all_packed(EVIDENCE), EVIDENCE)
    entities = {entity["@id"]: entity for entity in json.loads(text)["@graph"]}
    files = {path.relative_to(EVIDENCE).as_posix() for path in EVIDENCE.rglob("*.*")}
    files -= {"ro-crate-metadata.json"}
    assert {name for name, told in entities.items() if told["@type"] == "File"} == files
    root = entities["./"]
    assert entities[root["license"]["@id"]]["name"] == "MIT"
    citation = yaml.safe_load((EVIDENCE.parent / "CITATION.cff").read_text())
    assert [entities[root["author"]["@id"]]["name"]] == [one["name"] for one in citation["authors"]]
    run = entities["#run-quick"]
    assert run["result"] == {"@id": "quick/"}
    about = json.loads((EVIDENCE / "quick" / "about.json").read_text())
    assert entities[run["instrument"]["@id"]]["version"] == ", ".join(about["commits"])


def test_the_command_of_selected_figures_names_them(made):
    (made.results / "selected").mkdir()
    made.claims = made.claims.rename(made.results / "selected" / "claims.csv")
    folder = packed(made.finish())
    found = all_packed(folder.parent)
    assert f"--config preset=quick figures={FIGURE}" in evidence_pages.crate(found, folder.parent)
    assert "(preset `quick`): 1 figure, no" in evidence_pages.verdicts_page(
        found, best_verdicts(found)
    )


def test_a_changed_file_is_refused(made):
    made.finish().claims.write_text("id\n")
    with pytest.raises(UserError, match=r"claims\.csv: has been changed since"):
        packed(made)


def test_verdicts_on_other_tables_are_refused(made):
    made.finish().table.write_text("step,value\n0,2\n")
    with pytest.raises(UserError, match=rf"was made from an earlier version of .*{FIGURE}\.csv;"):
        packed(made)


def test_a_dirty_checkout_is_refused(made):
    made.dirty = True
    with pytest.raises(UserError, match="by a checkout with changes of its own"):
        packed(made.finish())


def test_a_dirty_checkout_counts_where_its_code_is_that_of_the_commit(made, monkeypatch):
    made.dirty = True
    monkeypatch.setattr(packing, "_code_of", lambda commit, *modules: "code")
    assert (packed(made.finish()) / "about.json").exists()


def test_other_code_than_that_of_the_commit_is_refused(made, monkeypatch):
    monkeypatch.setattr(packing, "_code_of", lambda commit, *modules: "other code")
    with pytest.raises(UserError, match="by other code than is in the commit that it names"):
        packed(made.finish())


def test_the_code_of_a_commit_is_found_again(monkeypatch, root, tmp_path):
    package = tmp_path / "src" / "feature_alignment"
    shutil.copytree(root / "src" / "feature_alignment", package)
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init"], check=True, capture_output=True)
    for edit in ("", "edited = 1\n"):
        with (package / "errors.py").open("a") as file:
            file.write(edit)
        for arguments in (["add", "."], ["commit", "-m", "all"]):
            subprocess.run([*git, *arguments], check=True, capture_output=True)
    (package / "errors.py").write_text("not committed\n")
    monkeypatch.setattr(packing, "ROOT", tmp_path)
    module = "feature_alignment.pipeline.figures.figure"
    listed = subprocess.run([*git, "rev-list", "HEAD"], check=True, capture_output=True, text=True)
    last, first = listed.stdout.split()
    assert packing._code_of(first, module) == closure_hash(module)
    assert packing._code_of(last, module) not in (closure_hash(module), None)
    assert packing._code_of(last, "feature_alignment.no_such_module") is None
    subprocess.run([*git, "reset", "--soft", first], check=True, capture_output=True)
    packing._code_of.cache_clear()
    strangers = [last, "0" * 40, "HEAD", f"--output={tmp_path / 'errors.py'}"]
    assert [packing._code_of(commit, module) for commit in strangers] == [None] * 4
    assert not (tmp_path / "errors.py").exists()


def test_mixed_versions_of_the_library_are_refused(made):
    with pytest.raises(UserError, match="by another version of the library than"):
        packed(made.finish(figures_code="other code"))
    assert not (made.at / "evidence" / made.name).exists()


def test_a_stand_in_has_to_be_named(made):
    made.changes = [["datasets.mnist.source", "torchvision", "embedded"]]
    made.finish()
    with pytest.raises(UserError, match="mnist: is a stand-in, where preset quick takes torchvis"):
        packed(made)
    assert packed(made, "mnist").is_dir()


def test_a_stand_in_that_no_figure_shows_needs_no_name(made):
    made.changes = [["datasets.celeba.source", "torchvision", "embedded"]]
    assert packed(made.finish()).is_dir()


def test_verdicts_of_changed_settings_are_packed_and_do_not_count(made):
    claims = pd.read_csv(made.claims)
    changed = claims.assign(id="example2030.fig1.b", changed="width = 8")
    pd.concat([claims, changed]).to_csv(made.claims, index=False)
    found = Packed(packed(made.finish()))
    assert (len(found.rows), found.claims.index.tolist()) == (2, ["example2030.fig1.a"])


def test_the_multiverse_of_the_largest_size_at_which_a_universe_counts_is_told():
    rows = [
        {"claim": "a", "universes": 0, "at": "large"},
        {"claim": "a", "universes": 3, "at": "s"},
    ]
    sizes = [SimpleNamespace(robustness=pd.DataFrame([row])) for row in rows]
    assert best_robustness(sizes)["at"].to_dict() == {"a": "s"}


def test_the_largest_size_that_can_tell_counts(tmp_path):
    for name, verdict in (("quick", "partly"), ("laptop", "reproduced"), ("paper", "not testable")):
        word = "not testable here" if verdict == "not testable" else verdict
        packed(Made(tmp_path, name, word).finish())
    found = all_packed(tmp_path / "evidence")
    assert [one.about["preset"] for one in found] == ["paper", "laptop", "quick"]
    verdicts = best_verdicts(found)
    (row,) = verdicts.to_dict("records")
    assert (row["verdict"], row["at"]) == ("reproduced", "laptop")
    assert "| `example2030` | 1 numbers | 1 | 0 | 0 | 0 | 0 |" in evidence_pages.summary(verdicts)
    near = verdicts.assign(reason=f"the mean 0.51 is above 0.5; {evidence_pages.CLOSE}, 0.02")
    assert "| 5 | reproduced, close | laptop |" in evidence_pages.verdicts_page(found, near)
    assert "1 verdicts are judged by a mean: 0 of them rest on one network" in evidence_pages.weak(
        near
    )
    assert "in 1 more the deciding value" in evidence_pages.weak(near)
    assert "in 0 more the deciding value" in evidence_pages.weak(verdicts)
    for ours, far in ((0.52, 0), (0.56, 1)):
        near = verdicts.assign(ours=ours, criterion="the mean near the paper's 0.5")
        said = evidence_pages.weak(near)
        assert "1 numbers are reproduced because ours is near the paper's" in said
        assert f"{far} of these differ by more than 10 %" in said
    both = pd.concat([verdicts, verdicts.assign(verdict="partly").rename(lambda name: f"{name}b")])
    together = evidence_pages.by_quotation(both, dict.fromkeys(both.index, ("paper", "said")))
    assert (
        "1 statements are decided: for 0 every decided claim is reproduced or holds, for 1 some do"
        in together
    )
    page = evidence_pages.verdicts_page(found, verdicts)
    row = "| `fig1.a` | Half \\| heads. | 0.5 | 0.510 ± 0.020 | 5 | reproduced | laptop | – |"
    assert row in page
    assert "evidence/paper/figures/example2030_fig1.png" in evidence_pages.gallery_page(found)


@pytest.mark.parametrize(
    ("units", "other", "told"), [(10, False, True), (1, False, False), (10, True, True)]
)
def test_what_more_networks_of_a_smaller_size_decide_is_told(units, other, told):
    def one(name, verdict, units):
        row = {"kind": "comparison", "verdict": verdict, "units": units}
        claims = pd.DataFrame([row], index=["a"])
        turned = [{"verdicts_that_differ": {"a": ["not reproduced", "partly"]} if other else {}}]
        return SimpleNamespace(folder=Path(name), claims=claims, again=turned)

    sizes = [one("large", "undecided", 1), one("small", "not reproduced", units)]
    also = "; 1 of them otherwise on another processor" if other else ""
    expected = (
        "\nOf the 1 undecided claims, 1 are decided at a smaller size, by more networks "
        f"(1 not reproduced{also}): [which](docs/verdicts.md#where-sizes-disagree).\n"
    )
    found = evidence_pages.decided_smaller(sizes, sizes[0].claims)
    assert found == (expected if told else "")


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("about.json", "", "no packed evidence: Expecting value"),
        ("about.json", '{"name": "quick"}', "lacks commits, datasets, figures, preset"),
        ("about.json", "[]", "lacks commits, datasets, figures, name, preset"),
        ("claims.csv", None, "no packed evidence: .* No such file"),
        ("claims.csv", "a,b\n1,2\n", "no packed evidence"),
        ("claims.csv", "id,kind\nfig1.a,number\n", "no packed evidence: 'changed'"),
        ("again.json", "{", "no packed evidence: Expecting property name"),
    ],
)
def test_damaged_evidence_is_told_in_a_sentence(made, file, text, says):
    folder = packed(made.finish())
    (folder / file).unlink(missing_ok=True)
    if text is not None:
        (folder / file).write_text(text)
    with pytest.raises(UserError, match=says):
        _ = Packed(folder).about


@pytest.mark.parametrize(
    ("name", "command"), [("evidence", ["pages"]), ("deviations", []), ("article", [])]
)
def test_the_tools_tell_damaged_evidence_in_a_sentence(
    tmp_path, monkeypatch, capsys, name, command
):
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "about.json").write_text("{")
    tool = importlib.import_module(name)
    monkeypatch.setattr(tool, "EVIDENCE", tmp_path)
    assert tool.main([*command, "--check"]) == 1
    assert "quick: no packed evidence: Expecting property name" in capsys.readouterr().err


def test_a_result_without_a_multiverse_has_none_to_pack(made):
    folder = packed(made.finish())
    with pytest.raises(UserError, match=r"results/\w+: has no multiverse; make the target"):
        packing.pack_multiverse(made.name, made.at, folder)


def test_a_folder_that_is_not_there_is_told(tool, capsys):
    with pytest.raises(SystemExit):
        tool.main(["again", "quick", "--at", "nowhere"])
    assert "argument --at: nowhere is no folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["workstation", "laptop", "quick"])
def test_the_packed_verdicts_are_those_of_the_packed_tables(tmp_path, monkeypatch, name):
    """By the present ledger, so that no edit of it leaves them behind."""
    packed = Packed(shutil.copytree(EVIDENCE / name, tmp_path / name))
    before = packed.rows
    monkeypatch.setattr(from_tables, "git_state", lambda: {"commit": "c" * 40, "dirty": False})
    assert from_tables.judge(packed) == []
    assert Packed(packed.folder).rows.equals(before.loc[Packed(packed.folder).rows.index])
    told = (EVIDENCE / name / "robustness.csv").read_bytes()
    assert (packed.folder / "robustness.csv").read_bytes() == told
    assert Packed(packed.folder).about["judged"] == "c" * 40


def test_another_value_is_told_also_where_the_verdict_stays(tmp_path, monkeypatch):
    left_out = shutil.ignore_patterns("*.png")
    folder, figure = tmp_path / "workstation", "baratin2021_fig3"
    packed = Packed(shutil.copytree(EVIDENCE / "workstation", folder, ignore=left_out))
    about = packed.about | {"figures": {figure: packed.about["figures"][figure]}}
    (folder / "about.json").write_text(json.dumps(about))
    rows = packed.rows[packed.rows["figure"] == figure]
    name = rows.index[rows["ours"] != ""][0]
    rows.assign(ours=rows["ours"].mask(rows.index == name, "9")).to_csv(folder / "claims.csv")
    monkeypatch.setattr(from_tables, "git_state", lambda: {"commit": "c" * 40, "dirty": False})
    verdict, ours = rows.loc[name, ["verdict", "ours"]]
    assert from_tables.judge(Packed(folder)) == [f"{name}: {verdict} (9), now {verdict} ({ours})"]


def test_the_packed_multiverse_is_summarised_anew(tmp_path):
    for name in ("robustness.csv", "multiverse.csv.xz"):
        shutil.copy(EVIDENCE / "workstation" / name, tmp_path)
    file, ledger = tmp_path / "robustness.csv", load_ledger(ledgers())
    kept = pd.read_csv(file)
    gone = kept.assign(claim="gone", word="robust").head(1)
    changed = kept.assign(word=["fragile", None, *kept["word"][2:]])
    pd.concat([changed, gone]).to_csv(file, index=False)
    (first, one), (second, two) = kept[["claim", "word"]].head(2).to_numpy()
    assert from_tables._summarise(Packed(tmp_path), ledger) == [
        "gone: no longer in the multiverse",
        f"{first}: fragile in the multiverse, now {one}",
        f"{second}: no word in the multiverse, now {two}",
    ]
    assert file.read_bytes() == (EVIDENCE / "workstation" / "robustness.csv").read_bytes()
    universes = tmp_path / "multiverse.csv.xz"
    rows = pd.read_csv(universes)
    fails = rows.assign(holds=rows["holds"].mask(rows["claim"] == first, 0))
    fails.to_csv(universes, index=False)
    told = from_tables._summarise(Packed(tmp_path), ledger)
    assert told == [f"{first}: {one} in the multiverse, now robustly not"]


def test_pictures_are_drawn_again_from_the_packed_tables(tmp_path, monkeypatch):
    folder, figure, of_arrays = tmp_path / "workstation", "baratin2021_fig3", "beaglehole2024_fig17"
    shutil.copytree(EVIDENCE / "workstation", folder)
    pictures = {name: folder / "figures" / f"{name}.png" for name in (figure, of_arrays)}
    kept, about = pictures[of_arrays].read_bytes(), Packed(folder).about
    (folder / "about.json").write_text(json.dumps(about | {"pictures": {of_arrays: "0ld"}}))
    pictures[figure].unlink()
    monkeypatch.setattr(from_tables, "git_state", lambda: {"commit": "c" * 40, "dirty": False})
    assert from_tables.redraw(Packed(folder), [figure, of_arrays]) == [figure]
    with Image.open(pictures[figure]) as drawn:
        assert drawn.size[0] > 1000
    assert pictures[of_arrays].read_bytes() == kept
    assert Packed(folder).about["pictures"] == {of_arrays: "0ld", figure: "c" * 40}
    with pytest.raises(UserError, match="baratin2021_figg3: no such figure; did you mean"):
        from_tables.redraw(Packed(folder), ["baratin2021_figg3"])
    monkeypatch.setattr(from_tables, "git_state", lambda: {"commit": "c" * 40, "dirty": True})
    with pytest.raises(UserError, match="has changes of its own"):
        from_tables.redraw(Packed(folder), [])


def test_hours_of_runs_are_elapsed_ones_where_no_others_were_packed():
    runs = pd.DataFrame({"wall_seconds": [3600, 3600]})
    assert run_hours(runs) == 2
    assert run_hours(runs.assign(working_seconds=[1800, None])) == 1.5


def test_figures_made_again_are_named_by_the_shorter_list():
    told = {"verdicts_that_differ": {}, "devices": ["a"], "commits": ["c" * 40], "claims": 3}
    told |= {"values_that_differ": 0}
    every = ["fig1", "fig2", "fig3", "fig4"]
    assert "Made again on a" in evidence_pages._again(told, every)
    most = {**told, "figures": every[:3]}
    assert "Made again (all figures but `fig4`) on a" in evidence_pages._again(most, every)
    few = {**told, "figures": every[:1]}
    assert "Made again (`fig1`) on a" in evidence_pages._again(few, every)


def test_a_result_made_without_git_is_refused(made):
    made.dirty = None  # what `git_state` says where there is no repository
    with pytest.raises(UserError, match="by a checkout with changes of its own, by none"):
        packed(made.finish())


@pytest.mark.parametrize("dirty", [True, None])
def test_verdicts_are_remade_by_a_clean_checkout_alone(monkeypatch, dirty):
    monkeypatch.setattr(from_tables, "git_state", lambda: {"commit": "c" * 40, "dirty": dirty})
    with pytest.raises(UserError, match="has changes of its own"):
        from_tables._commit()

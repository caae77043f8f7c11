"""Runs made again are the same, or what differs is told with its likely reason."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.pipeline.replay import compare_runs, sampled, summary
from feature_alignment.pipeline.spec import spec_hash

RUN = "example2030_coin/fair"
FACTS = {
    "versions": {"python": "3.11.7", "torch": "2.15.0"},
    "machine": {"processor": "A", "instructions": "AVX2", "device": "cpu"},
    "threads": 1,
    "library_sha256": "one",
    "git": {"commit": "abc"},
    "inputs": {"data/mnist.npz": "hash"},
}


def record(folder, values=(0.5, 2.0), array=(1.0, 4.0), facts=FACTS):
    """A finished run with a row of each of two metrics."""
    folder = folder / RUN
    folder.mkdir(parents=True)
    rows = [f"{seed},0,share,{value!r}" for seed, value in enumerate(values)]
    text = "\n".join(["seed,step,metric,value", *rows, "0,0,loss,1.0", ""])
    (folder / "metrics.csv").write_text(text)
    np.savez(folder / "arrays.npz", **{"seed0/kernel": np.array(array)})
    outputs = {name: sha256_of(folder / name) for name in ("metrics.csv", "arrays.npz")}
    (folder / "provenance.json").write_text(json.dumps({**facts, "outputs": outputs}))


def compared(tmp_path):
    found = compare_runs([RUN], tmp_path / "old", tmp_path / "new")
    return found, summary(found)


def test_what_is_the_same_is_said_to_be(tmp_path):
    record(tmp_path / "old")
    record(tmp_path / "new", facts={**FACTS, "threads": 2})
    found, told = compared(tmp_path)
    assert found["verdict"].tolist() == ["same"]
    assert told == "Runs made again: 1; the same: 1; differ: 0."


def test_what_differs_is_told_by_metric_and_array(tmp_path):
    record(tmp_path / "old")
    record(tmp_path / "new", values=(0.5, 2.2), array=(1.0, 3.0))
    found, told = compared(tmp_path)
    gaps = found.set_index("quantity")["relative_difference"].to_dict()
    assert gaps == pytest.approx({"share": 0.2 / 2.2, "seed0/kernel": 0.25})
    assert f"{RUN}: seed0/kernel by 0.25 of itself and 1 more; nothing recorded differs" in told


def test_other_rows_and_shapes_have_no_finite_difference(tmp_path):
    record(tmp_path / "old")
    record(tmp_path / "new", values=(0.5,), array=(1.0,))
    found, _ = compared(tmp_path)
    assert found.set_index("quantity")["relative_difference"].to_dict() == {
        "share": math.inf,
        "seed0/kernel": math.inf,
    }


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("versions.torch", "2.16.0", "torch: 2.15.0 then, 2.16.0 now"),
        ("machine.processor", "B", "processor: A then, B now"),
        ("machine.instructions", "AVX512", "instructions: AVX2 then, AVX512 now"),
        ("machine.device", "H100", "device: cpu then, H100 now"),
        ("threads", 2, "threads: 1 then, 2 now"),
        ("library_sha256", "two", "library changed since (then at commit abc)"),
        ("inputs", {"mnist.npz": "other"}, "data changed since"),
        ("inputs", {"mnist.npz": "hash"}, "nothing recorded differs"),
    ],
)
def test_the_likely_reason_is_read_from_the_provenance(tmp_path, path, value, says):
    facts = copy.deepcopy(FACTS)
    *sections, key = path.split(".")
    (facts[sections[0]] if sections else facts)[key] = value
    record(tmp_path / "old")
    record(tmp_path / "new", values=(0.5, 2.2), facts=facts)
    reason = compared(tmp_path)[1].splitlines()[1].split("; ")[1:]
    assert len(reason) == 1
    assert reason[0].startswith(says)


def test_a_run_that_was_resumed_on_another_machine_is_told_of(tmp_path):
    record(tmp_path / "old", facts={**FACTS, "earlier_machines": ["B (AVX512)"]})
    record(tmp_path / "new", values=(0.5, 2.2))
    assert "; begun on B (AVX512), and resumed" in compared(tmp_path)[1]


def test_a_file_that_is_not_as_it_was_recorded_is_the_reason(tmp_path):
    record(tmp_path / "old")
    record(tmp_path / "new", values=(0.5, 2.2))
    (tmp_path / "old" / RUN / "metrics.csv").write_text("seed")
    assert "metrics.csv: has been changed since it was written" in compared(tmp_path)[1]


def test_a_recorded_file_that_was_edited_is_not_the_same(tmp_path):
    record(tmp_path / "old")
    record(tmp_path / "new")
    (tmp_path / "old" / RUN / "metrics.csv").write_text("seed")
    assert f"differ: 1.\n{RUN}: recorded files; {tmp_path}" in compared(tmp_path)[1]


@pytest.mark.parametrize(
    ("array", "gap"),
    [((math.nan, 3.0), 0.25), ((1.0, 4.0), math.inf), ((math.nan, math.inf), math.inf)],
)
def test_an_array_with_what_is_no_number_differs_by_its_numbers(tmp_path, array, gap):
    record(tmp_path / "old", array=(math.nan, 4.0))
    record(tmp_path / "new", array=array)
    found, _ = compared(tmp_path)
    assert found[["quantity", "relative_difference"]].to_numpy().tolist() == [["seed0/kernel", gap]]


def test_a_difference_is_relative_to_the_largest_number_of_both(tmp_path):
    record(tmp_path / "old", array=(1.0, 2.0))
    record(tmp_path / "new", array=(1.0, 4.0))
    found, _ = compared(tmp_path)
    assert found["relative_difference"].tolist() == [0.5]


def test_the_sample_is_of_what_is_finished_and_repeats(tmp_path, monkeypatch, smoke_plan):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="results/smoke/runs has no finished run with these"):
        sampled(smoke_plan, 1.0)
    runs = list(smoke_plan.specs)[:20]
    for run in runs:
        folder = tmp_path.joinpath("results", "smoke", "runs", *run)
        folder.mkdir(parents=True)
        about = {"outputs": {}, "spec_sha256": spec_hash(smoke_plan.specs[run])}
        (folder / "provenance.json").write_text(json.dumps(about))
    assert set(sampled(smoke_plan, 1.0)) == {"/".join(run) for run in runs}
    few = sampled(smoke_plan, 0.11)
    assert len(few) == 3
    assert few == sampled(smoke_plan, 0.2)[:3]
    changed = {runs[0]: {**smoke_plan.specs[runs[0]], "threads": 7}}
    other = replace(smoke_plan, specs={**smoke_plan.specs, **changed})
    assert len(sampled(other, 1.0)) == 19

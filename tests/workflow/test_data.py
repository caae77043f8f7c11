"""A user's own files count by content, and what was read is told."""

import json
import os
import re

import numpy as np
import pytest

from feature_alignment.data.canonical import load
from feature_alignment.data.embedded import embedded_images
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError
from feature_alignment.pipeline.command_line import _prepared
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.proof import verify

pytestmark = pytest.mark.slow


def write_npz(file, name, changed=0):
    """The stand-in's images as a user's file, one pixel `changed`; one class lacks test images."""
    arrays, _ = embedded_images(name)
    arrays["x_train"][0, 0, 0, 0] ^= changed
    there = arrays["y_test"] != 0
    arrays |= {key: arrays[key][there] for key in ("x_test", "y_test")}
    with file.open("wb") as opened:
        np.savez(opened, **arrays)


def test_a_run_by_hand_reads_a_file_that_was_replaced(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = {"datasets": {"mnist": {"source": "npz", "path": "mine.npz"}}}
    config = resolve_config(mine, root / "workflow", preset="smoke")
    write_npz(tmp_path / "mine.npz", "mnist")
    by_workflow = tmp_path / "results" / "smoke" / "data" / "mnist.npz.npz"
    by_workflow.parent.mkdir(parents=True)
    _prepared(config, "mnist").replace(by_workflow)
    write_npz(tmp_path / "mine.npz", "mnist", changed=1)
    before, after = (
        load(file).split("train")[0] for file in (by_workflow, _prepared(config, "mnist"))
    )
    assert np.count_nonzero(before != after) == 1


@pytest.fixture
def figure_and_dataset(smoke_plan):
    """A figure of one dataset, of images, with the fewest runs."""
    pairs = {figure: smoke_plan.datasets_of(figure) for figure in smoke_plan.figures}
    of_one = [f for f, found in pairs.items() if len(found) == 1 and DATASETS[found[0][0]].shape]
    figure = min(of_one, key=lambda f: len(smoke_plan.runs_of(f)))
    return figure, pairs[figure][0][0]


def test_data_are_prepared_before_anything_is_trained(pipeline):
    runs = [f"results/smoke/runs/example2030_coin/{coin}/spec.json" for coin in ("fair", "bent")]
    data = [f"results/smoke/data/{name}.embedded.npz" for name in ("mnist", "shakespeare")]
    said = pipeline.succeed("--cores", "1", "--config", "preset=smoke", "--", *runs, *data)
    assert re.findall(r": (Preparing|Running) ", said) == 2 * ["Preparing"] + 2 * ["Running"]


def test_a_file_replaced_at_its_path_remakes_what_it_feeds(
    pipeline, figure_and_dataset, monkeypatch
):
    figure, name = figure_and_dataset
    file = pipeline.folder / "mine.npz"
    write_npz(file, name)
    settings = {
        "preset": "smoke",
        "figures": [figure],
        "datasets": {name: {"source": "npz", "path": "mine.npz"}},
    }
    (pipeline.folder / "mine.json").write_text(json.dumps(settings))
    mine = ("--configfile", "mine.json")
    said = pipeline.succeed("--cores", "2", *mine)
    warning = "no test image of class 0"
    assert f"WARNING: datasets.{name}: {warning}" in said

    record = json.loads(
        (pipeline.folder / f"results/smoke/data/{name}.npz.provenance.json").read_text()
    )
    assert record["data"]["warnings"] == [warning]
    assert record["data"]["class_counts"]["test"][0] == 0
    log = (pipeline.folder / f"results/smoke/logs/data/{name}.npz.log").read_text()
    for key in ("sha256", "class_counts", "notes", "warnings"):
        assert repr(record["data"][key]) in log
    page = (pipeline.folder / "results/smoke/selected/report.html").read_text(encoding="utf-8")
    assert f"{warning}." in page
    assert record["data"]["sha256"][:12] in page

    assert pipeline.planned(*mine) == {}
    os.utime(file)
    assert pipeline.planned(*mine) == {}
    runs = pipeline.planned(*mine, "--forceall")["run"]
    write_npz(file, name, changed=1)
    monkeypatch.chdir(pipeline.folder)
    with pytest.raises(
        UserError, match=r"npz\.provenance\.json: was made from an earlier version of mine\.npz;"
    ):
        verify("smoke")
    remade = {"dataset": 1, "run": runs, "figure": 1, "selected_claims": 1, "selected_report": 1}
    assert pipeline.planned(*mine) == remade

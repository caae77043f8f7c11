import json
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from feature_alignment.pipeline.claims.evaluate import evaluate_all, write_verdicts
from feature_alignment.pipeline.claims.ledger import Criterion
from feature_alignment.pipeline.report.compare import compare_results
from toy_claims import claim

ABOVE = Criterion(comparator="above", low=0.5, why="a reason")
FIGURE = "somebody2020_fig1"


def result(name, *values):
    ledger = [claim(), claim(ABOVE, id="somebody2020.fig1.bound", paper_value=None, kind="ours")]
    table = pd.DataFrame({"seed": range(len(values)), "metric": "number", "value": values})
    about = {"datasets": [], "changed": []}
    spec = {"name": name, "preset": "quick", "figures": {FIGURE: about}}
    folders = [Path("results") / name, Path("figures") / name]
    for folder in folders:
        folder.mkdir(parents=True)
    write_verdicts(evaluate_all(ledger, {FIGURE: table}, spec), folders[0] / "claims.csv")
    Image.new("RGB", (40, 30), "white").save(folders[1] / f"{FIGURE}.png")
    point = {"experiment": "somebody2020_training", "name": "default"}
    spec = {"changed": [f"seeds = {len(values)}"], "points": [point]}
    record = {"outputs": {}, "spec": spec}
    for run, seeds in (("default", len(values)), ("no_longer_shown", 100 * len(values))):
        file = folders[0] / "runs" / point["experiment"] / run / "provenance.json"
        file.parent.mkdir(parents=True)
        told = {"parameters": {"seeds": seeds}, "data": {}, "threads": 1, "device": "cpu"}
        made = {
            "library_sha256": "00",
            "git": {"commit": "0a", "dirty": name != "mine"},
            "versions": {"numpy": "2.0"},
        }
        file.write_text(json.dumps({"outputs": {}, "spec": told, **made}))
    (folders[1] / f"{FIGURE}.provenance.json").write_text(json.dumps(record))


@pytest.fixture
def finished_result():
    """Function (name, *values of the seeds) that makes one in the working directory."""
    return result


@pytest.fixture
def compared(tmp_path):
    """Function (other, file of verdicts) that sets mine beside it, as `page.html` and in a CSV."""

    def made(other, verdicts="results/mine/claims.csv"):
        spec = {"name": "mine", "with": other, "figures": [FIGURE]}
        return compare_results(spec, Path(verdicts), tmp_path / "page.html", tmp_path / "table.csv")

    return made


@pytest.fixture
def two_results(tmp_path, monkeypatch):
    """A folder with two finished results, mine and other, of the same figure."""
    monkeypatch.chdir(tmp_path)
    result("mine", 0.92, 0.94)
    result("other", 0.1, 0.2, 0.3)
    return tmp_path

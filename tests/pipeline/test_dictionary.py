import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline import dictionary
from feature_alignment.pipeline.claims.evaluate import COLUMNS
from feature_alignment.pipeline.claims.ledger import check_claims, load_ledger
from feature_alignment.pipeline.dictionary import (
    PAGE,
    SHARED,
    describe,
    page,
    read_dictionary,
    write_package,
)
from feature_alignment.pipeline.papers import ledgers, papers
from toy_claims import claim

PAPER = "example2030"
OWN = """
metrics:
  loss: {meaning: Its own loss., unit: nats, source: Figure 2}
  trace_ratio_{k}: {meaning: 'Share of the first {k}.', formula: 'T_{k}', source: eq. 1}
  '{metric}_gain': {meaning: 'Gain of {metric}.', unit: '{unit}', source: Figure 3}
arrays:
  'kernel/step{step}': Kernel at step {step}.
"""


@pytest.fixture
def described(tmp_path, monkeypatch):
    """Let the made-up paper have another metrics.yaml."""

    def write(text):
        file = tmp_path / "metrics.yaml"
        file.write_text(text, encoding="utf-8")
        monkeypatch.setattr(dictionary, "paper_folder", lambda _: tmp_path)
        read_dictionary.cache_clear()
        return file

    yield write
    read_dictionary.cache_clear()


def test_the_page_is_the_one_that_the_files_make(root):
    made = page([key for key in papers() if key != PAPER])
    assert (root / PAGE).read_text(encoding="utf-8") == made, (
        "make it anew: python -m feature_alignment dictionary"
    )
    rows = [line.replace("\\|", "") for line in made.splitlines() if line.startswith("|")]
    assert len(rows) > 300
    # A cell with an unescaped bar would make its table ragged.
    assert {row.count("|") for row in rows} <= {3, 4, 5, 6}


def test_what_claims_select_is_described_and_so_is_their_table():
    check_claims(load_ledger(ledgers()))
    assert tuple(read_dictionary(SHARED).claims) == COLUMNS


def test_a_papers_own_names_come_before_shared_ones_and_patterns_last(described):
    described(OWN)
    assert describe(PAPER, "metrics", "loss").meaning == "Its own loss."
    assert describe(PAPER, "metrics", "accuracy").unit == "1"
    assert describe(PAPER, "metrics", "trace_ratio_40").formula == "T_40"
    assert describe(PAPER, "arrays", "kernel/step0").meaning == "Kernel at step 0."
    gain = describe(PAPER, "metrics", "loss_gain")
    assert (gain.meaning, gain.unit) == ("Gain of loss.", "nats")
    assert describe(PAPER, "metrics", "loss_gain_gain").meaning == "Gain of loss_gain."
    for unknown in ("lost_gain", "trace_ratio_4_0", "trace_ratio_", "gain"):
        assert describe(PAPER, "metrics", unknown) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metrics: {loss: {meaning: x}}", "metrics.loss.source: missing"),
        (
            "metrics: {loss: {meaning: x, source: y, unti: z}}",
            "metrics.loss.unti: unknown key; did you mean 'unit'",
        ),
        ("columns: {x: ''}", "columns.x: found an empty text"),
        ("metrics: {'{metric}': {meaning: x, source: y}}", "metrics.{metric}: it stands for"),
        ("arrays: {'{a}_{a}': x}", "arrays.{a}_{a}: write each placeholder once"),
        ("arrays: {'x{0}': x}", "arrays.x{0}: write each placeholder once, as a word"),
        ("arays: {x: y}", "arays: unknown key; did you mean 'arrays'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(described, text, said):
    file = described(text)
    with pytest.raises(UserError) as error:
        read_dictionary(file)
    assert str(error.value).startswith(f"{file}: {said}")


def own_claim(**changes):
    return claim(paper=PAPER, **{"select": {"metric": "heads_share"}, **changes})


def test_a_claim_about_a_metric_that_is_not_described_is_refused():
    check_claims([own_claim(), own_claim(select={"metric": ["loss", "accuracy"]})])
    check_claims([own_claim(select={"split": "test"})])
    for changes in (
        {"select": {"metric": "head_share"}},
        {"select": {"metric": ["loss", "head_share"]}},
        {"relative_to": {"metric": "head_share"}, "combine": "ratio"},
        {"corrected": {"metric": "head_share"}, "kind": "mathematics"},
    ):
        key = next(iter(changes))
        said = rf"{key}\.metric: 'head_share' is not described; did you mean 'heads_share'\?"
        with pytest.raises(UserError, match=said):
            check_claims([own_claim(**changes)])
    with pytest.raises(UserError, match=r"'xyz' is not described; describe it in .*metrics\.yaml"):
        check_claims([own_claim(select={"metric": "xyz"})])


def test_the_package_describes_tables_and_arrays(tmp_path):
    table = tmp_path / "example2030_fig1.csv"
    rows = [("fair", 0, "heads_share", 0.5), ("fair", 0, "mystery", 1.0)]
    pd.DataFrame(rows, columns=["point", "seed", "metric", "value"]).to_csv(table, index=False)
    np.savez(table.with_suffix(".npz"), throws=np.zeros((3, 2)))
    write_package("mine", [str(table)], tmp_path / "datapackage.json")
    found = json.loads((tmp_path / "datapackage.json").read_text(encoding="utf-8"))
    csv, npz = found["resources"]
    assert (found["name"], csv["name"], csv["path"]) == ("mine", "example2030_fig1", table.name)
    assert csv["hash"] == f"sha256:{hashlib.sha256(table.read_bytes()).hexdigest()}"
    assert found["sources"][0]["path"] == "https://example.org/2030"
    fields = {field["name"]: field for field in csv["schema"]["fields"]}
    assert {name: field["type"] for name, field in fields.items()} == {
        "point": "string",
        "seed": "integer",
        "metric": "string",
        "value": "number",
    }
    assert fields["metric"]["metrics"] == [
        {
            "name": "heads_share",
            "description": "Share of the throws that are heads.",
            "formula": "heads / throws",
            "unit": "1",
            "source": "Figure 1",
        },
        {"name": "mystery", "description": "not described"},
    ]
    assert npz["arrays"] == [
        {"name": "throws", "shape": [3, 2], "type": "float64", "description": "not described"}
    ]

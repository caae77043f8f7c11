import pandas as pd
import pytest

from feature_alignment.pipeline.claims.evaluate import judge_claims

LEDGER = """
claims:
  - id: example2030.fig1.number
    place: Figure 1
    statement: It is one half.
    quote: one half
    kind: number
    reading: stated
    paper_value: 0.5
    figure: example2030_fig1
    select: {metric: heads_share, step: last}
    criterion: {comparator: near}
    lowest_preset: quick
    data: real
"""


@pytest.fixture
def judged(tmp_path):
    ledger = tmp_path / "example2030" / "claims.yaml"
    ledger.parent.mkdir()
    ledger.write_text(LEDGER, encoding="utf-8")
    rows = [
        {"seed": s, "step": t, "metric": "heads_share", "value": 0.4 + t / 10 + s / 100}
        for s in (0, 1)
        for t in (0, 1)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "example2030_fig1.csv", index=False)

    def judge(*datasets, changed=()):
        about = {"datasets": list(datasets), "changed": list(changed)}
        return judge_claims(
            {"name": "mine", "preset": "quick", "figures": {"example2030_fig1": about}},
            [tmp_path / "example2030_fig1.csv"],
            [ledger],
            tmp_path / "claims.csv",
        )

    return judge


def test_tables_and_ledger_become_a_file_of_verdicts(judged, tmp_path):
    frame = judged(["mnist", "torchvision"])
    assert frame["verdict"].tolist() == ["reproduced"]
    assert frame["ours"].tolist() == pytest.approx([0.505])
    written = pd.read_csv(tmp_path / "claims.csv")
    assert written["verdict"].tolist() == ["reproduced"]


def test_an_embedded_dataset_is_not_real_and_synthetic_data_are(judged):
    assert judged()["verdict"].tolist() == ["reproduced"]
    mixed = judged(["mnist", "torchvision"], ["kmnist", "embedded"])
    assert mixed["verdict"].tolist() == ["not testable here"]


def test_verdicts_of_changed_settings_say_so(judged):
    frame = judged(["mnist", "torchvision"], changed=["width = 8", "seeds = 2"])
    assert frame[["name", "preset", "changed"]].to_numpy().tolist() == [
        ["mine", "quick", "width = 8; seeds = 2"]
    ]


def test_a_claim_whose_rows_are_not_there_is_told_on_the_screen(judged, tmp_path, caplog):
    ledger = tmp_path / "example2030" / "claims.yaml"
    ledger.write_text(LEDGER.replace("step: last", "step: 7"), encoding="utf-8")
    assert judged()["verdict"].tolist() == ["not testable here"]
    assert "claim example2030.fig1.number: the figure, with these settings, does" in caplog.text
    assert "from 0 to 1; mend its select, or raise its lowest_preset" in caplog.text
    caplog.clear()
    judged(changed=["width = 8"])  # which can leave rows out
    assert not caplog.text


def test_verdicts_are_written_to_six_digits(judged, tmp_path):
    frame = pd.read_csv(tmp_path / "example2030_fig1.csv")
    frame.assign(value=0.49876543).to_csv(tmp_path / "example2030_fig1.csv", index=False)
    judged()
    told = pd.read_csv(tmp_path / "claims.csv")
    assert told[["ours", "by_seed"]].to_numpy().tolist() == [[0.498765, "0.498765 0.498765"]]

"""Files of a group of universes: also where none of them counts."""

import json
import zipfile

import pandas as pd
import pytest

from feature_alignment.pipeline.multiverse import make
from feature_alignment.pipeline.multiverse.judge import Finished
from feature_alignment.pipeline.papers import ledgers
from feature_alignment.pipeline.report.make import _robustness

GROUP, FIGURE = "example2030_descent", "example2030_fig2"
LEVELS = {f"{GROUP}.{key}": "2" for key in ("steps", "samples", "dimension", "learning_rate")}
LOSS = {"seed": [0, 0], "metric": "loss", "step": [0, 9], "value": [1.0, 1e-4]}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Function (universes) that judges them, and writes the page; the tables and the page."""

    def judged_and_gathered(*universes, changed=(), datasets=()):
        monkeypatch.setattr(make, "read_blocks", lambda archives: universes)
        folder = tmp_path / GROUP
        folder.mkdir()
        about = {"datasets": list(datasets), "changed": list(changed)}
        spec = {"name": "quick", "preset": "quick", "group": GROUP, "figures": {FIGURE: about}}
        files = {name: folder / f"{name}.csv" for name in ("universes", "claims", "effects")}
        pictures = {kind: folder / f"{kind}.png" for kind in ("matrix", "curves")}
        make.judge_group(spec, [], ledgers(), files | pictures)
        written = {name: tmp_path / name for name in ("universes", "claims", "page")}
        shown = {f"{GROUP}_{kind}": picture.name for kind, picture in pictures.items()}
        make.gather({**spec, "left_out": []}, [folder], shown, written)
        tables = (pd.read_csv(written[name]) for name in ("universes", "claims"))
        return *tables, written["page"].read_text(encoding="utf-8")

    return judged_and_gathered


def universe(number=0, table=LOSS, **levels):
    named = LEVELS | {f"{GROUP}.{key}": level for key, level in levels.items()}
    return Finished(number, named, {FIGURE: pd.DataFrame(table)}, {})


def test_a_group_all_of_whose_universes_failed_says_so(made):
    failed = Finished(0, LEVELS, {}, {"run": "it diverged"})
    universes, claims, page = made(failed)
    assert universes["status"].tolist() == ["failed"]
    assert claims[["universes", "failed"]].to_numpy().tolist() == [[0, 1]]
    assert "no universe counts" in page


def test_a_group_without_a_claim_that_can_be_judged_says_so(made):
    universes, claims, page = made(universe(table=LOSS | {"metric": "other"}))
    assert universes.empty
    assert claims.empty
    assert "No claim can be judged at this preset." in page


def test_a_figure_of_which_one_dataset_is_a_stand_in_does_not_show_real_data(made, monkeypatch):
    judge, told = make.judge_universes, {}
    monkeypatch.setattr(
        make, "judge_universes", lambda *given: told.update(given[-1]) or judge(*given)
    )
    made(universe(), datasets=[["mnist", "torchvision"], ["kmnist", "embedded"]])
    assert told == {FIGURE: False}


def test_a_figure_has_a_table_if_all_of_its_runs_succeeded(tmp_path):
    points = [{"experiment": GROUP, "name": name} for name in ("one", "other")]
    told = {"number": 0, "levels": {}, "figures": {FIGURE: points}, "failed": {"other": "Why."}}
    (tmp_path / "universe.json").write_text(json.dumps(told))
    (tmp_path / GROUP / "one").mkdir(parents=True)
    (tmp_path / GROUP / "one" / "metrics.csv").touch()
    assert make._read(tmp_path / "universe.json").tables == {}


def test_what_depends_most_on_a_setting_comes_first(made, tmp_path):
    made(universe())
    file = tmp_path / GROUP / "claims.csv"
    row = pd.read_csv(file).assign(word="depends on steps", setting="steps")
    rows = [row.assign(claim=f"of {share}", difference=share) for share in (0.6, 0.9)]
    pd.concat(rows).to_csv(file, index=False)
    written = {name: tmp_path / name for name in ("universes", "claims", "page")}
    pictures = {f"{GROUP}_{kind}": f"{kind}.png" for kind in ("matrix", "curves")}
    spec = {"name": "quick", "preset": "quick", "left_out": []}
    make.gather(spec, [tmp_path / GROUP], pictures, written)
    page = written["page"].read_text(encoding="utf-8")
    assert page.index("of 0.9") < page.index("of 0.6")


def test_values_of_settings_keep_their_names(made):
    named = {"steps": "0", "samples": "true", "dimension": "null"}
    universes, *_ = made(universe(0, **named), universe(1, steps="0.5", samples="other"))
    told = json.loads(universes.loc[0, "settings"])
    assert told == LEVELS | {f"{GROUP}.{key}": level for key, level in named.items()}


def test_changed_settings_are_told_everywhere_and_not_counted(made, monkeypatch, tmp_path):
    stamps = []
    monkeypatch.setattr(make, "stamp", lambda _, settings, data: stamps.append(settings))
    universes, claims, page = made(universe(), changed=["width = 8"])
    assert set(stamps) == {"preset: quick, changed: width = 8"}
    assert set(universes["changed"]) == set(claims["changed"]) == {"width = 8"}
    assert "<strong>changed: width = 8</strong>" in page
    assert "1 claim of changed settings, not counted here." in page
    assert "robust: 1" not in page
    assert _robustness(tmp_path / "claims") == {}


def test_what_is_the_presets_own_is_counted(made, tmp_path):
    *_, page = made(universe())
    assert "robust: 1" in page
    assert "changed" not in page
    assert len(_robustness(tmp_path / "claims")) == 1


def test_universes_are_read_in_the_order_of_their_numbers(tmp_path):
    with zipfile.ZipFile(tmp_path / "block.zip", "w") as archive:
        for number in (10, 9, 8):
            told = {"number": number, "levels": {}, "figures": {}, "failed": {}}
            archive.writestr(f"{number}/universe.json", json.dumps(told))
    found = list(make.read_blocks([tmp_path / "block.zip"]))
    assert [universe.number for universe in found] == [8, 9, 10]

import json

import numpy as np
import pandas as pd
import pytest

from feature_alignment.pipeline.figures import make
from feature_alignment.pipeline.figures.make import draw_figure, name_stand_ins
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Run, rows_where


def test_stand_ins_are_named_wherever_a_picture_names_them():
    figure, ((ax,),) = new_figure(1, 1, 4, 3)
    ax.plot([0, 1], [0, 1], label="published, real MNIST")
    ax.set(title="VGG-11, CIFAR-10", ylabel="CIFAR-100\nloss", xlabel="KMNIST stand-in")
    ax.set_xticks([0, 1], ["MNIST", "no set"])
    ax.legend()
    name_stand_ins(figure, {"mnist", "cifar10", "kmnist"})
    figure.draw_without_rendering()
    assert ax.get_title() == "VGG-11, CIFAR-10 stand-in"
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("CIFAR-100\nloss", "KMNIST stand-in")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["MNIST stand-in", "no set"]
    assert ax.get_legend().get_texts()[0].get_text() == "published, real MNIST"


def test_real_data_stay_without_the_word():
    figure, ((ax,),) = new_figure(1, 1, 4, 3)
    ax.set_title("MNIST")
    name_stand_ins(figure, ())
    assert ax.get_title() == "MNIST"


def test_a_table_has_its_claims_numbers_when_it_is_drawn():
    frame = pd.DataFrame({"value": [1.0]})
    table = FigureTable(frame, {}, {"fig1.a": {"paper_value": 0.5}, "fig1.b": {"low": 1}})
    assert table.of_claim("fig1.b") == {"low": 1}
    assert (table.paper("fig1.a"), table.paper("fig1.b")) == (" (paper 0.50)", "")
    assert (FigureTable(frame).of_claim("fig1.a"), FigureTable(frame).paper("x")) == ({}, "")
    with pytest.raises(KeyError, match=r"fig1\.c"):
        table.of_claim("fig1.c")


@pytest.mark.parametrize(
    ("spec", "foot"),
    [
        (
            {},
            "preset: smoke sizes (of preset paper): steps 20 (100) data: generated 1 seed",
        ),
        ({"sizes": []}, "preset: smoke data: generated 1 seed"),
        (
            {"name": "short", "changed": ["dimension = 3", "steps = 7"], "sizes": []},
            "short: preset smoke, changed: dimension = 3, steps = 7 data: generated 1 seed",
        ),
    ],
)
def test_a_picture_says_at_its_foot_what_was_changed(spec, foot, smoke_plan, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(make, "save", lambda picture, *files: drawn.append(picture))
    table, arrays = tmp_path / "table.csv", tmp_path / "table.npz"
    rows = {"seed": 0, "step": [0, 1], "metric": "loss", "value": [2.0, 1.0], "point": "default"}
    pd.DataFrame(rows).to_csv(table, index=False)
    np.savez(arrays)
    draw_figure(smoke_plan.figure_spec("example2030_fig2") | spec, table, arrays, [])
    assert foot in [" ".join(text.get_text().split()) for text in drawn[0].texts]


def test_a_column_of_numbers_and_words_is_read_as_words_in_a_table_of_any_length(tmp_path):
    layers = np.repeat(["1", "all"], 300_000)  # pandas reads long files in parts
    frame = pd.DataFrame({"seed": 0, "metric": "loss", "layer": layers, "value": 1.0})
    frame.to_csv(tmp_path / "metrics.csv", index=False)
    assert (Run(tmp_path).metrics["layer"] == "1").sum() == 300_000


def test_arrays_are_stacked_in_the_order_of_seeds(tmp_path):
    (tmp_path / "spec.json").write_text('{"parameters": {"seeds": 3}}', encoding="utf-8")
    np.savez(tmp_path / "arrays.npz", **{f"seed{seed}/f": [seed, -seed] for seed in range(3)})
    run = Run(tmp_path)
    assert run.stacked("f").tolist() == [[0, 0], [1, -1], [2, -2]]
    assert run.array("f", 2).tolist() == [2, -2]


@pytest.mark.parametrize(
    ("sources", "stand_in"),
    [((), False), (("file",), False), (("embedded",), True), (("file", "embedded"), True)],
)
def test_a_run_with_an_embedded_dataset_has_a_stand_in(tmp_path, sources, stand_in):
    data = {f"dataset{i}": {"source": source} for i, source in enumerate(sources)}
    (tmp_path / "spec.json").write_text(json.dumps({"data": data}), encoding="utf-8")
    assert Run(tmp_path).stand_in is stand_in


@pytest.mark.parametrize("wanted", [range(1, 3), [1, 2], (1, 2), {1, 2}])
def test_rows_are_chosen_by_one_of_several_values(wanted):
    frame = pd.DataFrame({"step": [0, 1, 2, 3]})
    assert rows_where(frame, step=wanted)["step"].tolist() == [1, 2]


def test_rows_that_are_not_there_are_told():
    with pytest.raises(KeyError, match="the table has no rows where"):
        rows_where(pd.DataFrame({"split": ["train"]}), split="trian")


def test_metrics_begin_with_the_point_and_its_columns(tmp_path):
    (tmp_path / "metrics.csv").write_text("seed,value\n0,1.5\n", encoding="utf-8")
    frame = Run(tmp_path, {"width": 3.0}).metrics
    assert frame.columns.tolist() == ["point", "width", "seed", "value"]
    assert frame.iloc[0].tolist() == [tmp_path.name, 3.0, 0, 1.5]

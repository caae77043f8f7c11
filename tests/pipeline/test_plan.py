import dataclasses
import hashlib
from types import SimpleNamespace

import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline import papers, plan
from feature_alignment.pipeline.config import PRESETS, Change, resolve_config
from feature_alignment.pipeline.plan import dataset_spec, make_plan
from feature_alignment.pipeline.spec import dataset_keys


def test_figures_are_in_order_of_paper_and_number_with_words_last():
    names = ["b2024_fig2", "a2021_fig_theory", "a2021_fig10", "a2021_fig2", "a2021_fig2b"]
    assert sorted(names, key=papers.figure_order) == [
        "a2021_fig2",
        "a2021_fig2b",
        "a2021_fig10",
        "a2021_fig_theory",
        "b2024_fig2",
    ]


def test_a_paper_is_found_by_its_folder():
    assert papers.papers()["example2030"].title == "Coins That Fall and Losses That Fall"
    own = [name for name in papers.all_figures() if papers.paper_of(name) == "example2030"]
    assert own == ["example2030_fig1", "example2030_fig2"]
    assert papers.figure_module(own[0]) == (
        "feature_alignment.papers.example2030.figures.shares_and_losses"
    )
    with pytest.raises(UserError, match="unknown figure 'example2030_fig3'; did you mean"):
        papers.figure_named("example2030_fig3")


def test_every_experiment_has_its_module_and_a_figure(smoke_plan):
    import importlib

    used = {experiment for experiment, _ in smoke_plan.specs}
    assert used == set(papers.all_parameters())
    for experiment in used:
        assert importlib.import_module(papers.experiment_module(experiment)).run_seed


def test_points_have_typed_parameters_and_columns_of_their_figure(smoke_plan):
    spec = smoke_plan.specs["example2030_coin", "bent"]
    assert spec["parameters"] == {"seeds": 1, "probability": 0.9, "throws": 200}
    assert spec["data"] == {}
    assert smoke_plan.figure_spec("example2030_fig1")["points"][1] == {
        "experiment": "example2030_coin",
        "name": "bent",
        "columns": {"probability": 0.9},
    }


def test_a_figures_spec_has_the_numbers_of_its_claims(smoke_plan):
    claims = smoke_plan.figure_spec("example2030_fig1")["claims"]
    assert claims["fig1.fair_share"] == {"paper_value": 0.5}
    assert not any(name.startswith("fig2") for name in claims)
    bounds = smoke_plan.figure_spec("example2030_fig2")["claims"]["fig2.loss_falls"]
    assert set(bounds) <= {"paper_value", "low", "high"}
    assert bounds


def test_a_figure_tells_its_sizes_that_are_not_the_papers(root):
    def sizes(figure, **own):
        settings = {"experiments": {"example2030_descent": own}} if own else {}
        config = resolve_config(settings, root / "workflow", preset="paper")
        return make_plan(config).figure_spec(figure)["sizes"]

    assert sizes("example2030_fig2") == []
    assert sizes("example2030_fig2", seeds=2) == []
    assert sizes("example2030_fig2", steps=30) == ["steps 30 (100)"]
    assert sizes("example2030_fig1", steps=30) == []  # which shows another experiment


@pytest.mark.parametrize(
    ("preset", "figure", "told"),
    [  # networks of one figure with sizes of their own; runs that are left out, or named otherwise
        ("laptop", "baratin2021_fig12", "steps 5000 and 1200 (30000)"),
        ("laptop", "beaglehole2024_fig13", "epochs 40 (150 and 50)"),
        ("laptop", "baratin2021_fig13", "runs 5 (9)"),
        ("quick", "baratin2021_fig13", "steps 600 (3000)"),
        ("workstation", "baratin2021_fig_late", "base width 16 (64), steps 6000 (30000)"),
    ],
)
def test_sizes_are_those_of_the_runs_shown(root, preset, figure, told):
    plan = make_plan(resolve_config({}, root / "workflow", preset=preset))
    assert told in "; ".join(plan.figure_spec(figure)["sizes"])


def test_runs_of_other_names_are_not_compared_where_their_number_differs(smoke_plan):
    figure = "example2030_fig1"
    own = dataclasses.replace(smoke_plan.points[figure][0], name="another")
    fewer = dataclasses.replace(smoke_plan, points={figure: (own,)})
    assert fewer._sizes_of(figure) == ["runs 1 (2)"]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_figure_of_every_preset_tells_its_sizes(root, preset):
    plan = make_plan(resolve_config({}, root / "workflow", preset=preset))
    told = [plan.figure_spec(figure)["sizes"] for figure in plan.figures]
    assert any(told) == (preset != "paper")


@pytest.mark.parametrize(
    ("here", "paper", "told"),
    [
        ({"n": None}, {"n": 8}, "n all (8)"),
        ({"n": [1, 2]}, {"n": [1, 2, 9]}, "n 1 and 2 (3 in 1…9)"),
        ({"n": [1, 2, 9]}, {"n": [1, 3, 5, 9]}, "n 3 in 1…9 (4 in 1…9)"),
        ({"mlp": {"width": 2}}, {"mlp": {"width": 4}}, "mlp width 2 (4)"),
    ],
)
def test_sizes_in_words(here, paper, told):
    own, other = plan._numbers(here), plan._numbers(paper)
    (key,) = own
    assert f"{key} {plan._told(own[key])} ({plan._told(other[key])})" == told
    assert plan._numbers({"measure_at": {"first": 1}, "check_every": 3, "rate": 0.1}) == {}


def test_datasets_of_a_run_are_in_its_spec_with_their_sources(smoke_plan):
    several = [spec for spec in smoke_plan.specs.values() if len(spec["data"]) > 1]
    assert several
    for spec in several:
        first, *others = dataset_keys(spec)
        assert first == "dataset"
        for key in (first, *others):
            assert spec["data"][key]["name"] == spec["parameters"][key]
            assert spec["data"][key]["source"] == "embedded"
    shown = {pair for figure in smoke_plan.figures for pair in smoke_plan.datasets_of(figure)}
    assert {(data["name"], data["source"]) for s in several for data in s["data"].values()} <= shown
    assert smoke_plan.datasets_of("example2030_fig1") == []


def test_the_options_of_a_further_dataset_are_checked(root, smoke_plan):
    figure, name = next(
        (figure, spec["data"][key]["name"])
        for figure in smoke_plan.figures
        for spec in (smoke_plan.specs[run] for run in smoke_plan.runs_of(figure))
        for key in dataset_keys(spec)[1:]
    )
    options = {name: {"source": "npz", "path": f"/nowhere/{name}.npz"}}
    settings = {"figures": [figure], "datasets": options}
    with pytest.raises(UserError, match=rf"datasets\.{name}\.path"):
        make_plan(resolve_config(settings, root / "workflow"))


def planned(root, **settings):
    config = resolve_config({"preset": "smoke", **settings}, root / "workflow")
    return make_plan(config, resolve_config({}, root / "workflow", "smoke"))


def test_a_figure_tells_what_of_its_settings_is_not_the_presets(root):
    descent = {"steps": 7, "dimension": 3}
    plan = planned(root, name="short", threads=2, experiments={"example2030_descent": descent})
    assert plan.figure_spec("example2030_fig2")["changed"] == ["dimension = 3", "steps = 7"]
    assert plan.figure_spec("example2030_fig1")["changed"] == []
    assert [str(change) for change in plan.changes] == [
        "experiments.example2030_descent.dimension = 3",
        "experiments.example2030_descent.steps = 7",
        "threads = 2",
    ]
    assert plan.selection_spec(["example2030_fig1"])["name"] == "short"


def test_changed_settings_of_several_experiments_of_a_figure_are_told_with_their_experiments(root):
    own = {f"beaglehole2024_{name}": {"epochs": 7} for name in ("image_mlp", "image_vgg")}
    plan = planned(root, experiments=own)
    changed = {
        name: plan.figure_spec(f"beaglehole2024_{name}")["changed"] for name in ("fig2", "fig13")
    }
    assert changed["fig2"] == [f"{name}.epochs = 7" for name in own]
    assert changed["fig13"] == ["epochs = 7"]  # of which it shows one


def test_a_setting_that_takes_all_runs_of_an_experiment_out_of_a_figure_is_told(monkeypatch):
    coin, descent = (SimpleNamespace(experiment=f"example2030_{n}") for n in ("coin", "descent"))
    monkeypatch.setattr(plan, "points_of", lambda *_: (coin, descent))
    change = Change("experiments.example2030_descent.rates", [0.1], [])
    preset = SimpleNamespace(settings=dict)
    (found,) = plan._changed_figures({"example2030_fig1": (coin,)}, preset, [change]).values()
    assert [str(one) for one in found] == ["rates = []"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"device": "cpu"}, "device = cpu"),
        ({"threads": 2}, "threads = 2"),
        ({"datasets": {"mnist": {"source": "torchvision"}}}, "datasets.mnist.source = torchvision"),
    ],
)
def test_a_setting_outside_of_the_experiments_is_a_change_and_changes_no_figure(
    root, settings, told
):
    plan = planned(root, **settings)
    assert [str(change) for change in plan.changes] == [told]
    assert not plan.changed_figures


def test_a_preset_and_what_repeats_it_are_not_changed(root, smoke_config):
    same = smoke_config.experiments.example2030_descent.steps
    plan = planned(root, experiments={"example2030_descent": {"steps": same}})
    assert plan.changes == ()
    assert plan.name == "smoke"
    assert plan.figure_spec("example2030_fig2")["changed"] == []


def test_a_users_file_is_in_the_specs_by_its_content(root, tmp_path, smoke_plan):
    run, key = next((run, key) for run, spec in smoke_plan.specs.items() for key in spec["data"])
    name = smoke_plan.specs[run]["data"][key]["name"]

    def found(path):
        settings = {"datasets": {name: {"source": "npz", "path": str(path)}}}
        config = resolve_config({**settings, "figures": ["example2030_fig1"]}, root / "workflow")
        assert make_plan(config).specs[run]["data"][key] == dataset_spec(name, config)
        return dataset_spec(name, config)

    (tmp_path / "a.npz").write_bytes(b"content")
    spec = found(tmp_path / "a.npz")
    assert spec["sha256"] == hashlib.sha256(b"content").hexdigest()
    (tmp_path / "a.npz").write_bytes(b"CONTENT")
    assert found(tmp_path / "a.npz")["sha256"] != spec["sha256"]
    assert "sha256" not in found(tmp_path / "nowhere.npz")


def test_each_file_is_hashed_once(root, tmp_path, smoke_plan, monkeypatch):
    name = smoke_plan.datasets_of(
        next(figure for figure in smoke_plan.figures if smoke_plan.datasets_of(figure))
    )[0][0]
    settings = {"datasets": {name: {"source": "npz", "path": "mine.npz"}}}
    asked = []
    monkeypatch.setattr(plan, "content_hash", lambda source, path: asked.append(path))
    make_plan(resolve_config({**settings, "figures": ["example2030_fig1"]}, root / "workflow"))
    assert asked.count("mine.npz") == 1

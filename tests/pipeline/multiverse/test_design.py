"""Universes: every combination or a balanced choice, the default reading first."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.errors import UserError
from feature_alignment.pipeline.config import changes, resolve_config
from feature_alignment.pipeline.multiverse import design as design_module
from feature_alignment.pipeline.multiverse.design import (
    Multiverse,
    OpenSetting,
    block_specs,
    design,
    load_multiverses,
    universes,
)
from feature_alignment.pipeline.papers import all_parameters

GROUP = "example2030_descent"


@pytest.fixture
def config(root):
    return resolve_config({"preset": "quick"}, root / "workflow")


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=6), st.integers(8, 40))
def test_rows_differ_fit_in_and_begin_with_the_default(sizes, room):
    default = tuple(size - 1 for size in sizes)
    rows = design(sizes, room, default)
    assert rows[0] == default
    assert len(rows) <= room or len(rows) == np.prod(sizes)
    assert len(set(rows)) == len(rows)
    assert all(0 <= level < size for row in rows for level, size in zip(row, sizes, strict=True))


def test_all_combinations_where_there_is_room():
    assert set(design([2, 3], 6, (0, 0))) == set(itertools.product(range(2), range(3)))


@pytest.mark.parametrize(
    ("sizes", "room"), [([2] * 6, 17), ([2] * 8, 33), ([3, 2, 2, 3], 25), ([4, 3, 2, 2, 2], 33)]
)
def test_a_choice_is_balanced(sizes, room):
    rows = design(sizes, room, (0,) * len(sizes))
    assert 0.8 * room <= len(rows) <= room
    for factor, size in enumerate(sizes):
        counts = np.bincount([row[factor] for row in rows], minlength=size)
        assert counts.min() >= 0.6 * len(rows) / size
    # Each pair of values occurs, and none much more often than its share.
    for one, other in itertools.combinations(range(len(sizes)), 2):
        counts = np.zeros((sizes[one], sizes[other]))
        for row in rows:
            counts[row[one], row[other]] += 1
        assert np.abs(counts - len(rows) / counts.size).max() < 0.8 * len(rows) / min(sizes) ** 2


def test_the_first_universe_is_what_is_configured(config):
    found = universes(GROUP, load_multiverses()[GROUP], config)
    assert len(found) == 16
    kind = all_parameters()[GROUP]
    assert found[0].settings[kind] == config.settings()[kind].but(seeds=2)
    assert {u.settings[kind].samples for u in found} == {50, 60}
    assert [universe.number for universe in found] == list(range(16))


def test_blocks_hold_all_universes_once(config):
    blocks = block_specs(GROUP, load_multiverses()[GROUP], config)
    numbers = [universe["number"] for block in blocks for universe in block["universes"]]
    assert numbers == list(range(16))
    runs = {
        str(run["parameters"]) for b in blocks for u in b["universes"] for run in u["runs"].values()
    }
    assert len(runs) == 16


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a", r"holds \['a'\] \(list\) where a mapping of keys is needed"),
        ("tosses: {figures: [fig1], settings: 3}", "tosses: settings: found 3"),
        (
            "tosses: {figures: [fig1], settings: {a.b: {values: [5, '5'], why: open}}}",
            "tosses: settings.a.b: 5 twice among the values; give each once, or names to all",
        ),
        (
            "tosses: {figures: [fig1], settings: {a.b: {values: {x: 5, y: 5}, why: open}}}",
            "tosses: settings.a.b: 5 under two names among the values; give each once",
        ),
        (
            "tosses: {figures: [fig1], settings: {a.b: {values: {x: 5}, why: open}}}",
            "tosses: settings.a.b.values",
        ),
        (
            "tosses: {figures: [fig1], learnt: {figure: fig1, select: {metric: a}, why: open}}",
            "tosses: learnt: it has neither least nor most",
        ),
        (
            "tosses: {figures: [fig1], learnt: {figure: fig1, select: {metric: a}, least: 2,"
            " most: 1, why: open}}",
            "tosses: learnt: least 2.0 is above most 1.0",
        ),
        ("two-tosses: {}", "two-tosses: name a group by letters, digits and _ only"),
        ("2020-01-01: {}", "2020-01-01: name a group by letters, digits and _ only"),
        ("tosses: {figures: [2020-01-01]}", r"tosses: figures.0: found datetime.date\(2020"),
    ],
)
def test_a_mistake_in_a_papers_file_is_told_once(tmp_path, monkeypatch, text, says):
    (tmp_path / "multiverse.yaml").write_text(text)
    monkeypatch.setattr(design_module, "paper_files", lambda name: [tmp_path / name])
    with pytest.raises(UserError, match=rf"^{tmp_path}/multiverse\.yaml: {says}"):
        load_multiverses()


def test_what_the_user_has_set_counts_more_than_the_size_of_the_group(config, root):
    mine = {"preset": "quick", "experiments": {GROUP: {"seeds": 7}}}
    here = resolve_config(mine, root / "workflow")
    found = universes(GROUP, load_multiverses()[GROUP], here, list(changes(here, config)))
    assert {u.settings[all_parameters()[GROUP]].seeds for u in found} == {7}


def test_numbers_of_another_kind_are_the_default_and_values_that_are_alike_no_mistake(root):
    mine = {"preset": "quick", "experiments": {GROUP: {"learning_rate": 1.0}}}
    rates = OpenSetting(values=(50, 50.0, 1), why="The second is written otherwise.")
    group = load_multiverses()[GROUP].but(settings={f"{GROUP}.learning_rate": rates})
    found = universes(GROUP, group, resolve_config(mine, root / "workflow"))
    assert [list(one.levels.values()) for one in found] == [["1"], ["50"], ["50.0"]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"settings": {"descent.step": {"values": [1, 2], "why": "x"}}}, "unknown parameter; did"),
        ({"settings": {"descent.steps": {"values": [1, 2], "why": "x"}}}, "100, is not among"),
        (
            {"settings": {"descent.steps": {"values": [100, 0], "why": "x"}}},
            rf"multiverse\.yaml: descent: {GROUP}: steps: found 0, at least 1",
        ),
        (
            {"settings": {"coin.throws": {"values": [50, 10000], "why": "x"}}},
            r"multiverse\.yaml: descent: settings: coin.throws: no run of example2030_fig2 hangs",
        ),
        (
            {"sizes": {"paper": {"universes": 4}}, "why": "It is long."},
            "quick: It is long; allowed: paper",
        ),
        (
            {"sizes": {"quick": {"universes": 4, "changes": {"decent": {"seeds": 2}}}}},
            "quick.changes: unknown experiment; did you mean 'descent'",
        ),
    ],
)
def test_what_cannot_be_run_is_one_sentence(config, changes, sentence):
    entry = load_multiverses()[GROUP].plain() | changes
    settings = {
        f"example2030_{k.removeprefix('example2030_')}": v for k, v in entry["settings"].items()
    }
    group = Multiverse.model_validate(entry | {"settings": settings})
    with pytest.raises(UserError, match=sentence) as caught:
        universes(GROUP, group, config)
    assert "\n" not in str(caught.value)


def test_no_universe_is_lost_to_equal_rows():
    assert len(design([3, 3, 2, 2], 16, (0, 0, 0, 0))) == 16

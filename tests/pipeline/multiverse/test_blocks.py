"""Blocks of universes: run, killed and gone on with, and read again."""

import threading

import pytest

from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.multiverse import blocks
from feature_alignment.pipeline.multiverse.design import block_specs, load_multiverses
from feature_alignment.pipeline.multiverse.make import read_blocks
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.errors import MetricNotFiniteError

GROUP = "example2030_descent"


@pytest.fixture
def specs(root):
    config = resolve_config({"preset": "quick"}, root / "workflow")
    return block_specs(GROUP, load_multiverses()[GROUP], config)


def run(spec, folder, ending=None, identity="identity"):
    folder.mkdir(exist_ok=True)
    ending = ending or threading.Event()
    blocks.run_block(spec, {}, folder / "scratch", identity, folder / "runs.zip", ending)
    return folder / "runs.zip"


def test_a_block_that_is_killed_goes_on_and_ends_with_the_same_bytes(specs, tmp_path, monkeypatch):
    whole = run(specs[0], tmp_path / "whole").read_bytes()
    really, done = blocks.run_experiment, []

    def killed(spec, *files, **options):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(spec)
        return really(spec, *files, **options)

    monkeypatch.setattr(blocks, "run_experiment", killed)
    with pytest.raises(KeyboardInterrupt):
        run(specs[0], tmp_path / "cut")
    monkeypatch.undo()
    assert run(specs[0], tmp_path / "cut").read_bytes() == whole


def test_a_block_that_is_told_to_end_ends_after_its_run_and_goes_on_from_there(
    specs, tmp_path, monkeypatch
):
    whole = run(specs[0], tmp_path / "whole").read_bytes()
    really, ending, done = blocks.write_run, threading.Event(), []

    def told(*arguments):
        really(*arguments)
        done.append(arguments)
        ending.set()

    monkeypatch.setattr(blocks, "write_run", told)
    with pytest.raises(KeyboardInterrupt):
        run(specs[0], tmp_path / "cut", ending)
    assert len(done) == 1
    monkeypatch.undo()
    assert run(specs[0], tmp_path / "cut").read_bytes() == whole


def test_a_run_that_measures_what_is_not_finite_fails_and_the_others_do_not(
    specs, tmp_path, monkeypatch
):
    stream, calls = SeedRun.stream, []

    def first_fails(self, name):
        calls.append(name)
        if len(calls) == 1:
            raise MetricNotFiniteError("metric 'loss' is nan at step 3.")
        return stream(self, name)

    monkeypatch.setattr(SeedRun, "stream", first_fails)
    first, *others = read_blocks([run(specs[0], tmp_path / "one")])
    assert ["metric 'loss' is nan" in reason for reason in first.failed.values()] == [True]
    assert not any(universe.failed for universe in others)


def test_what_is_finished_is_not_run_again(specs, tmp_path, monkeypatch):
    first = run(specs[0], tmp_path / "one").read_bytes()
    monkeypatch.setattr(blocks, "run_experiment", lambda *_, **__: pytest.fail("run again"))
    assert run(specs[0], tmp_path / "one").read_bytes() == first
    with pytest.raises(pytest.fail.Exception, match="run again"):
        run(specs[0], tmp_path / "one", identity="that of other code")


def test_a_run_that_diverges_is_told_and_the_others_have_tables(specs, tmp_path):
    archives = [run(spec, tmp_path / str(number)) for number, spec in enumerate(specs)]
    found = list(read_blocks(archives))
    assert [universe.number for universe in found] == list(range(16))
    for universe in found:
        fails = universe.levels == universe.levels | {
            "example2030_descent.learning_rate": "50.0",
            "example2030_descent.steps": "100",
        }
        assert bool(universe.failed) == fails
        assert set(universe.tables) == (set() if fails else {"example2030_fig2"})
    assert all(reason for u in found for reason in u.failed.values())

"""Which runs are packed and merged, told by files in the place of runs; see tests/workflow, too."""

import dataclasses
import fcntl
import json
from pathlib import Path

import pytest

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.pipeline.imports import closure_hash
from feature_alignment.pipeline.papers import experiment_module
from feature_alignment.pipeline.provenance import package_versions
from feature_alignment.pipeline.spec import canonical_json, spec_hash
from feature_alignment.training.checkpoint import Checkpoints

RUN, OTHER = ("example2030_coin", "fair"), ("example2030_descent", "default")
SMOKE = ("--config", "preset=smoke")


@pytest.fixture(autouse=True)
def checkout(root, tmp_path, monkeypatch):
    """A working directory without results, and with all that a plan is made of."""
    monkeypatch.chdir(tmp_path)
    for part in ("workflow", "config.yaml"):
        (tmp_path / part).symlink_to(root / part)


def finish(tool, plan, run, text="", library=None, **inputs):
    """What a finished run leaves; its folder."""
    folder = tool.folder_of(plan, run)
    folder.mkdir(parents=True, exist_ok=True)
    for name in tool.FILES[:-1]:
        (folder / name).write_text(text)
    code = closure_hash("feature_alignment.pipeline.run", experiment_module(run[0]))
    record = {
        "spec_sha256": spec_hash(plan.specs[run]),
        "library_sha256": library or code,
        "versions": package_versions(),
        "inputs": inputs,
        "outputs": {name: sha256_of(folder / name) for name in tool.FILES[:-1]},
    }
    (folder / "provenance.json").write_text(json.dumps(record))
    return folder


def packed(tool, plan, tmp_path):
    """A pack of what is there, which is moved out of the way."""
    tool.pack(plan, tmp_path / "pack.tar.gz")
    (tmp_path / "results").rename(tmp_path / "elsewhere")
    return str(tmp_path / "pack.tar.gz")


def merge(tool, pack):
    """Merge, as a process of its own does, which holds the lock until it ends."""
    Path("results/smoke/.lock").unlink(missing_ok=True)
    return tool.main(["merge", pack, *SMOKE])


def test_runs_are_merged_beside_the_data_that_they_have_read(tool, smoke_plan, tmp_path, capsys):
    data = tmp_path / "results" / "smoke" / "data" / "toy.npz"
    data.parent.mkdir(parents=True)
    data.write_text("data")
    folder = finish(tool, smoke_plan, RUN, **{"data/toy.npz": sha256_of(data)})
    pack = packed(tool, smoke_plan, tmp_path)
    assert merge(tool, pack) == 1
    assert "snakemake --cores 1 results/smoke/data/toy.npz\n" in capsys.readouterr().err
    data.parent.mkdir(exist_ok=True)
    data.write_text("other data")
    assert merge(tool, pack) == 1
    assert "read another results/smoke/data/toy.npz than is here" in capsys.readouterr().err
    assert not folder.exists()
    data.write_text("data")
    assert merge(tool, pack) == 0
    assert (folder / "provenance.json").exists()


def test_a_pack_that_was_cut_is_told(tool, smoke_plan, tmp_path, capsys):
    finish(tool, smoke_plan, RUN, "".join(map(str, range(10_000))))
    pack = Path(packed(tool, smoke_plan, tmp_path))
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])
    assert merge(tool, str(pack)) == 1
    assert capsys.readouterr().err.startswith(f"Error: {pack}: no pack of runs that can be read: ")


def test_a_pack_that_would_fill_the_disk_is_refused(
    tool, smoke_plan, tmp_path, capsys, monkeypatch
):
    finish(tool, smoke_plan, RUN, "many bytes" * 100)
    pack = packed(tool, smoke_plan, tmp_path)
    monkeypatch.setattr("feature_alignment.data.archives.LIMIT", 1000)
    assert merge(tool, pack) == 1
    assert "it unpacks to more than" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/dev/zero", "data/../../x.npz", "x; reboot #"])
def test_data_that_is_none_of_the_results_is_not_read(tool, smoke_plan, tmp_path, capsys, name):
    finish(tool, smoke_plan, RUN, **{name: "0"})
    pack = packed(tool, smoke_plan, tmp_path)
    assert merge(tool, pack) == 1
    assert "which is no prepared data" in capsys.readouterr().err


def test_a_packed_run_that_was_changed_is_told(tool, smoke_plan, tmp_path, capsys):
    (finish(tool, smoke_plan, RUN) / "metrics.csv").write_text("other")
    pack = packed(tool, smoke_plan, tmp_path)
    assert merge(tool, pack) == 1
    told = (
        f"Error: {pack}: {'/'.join(RUN)}: is not as its job wrote it; make it and pack it again.\n"
    )
    assert capsys.readouterr().err == told


def test_what_is_not_as_planned_is_neither_packed_nor_kept(tool, smoke_plan, tmp_path, capsys):
    finish(tool, smoke_plan, RUN, "good")
    finish(tool, smoke_plan, OTHER, library="old")
    pack = packed(tool, smoke_plan, tmp_path)
    stale = finish(tool, smoke_plan, RUN, "stale", library="old")
    assert merge(tool, pack) == 0
    assert capsys.readouterr().out == "example2030_coin/fair: finished\n"
    assert (stale / "metrics.csv").read_text() == "good"
    assert tool.is_finished(smoke_plan, RUN)
    (stale / "metrics.csv").unlink()
    assert not tool.is_finished(smoke_plan, RUN)


def save(tool, plan, run, seconds, **other):
    """What a run that was told to end leaves; the file."""
    code = closure_hash("feature_alignment.pipeline.run", experiment_module(run[0]))
    identity = {
        "spec_sha256": spec_hash(plan.specs[run]),
        "library_sha256": code,
        "versions": package_versions(),
        "device": "cpu",
        "inputs": {},
    }
    folder = tool.folder_of(plan, run) / tool.SCRATCH
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(folder, canonical_json(identity | other))
    checkpoints.earlier = (seconds, seconds)
    checkpoints.save("training", {"seconds": seconds})
    return folder / "training.pt"


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ({"seconds": 9.0}, "the state that is here"),
        ({"seconds": 1.0}, "its saved state"),
        ({"seconds": 1.0, "device": "a GPU"}, "the state that is here"),
        ({"seconds": 9.0, "library_sha256": "old"}, "its saved state"),
        (None, "its saved state"),
    ],
)
def test_the_later_state_of_the_same_run_goes_on(tool, smoke_plan, tmp_path, capsys, own, kept):
    state = save(tool, smoke_plan, RUN, 5.0)
    pack = packed(tool, smoke_plan, tmp_path)
    if own:
        save(tool, smoke_plan, RUN, **own)
    assert merge(tool, pack) == 0
    assert capsys.readouterr().out == f"example2030_coin/fair: goes on from {kept}\n"
    seconds = own["seconds"] if own and kept == "the state that is here" else 5.0
    assert tool.read_state(state)["content"]["seconds"] == seconds


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"library_sha256": "old"}, "made from other code than are planned here"),
        ({"versions": {"torch": "1.0"}}, "made with torch 1.0, where "),
    ],
)
def test_a_state_of_other_code_or_packages_is_refused(
    tool, smoke_plan, tmp_path, capsys, other, says
):
    save(tool, smoke_plan, RUN, 5.0, **other)
    pack = packed(tool, smoke_plan, tmp_path)
    assert merge(tool, pack) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("mine.yaml", "- a\n", r"mine.yaml: holds ['a'] (list) where a mapping of keys is needed"),
        ("config.yaml", "threads: 0\n", "config.yaml: threads: found 0, at least 1 is needed"),
    ],
)
def test_a_mistake_in_a_config_file_names_it(tool, tmp_path, capsys, file, text, says):
    (tmp_path / file).unlink(missing_ok=True)
    (tmp_path / file).write_text(text)
    given = ["--configfile", file] if file == "mine.yaml" else []
    assert tool.main(["merge", "pack.tar.gz", *SMOKE, *given]) == 1
    assert capsys.readouterr().err == f"Error: {says}.\n"


@pytest.mark.parametrize("minutes", ["1", "0", "-3"])
def test_a_time_in_which_states_could_just_be_saved_is_refused(tool, capsys, minutes):
    assert tool.main(["spend", minutes, *SMOKE]) == 1
    assert f"MINUTES: {minutes}; more than the 60 seconds are needed" in capsys.readouterr().err


def test_a_figure_that_is_not_there_is_told_with_the_option(tool, capsys):
    assert tool.main(["spend", "9", "--first", "example2030_fig3", *SMOKE]) == 1
    told = "Error: --first: 'example2030_fig3' is unknown; did you mean 'example2030_fig"
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("9", "--pack", "."), "argument --pack: .: no file can be written there"),
        (("9", "--pack", "pack.gz/pack.gz"), "argument --pack: pack.gz/pack.gz: no file can be"),
        (("9", "--cores", "0"), "argument --cores: 0: a number from 1 on is needed, or all"),
        (("9", "--cores", "abc"), "argument --cores: abc: a number from 1 on"),
        (("9", "--grace", "-5"), "argument --grace: -5: a number of seconds from 0 on is needed"),
        (("9", "--grace", "nan"), "argument --grace: nan: a number of seconds from 0 on"),
        (("nan",), "argument minutes: nan: a number of minutes is needed"),
        (("soon",), "argument minutes: soon: a number of minutes is needed"),
    ],
)
def test_what_could_not_be_done_is_told_before_the_time_is_spent(
    tool, tmp_path, capsys, given, says
):
    (tmp_path / "pack.gz").touch()
    with pytest.raises(SystemExit):
        tool.main(["spend", *given, *SMOKE])
    assert says in capsys.readouterr().err


def test_what_is_told_to_end_packs_first(tool, smoke_plan, tmp_path, monkeypatch):
    finish(tool, smoke_plan, RUN)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "_run", interrupted)
    assert tool.main(["spend", "9", "--pack", "pack.tar.gz", *SMOKE]) == 130
    assert (tmp_path / "pack.tar.gz").exists()


@pytest.mark.parametrize("given", [("merge", "pack.tar.gz"), ("spend", "9")])
def test_a_result_that_is_being_made_is_left_alone(tool, tmp_path, capsys, given):
    folder = tmp_path / "results" / "smoke"
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert tool.main([*given, *SMOKE]) == 1
    assert "results/smoke: is being made by another Snakemake" in capsys.readouterr().err


def test_a_pack_that_cannot_be_written_is_told_with_what_is_kept(tool, smoke_plan, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--pack: .*: cannot be written .* in results/smoke: give"):
        tool.pack(smoke_plan, tmp_path / "file" / "pack.tar.gz")


def test_figures_are_ordered_by_the_papers_claims_per_minute(tool, smoke_plan, monkeypatch):
    one, other = smoke_plan.figures[:2]
    base = smoke_plan.claims[0].but(lowest_preset="smoke")
    ours = [base.but(figure=one, kind="ours")] * 9
    plan = dataclasses.replace(
        smoke_plan, figures=(one, other), claims=(*ours, base.but(figure=other, kind="number"))
    )
    monkeypatch.setattr(tool, "unfinished", lambda plan, figure: [RUN])
    assert tool.in_order(plan, []) == [other, one]


def test_claims_that_are_judged_at_larger_sizes_alone_do_not_count(tool, smoke_plan, monkeypatch):
    one, other = smoke_plan.figures[:2]
    base = smoke_plan.claims[0].but(kind="number")
    later = [base.but(figure=one, lowest_preset="quick")] * 9
    claims = (*later, base.but(figure=other, lowest_preset="smoke"))
    plan = dataclasses.replace(smoke_plan, figures=(one, other), claims=claims)
    monkeypatch.setattr(tool, "unfinished", lambda plan, figure: [RUN])
    assert tool.in_order(plan, []) == [other, one]

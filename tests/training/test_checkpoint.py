"""A training that is cut off and begun again ends as one that was not."""

import hashlib
import io
import os
import pathlib
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from feature_alignment.complexity.update_path import UpdatePath
from feature_alignment.determinism import torch_stream
from feature_alignment.errors import UserError
from feature_alignment.files import unfinished
from feature_alignment.training.batches import RandomCropAndFlip
from feature_alignment.training.checkpoint import Checkpoints, TrainingCheckpoint
from feature_alignment.training.loop import train
from feature_alignment.training.losses import cross_entropy
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Row

STEPS = 23


class CutOff(Exception):
    """Stands for a killed process."""


class Run:
    """A small convolutional network with batch norm and dropout, augmentation and momentum."""

    def __init__(self, optimizer="momentum", checkpoint=None, cut_off_at=None, stop_at=None):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4)
        )
        self.model.insert(4, nn.Dropout(0.1))
        self.x = x = torch.randn(20, 1, 6, 6)
        y = torch.arange(20) % 4
        self.path = UpdatePath(self.model, self.output_norm)
        self.updates = 0
        weights = self.model.parameters()
        optimizers = {
            "momentum": lambda: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
            "adam": lambda: torch.optim.Adam(weights, lr=0.05),
        }

        def schedule(step):
            if step == cut_off_at:
                raise CutOff
            self.updates += 1
            return 1 / (1 + step)

        self.recorder = None
        self.recorder = train(
            self.model,
            x,
            y,
            loss=cross_entropy,
            optimizer=optimizers[optimizer](),
            steps=STEPS,
            batch_size=6,
            batches=torch_stream(0, "batches"),
            augment=RandomCropAndFlip(torch_stream(0, "augmentation"), padding=1),
            schedule=schedule,
            measure_at=range(0, STEPS + 1, 5),
            probes=[self.norm],
            after_update=self.path,
            stop_when=lambda step, record: step == stop_at,
            checkpoint=checkpoint,
        )

    def output_norm(self, model):
        return float(model(self.x).detach().square().sum())

    def norm(self, step, model):
        norm = float(sum(p.detach().square().sum() for p in model.parameters()))
        return Measurement([Row(WHOLE_NETWORK, "train", "norm", norm)], {"norm": np.ones(2)})


def assert_same(run, other):
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name
    assert run.recorder.frame().equals(other.recorder.frame())
    assert run.recorder.arrays.keys() == other.recorder.arrays.keys()
    assert (run.path.length, run.path.complexity) == (other.path.length, other.path.complexity)


def checkpoint(folder, name="seed0-training", identity="a"):
    return TrainingCheckpoint(Checkpoints(folder, identity, interval=0), name)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("cut_off_at", [3, 10, 22])
def test_a_training_that_was_cut_off_ends_as_one_that_was_not(tmp_path, optimizer, cut_off_at):
    with pytest.raises(CutOff):
        Run(optimizer, checkpoint(tmp_path), cut_off_at=cut_off_at)
    found = Run(optimizer, checkpoint(tmp_path))
    assert found.updates == STEPS - cut_off_at
    assert_same(found, Run(optimizer))


def test_a_training_that_is_told_to_end_loses_nothing(tmp_path):
    rarely = TrainingCheckpoint(Checkpoints(tmp_path, "a", interval=1e9), "seed0-training")
    told_at = 9

    class Told(Run):
        def norm(self, step, model):
            if step >= told_at:
                rarely.checkpoints.end_soon()
            return super().norm(step, model)

    with pytest.raises(KeyboardInterrupt):
        Told(checkpoint=rarely)
    found = Run(checkpoint=checkpoint(tmp_path))
    assert found.updates == STEPS - 10  # the probe that told it measured after ten updates
    assert_same(found, Run())


def test_a_training_that_stops_early_stops_again(tmp_path):
    with pytest.raises(CutOff):
        Run(checkpoint=checkpoint(tmp_path), cut_off_at=8)
    found = Run(checkpoint=checkpoint(tmp_path), stop_at=10)
    assert found.updates == 2
    assert_same(found, Run(stop_at=10))


def test_a_resumed_training_has_the_time_since_the_last_measurement(tmp_path):
    class Slow(Run):
        def output_norm(self, model):  # once in each update
            time.sleep(0.2)
            return super().output_norm(model)

    with pytest.raises(CutOff):
        Slow(checkpoint=checkpoint(tmp_path), cut_off_at=9)  # measured after 5 updates
    seconds = Run(checkpoint=checkpoint(tmp_path)).recorder.seconds
    assert 9 * 0.2 <= seconds["training"] < 20


def test_states_of_another_identity_are_not_used(tmp_path):
    with pytest.raises(CutOff):
        Run(checkpoint=checkpoint(tmp_path), cut_off_at=10)
    assert Run(checkpoint=checkpoint(tmp_path, identity="b")).updates == STEPS


def test_trainings_are_told_apart_by_their_names(tmp_path):
    for name, cut_off_at in {"first": 8, "second": 15}.items():
        with pytest.raises(CutOff):
            Run(checkpoint=checkpoint(tmp_path, name), cut_off_at=cut_off_at)
    assert {path.name for path in tmp_path.iterdir()} == {"first.pt", "second.pt"}
    found = {name: Run(checkpoint=checkpoint(tmp_path, name)) for name in ("second", "first")}
    assert {name: run.updates for name, run in found.items()} == {"second": 8, "first": 15}
    assert Run(checkpoint=checkpoint(tmp_path, "third")).updates == STEPS


def test_checkpoints_are_made_when_they_are_due(tmp_path, monkeypatch):
    now = 0.0
    time = SimpleNamespace(monotonic=lambda: now, process_time=lambda: now)
    monkeypatch.setattr("feature_alignment.training.checkpoint.time", time)
    store = Checkpoints(tmp_path, "a", interval=10)
    now = 9.0
    assert not store.due()
    now = 10.0
    assert store.due()
    store.save("x", {"a": 1})
    assert not store.due()
    assert store.load("x") == {"a": 1}
    assert store.load("y") is None
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


def test_what_attempts_that_were_cut_off_took_is_kept(tmp_path, monkeypatch):
    elapsed = processor = 0.0
    time = SimpleNamespace(monotonic=lambda: elapsed, process_time=lambda: processor)
    monkeypatch.setattr("feature_alignment.training.checkpoint.time", time)
    first = Checkpoints(tmp_path, "a")
    elapsed, processor = 9.0, 5.0
    first.save("seed0", {})
    elapsed, processor = 20.0, 10.0
    first.save("training", {})
    elapsed, processor = 100.0, 0.5  # what followed is lost
    second = Checkpoints(tmp_path, "a")
    assert second.earlier == (0.0, 0.0)
    for name in ("training", "seed0"):
        second.load(name)
        assert second.earlier == (20.0, 10.0)
    elapsed, processor = 103.0, 2.5
    second.save("training", {})
    third = Checkpoints(tmp_path, "a")
    third.load("training")
    assert third.earlier == (23.0, 12.5)
    other = Checkpoints(tmp_path, "b")
    other.load("training")
    assert other.earlier == (0.0, 0.0)


def test_the_machines_of_attempts_that_were_cut_off_are_kept(tmp_path):
    Checkpoints(tmp_path, "a", machine="AMD").save("training", {})
    second = Checkpoints(tmp_path, "a", machine="Intel")
    assert not second.machines
    second.load("training")
    assert second.machines == {"AMD"}
    second.save("training", {})
    third = Checkpoints(tmp_path, "a", machine="AMD")
    third.load("training")
    assert third.machines == {"AMD", "Intel"}
    Checkpoints(tmp_path, "a", machine="ARM").save("seed0", {})
    third.load("seed0")
    assert third.machines == {"AMD", "ARM", "Intel"}
    other = Checkpoints(tmp_path, "b")
    other.load("training")
    assert not other.machines


class Harm:
    """What runs a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_no_code_of_a_file_is_run(tmp_path):
    store, trace = Checkpoints(tmp_path, "a"), tmp_path / "harm"
    whole = {"identity": f"a torch {torch.__version__}", "seconds": [1.0, 1.0], "content": 0}
    odd = [{"content": Harm(trace)}, {"seconds": [1.0]}, {"seconds": ["long", 1.0]}]
    for part in [*odd, {"identity": None, "seconds": None}]:
        packed = io.BytesIO()
        torch.save(whole | part if part in odd else [1], packed)
        digest = hashlib.sha256(packed.getbuffer()).digest()
        (tmp_path / "x.pt").write_bytes(digest + packed.getvalue())  # whole, as far as that tells
        with pytest.raises(UserError, match=r"x\.pt: not a readable checkpoint; remove it\."):
            store.load("x")
    assert not trace.exists()


@pytest.mark.parametrize("damage", ["flipped", "cut", "short", "empty", "folder"])
def test_a_damaged_checkpoint_is_never_taken_for_a_whole_one(tmp_path, damage):
    store, file = Checkpoints(tmp_path, "a"), tmp_path / "x.pt"
    store.save("x", {"weights": torch.arange(1000.0)})
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.unlink()
    if damage == "folder":
        file.mkdir()
    else:
        whole = {"flipped": len(content), "cut": 2000, "short": 20, "empty": 0}
        file.write_bytes(content[: whole[damage]])
    with pytest.raises(UserError, match=r"x\.pt: not a readable checkpoint; remove it\."):
        store.load("x")


def test_a_checkpoint_is_on_the_disk_before_it_replaces_an_earlier_one(tmp_path, monkeypatch):
    store, file, on_disk = Checkpoints(tmp_path, "a"), tmp_path / "x.pt", []

    def fsync(number):
        state = os.fstat(number)
        on_disk.append((state.st_ino, state.st_size, file.exists()))

    monkeypatch.setattr("os.fsync", fsync)
    store.save("x", {"a": 1})
    state = file.stat()
    assert on_disk == [(state.st_ino, state.st_size, False)]


def test_files_of_another_user_are_refused(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path, "a")
    store.save("x", {"a": 1})
    owner = (tmp_path / "x.pt").stat().st_uid
    monkeypatch.setattr("os.getuid", lambda: owner + 1)  # a disk on which all files have one owner
    assert store.load("x") == {"a": 1}
    monkeypatch.setattr(Checkpoints, "_owner", lambda self: owner + 1)
    with pytest.raises(UserError, match="belongs to another user"):
        store.load("x")


def test_arrays_numbers_and_containers_come_back_as_they_were(tmp_path):
    store = Checkpoints(tmp_path, "a")
    by_columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    content = {
        "by columns": by_columns,
        (1, "all"): [np.arange(6.0).reshape(2, 3)[:, ::-1], np.float64(0.1), None],
        "empty": (np.array(3), {}, torch.ones(2)),
        np.int64(7): "seven",
    }
    store.save("x", content)
    found = store.load("x")
    np.testing.assert_array_equal(found[1, "all"][0], content[1, "all"][0])
    assert found[1, "all"][1:] == [0.1, None]
    assert found["empty"][0].shape == ()
    assert found[7] == "seven"
    # NumPy writes them so, and a resumed run's file has the same bytes.
    np.testing.assert_array_equal(found["by columns"], by_columns)
    assert found["by columns"].flags.fnc
    assert torch.equal(found["empty"][2], torch.ones(2))


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no file that is always full")
def test_a_full_disk_is_told_as_such_and_leaves_nothing(tmp_path, monkeypatch):
    partial = unfinished(tmp_path / "seed0.pt")
    partial.symlink_to("/dev/full")
    unlinked, unlink = [], pathlib.Path.unlink

    def unlink_but_at_first(path, **options):  # where it removes links
        if unlinked:
            unlink(path, **options)
        unlinked.append(path)

    monkeypatch.setattr(pathlib.Path, "unlink", unlink_but_at_first)
    with pytest.raises(OSError, match="No space left on device"):
        Checkpoints(tmp_path, "mine").save("seed0", {"rows": [1.0]})
    assert list(tmp_path.iterdir()) == []
    assert unlinked == [partial, partial]

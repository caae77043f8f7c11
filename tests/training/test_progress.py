import io
import logging
import sys
from types import SimpleNamespace

import torch

from feature_alignment.training.progress import Progress


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_come_at_intervals_with_step_loss_and_remaining_time(monkeypatch, caplog):
    clock = Clock()
    time = SimpleNamespace(monotonic=clock)
    monkeypatch.setattr("feature_alignment.training.progress.time", time)
    progress = Progress(100, "mnist seed 0", interval=10)
    with caplog.at_level(logging.INFO, logger="feature_alignment.training.progress"):
        for step in range(1, 31):
            clock.now = step * 1.0
            progress.update(step, torch.tensor(1 / step))
        progress.close()
    assert [record.getMessage() for record in caplog.records] == [
        "mnist seed 0: step 10 of 100, loss 0.1, about 90 s left",
        "mnist seed 0: step 20 of 100, loss 0.05, about 80 s left",
        "mnist seed 0: step 30 of 100, loss 0.03333, about 70 s left",
    ]


def test_the_time_left_of_a_resumed_run_is_by_its_own_pace(monkeypatch, caplog):
    clock = Clock()
    monkeypatch.setattr(
        "feature_alignment.training.progress.time", SimpleNamespace(monotonic=clock)
    )
    progress = Progress(100, "run", interval=10)
    clock.now = 50.0
    progress.start_after(40)
    with caplog.at_level(logging.INFO, logger="feature_alignment.training.progress"):
        for step in range(41, 51):
            clock.now += 2
            progress.update(step, torch.tensor(0.5))
    assert caplog.messages == [
        "run: step 45 of 100, loss 0.5, about 110 s left",
        "run: step 50 of 100, loss 0.5, about 100 s left",
    ]


def test_the_time_left_counts_the_measurements_that_are_still_to_come(monkeypatch, caplog):
    clock = Clock()
    monkeypatch.setattr(
        "feature_alignment.training.progress.time", SimpleNamespace(monotonic=clock)
    )
    progress = Progress(100, "run", interval=10)
    progress.start_after(0, [0, 1, 2, 4, 8, 50])  # dense at first
    with caplog.at_level(logging.INFO, logger="feature_alignment.training.progress"):
        for step in range(9):
            if step:
                clock.now += 1
                progress.update(step, torch.tensor(0.5))
            if step in (0, 1, 2, 4):
                clock.now += 10
                progress.measured(10)
    assert caplog.messages == [  # a second for each update, ten for each measurement
        "run: step 1 of 100, loss 0.5, about 149 s left",
        "run: step 2 of 100, loss 0.5, about 138 s left",
        "run: step 3 of 100, loss 0.5, about 127 s left",
        "run: step 5 of 100, loss 0.5, about 115 s left",
    ]


def test_the_bar_of_a_resumed_run_begins_where_it_goes_on(monkeypatch):
    done = []
    bar = SimpleNamespace(update=done.append, close=lambda: None)
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=lambda **options: bar))
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = Progress(10, "run")
    progress.start_after(6)
    progress.update(7, torch.tensor(0.5))
    assert sum(done) == 7


def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch):
    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        progress = Progress(10, "run")
        progress.update(1, torch.tensor(0.5))
        progress.close()
        assert ("run" in stream.getvalue()) is drawn


def test_without_tqdm_there_is_no_bar_and_the_lines_remain(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    progress = Progress(10, "run", interval=0)
    with caplog.at_level(logging.INFO, logger="feature_alignment.training.progress"):
        progress.update(1, torch.tensor(0.5))
    progress.close()
    assert terminal.getvalue() == ""
    assert "run: step 1 of 10" in caplog.text

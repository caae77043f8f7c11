import logging
import re
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import MLP
from feature_alignment.training.batches import RandomCropAndFlip
from feature_alignment.training.checkpoint import Checkpoints, TrainingCheckpoint
from feature_alignment.training.errors import MetricNotFiniteError, TrainingDivergedError
from feature_alignment.training.loop import CHECK_EVERY, train
from feature_alignment.training.losses import mse
from feature_alignment.training.probes import Measurement, Recorder, Row
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import constant_rate, cosine_rate

X = torch.randn(20, 3, dtype=torch.float64, generator=torch_stream(0, "data"))
Y = X[:, :1] * X[:, 1:2]


def new_model():
    return MLP(3, [8], 1, "relu", True, torch_stream(0, "init"), dtype=torch.float64)


def run(model=None, steps=12, lr=0.05, momentum=0.9, data=(X, Y), **options):
    model = new_model() if model is None else model
    options = {"loss": mse, "batches": torch_stream(0, "batches"), **options}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    return model, train(model, *data, optimizer=optimizer, steps=steps, **options)


def same(first, second):
    return all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )


def assert_close(first, second):
    """For trainings that compute the same by other operations."""
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


class NoisyProbe:
    """Does all that a probe may do: gradients, random numbers, mode changes."""

    def __init__(self):
        self.modes = []

    def __call__(self, step, model):
        self.modes.append(any(module.training for module in model.modules()))
        model.train()
        torch.manual_seed(step)
        x = torch.rand(4, 3, dtype=torch.float64)
        model(x).sum().backward()
        norm = model.layers[0].weight.grad.norm().item()
        return Measurement(
            rows=[Row("layers.0", "train", "gradient_norm", norm)],
            arrays={"weight": model.layers[0].weight.detach().numpy()},
        )


def test_mini_batches_are_those_of_the_generator():
    model, _ = run(batch_size=8, steps=7, momentum=0)
    expected = new_model()
    generator = torch_stream(0, "batches")
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.05)
    orders = [torch.randperm(20, generator=generator) for _ in range(3)]
    batches = [part for order in orders for part in (order[:8], order[8:16], order[16:])]
    for index in batches[:7]:
        optimizer.zero_grad()
        ((expected(X[index]) - Y[index]) ** 2).mean().backward()
        optimizer.step()
    assert_close(model, expected)


@pytest.mark.parametrize("batch_size", [None, 8])
def test_the_same_seeds_give_the_same_bits(batch_size):
    (first, record), (second, again) = [
        run(batch_size=batch_size, measure_at=[0, 5, 12], probes=[NoisyProbe()]) for _ in range(2)
    ]
    assert same(first, second)
    assert record.frame().equals(again.frame())
    assert record.arrays.keys() == again.arrays.keys()
    for name in record.arrays:
        np.testing.assert_array_equal(record.arrays[name], again.arrays[name])


def test_measuring_does_not_change_training():
    def with_dropout():
        model = new_model()
        model.layers[0] = nn.Sequential(model.layers[0], nn.Dropout(0.3))
        torch.manual_seed(0)
        return model

    def draws(step, model):
        torch.rand(3)
        return Measurement()

    plain, _ = run(with_dropout(), batch_size=8)
    probed, _ = run(with_dropout(), batch_size=8, measure_at=range(13), probes=[draws])
    assert same(plain, probed)

    plain, _ = run(batch_size=8)
    probe = NoisyProbe()
    probed, _ = run(batch_size=8, measure_at=range(13), probes=[probe])
    assert same(plain, probed)
    assert probe.modes == [False] * 13
    assert all(module.training for module in probed.modules())
    assert all(parameter.grad is None for parameter in probed.parameters())


def test_inputs_of_updates_are_augmented_and_those_of_measurements_are_not():
    model, recorder = run(batch_size=8, steps=7, augment=lambda x: -x, measure_at=[0, 7])
    mirrored, _ = run(batch_size=8, steps=7, data=(-X, Y))
    assert_close(model, mirrored)
    assert recorder.value(7, "loss") == pytest.approx(((model(X) - Y) ** 2).mean().item())
    assert recorder.value(0, "loss") > recorder.value(7, "loss")


def test_the_time_of_measurements_is_told_apart_from_that_of_updates(caplog, monkeypatch):
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("feature_alignment.training.loop.time", clock)

    def slow(step, model):
        nonlocal now
        now += 8
        return Measurement()

    def update(step, model):
        nonlocal now
        now += 0.5

    def metric(f, y):
        nonlocal now
        now += 2
        return f.mean()

    options = {"measure_at": [0, 3], "probes": [slow], "metrics": {"mean": metric}}
    with caplog.at_level(logging.INFO):
        _, recorder = run(after_update=update, progress=Progress(12, "run"), **options)
    assert recorder.seconds["measuring"] == 2 * 8
    assert recorder.seconds["evaluating"] == 2 * 2
    assert recorder.seconds["training"] == 12 * 0.5
    assert not any("seconds" in metric for metric in recorder.frame()["metric"])
    shares = ", ".join(rf"\d+ % {part}" for part in ("training", "evaluating", "measuring"))
    assert re.fullmatch(rf"run: \d+\.\d s: {shares}", caplog.messages[-1])


def test_step_0_is_before_the_first_update_and_step_t_after_update_t():
    _, recorder = run(measure_at=[0, 1, 12], probes=[NoisyProbe()])
    assert sorted(set(recorder.frame()["step"])) == [0, 1, 12]
    np.testing.assert_array_equal(
        recorder.arrays["weight/step0"], new_model().layers[0].weight.detach().numpy()
    )
    for step in (1, 12):
        trained, _ = run(steps=step)
        np.testing.assert_array_equal(
            recorder.arrays[f"weight/step{step}"], trained.layers[0].weight.detach().numpy()
        )


def test_the_training_loss_can_be_that_of_some_samples():
    model, recorder = run(steps=3, measure_at=[3], evaluate_on={"train": (X[:4], Y[:4])})
    expected = mse(model(X[:4]).detach(), Y[:4])
    assert recorder.value(3, "loss") == pytest.approx(float(expected))


def test_without_splits_no_loss_is_recorded():
    assert run(steps=1, measure_at=[0, 1], evaluate_on={})[1].frame().empty


def test_a_metric_called_loss_is_recorded_in_its_place():
    twice = {"loss": lambda f, y: 2 * mse(f, y)}
    model, recorder = run(steps=1, measure_at=[1], metrics=twice)
    assert recorder.value(1, "loss") == pytest.approx(2 * float(mse(model(X).detach(), Y)))
    assert same(model, run(steps=1)[0])


def test_every_metric_is_recorded_on_every_split_from_one_pass():
    passes = []
    model = new_model()
    model.register_forward_hook(lambda module, inputs, f: passes.append(len(f)))
    splits = {"first": (X[:4], Y[:4]), "rest": (X[4:], Y[4:])}
    total = {"total": lambda f, y: (f - y).sum()}
    _, recorder = run(model, steps=1, measure_at=[0, 1], evaluate_on=splits, metrics=total)
    assert passes == [4, 16, 20, 4, 16]  # measured, trained, measured
    found = recorder.frame()
    assert set(zip(found["split"], found["metric"], strict=True)) == {
        (split, metric) for split in splits for metric in ("loss", "total")
    }
    for split, (x, y) in splits.items():
        rest = (model(x) - y).detach()
        assert recorder.value(1, "loss", split=split) == pytest.approx(float((rest**2).mean()))
        assert recorder.value(1, "total", split=split) == pytest.approx(float(rest.sum()))


def test_a_large_gradient_is_scaled_down_to_the_limit():
    start = new_model()
    model, _ = run(steps=1, lr=0.5, momentum=0, largest_gradient=1e-3)
    pairs = zip(model.parameters(), start.parameters(), strict=True)
    moved = torch.cat([(after - before).detach().flatten() for after, before in pairs])
    assert float(moved.norm()) == pytest.approx(0.5 * 1e-3, rel=1e-3)
    free, _ = run(steps=1, lr=0.5, momentum=0, largest_gradient=1e6)
    assert same(free, run(steps=1, lr=0.5, momentum=0)[0])


@pytest.mark.parametrize("schedule", [constant_rate, cosine_rate(4)])
def test_descent_follows_its_formula_and_the_scheduled_rate_is_put_back(schedule):
    model = nn.Linear(3, 1, bias=False).double()
    w = model.weight.detach().clone()
    for t in range(4):
        w = w - 0.1 * schedule(t) * (2 / 20) * (X @ w.T - Y).T @ X
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, X, Y, loss=mse, optimizer=optimizer, steps=4, schedule=schedule)
    torch.testing.assert_close(model.weight.detach(), w)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_the_rate_is_put_back_after_an_error_too():
    model, (x, y) = nn.Linear(3, 1), (torch.ones(4, 3), torch.ones(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def interrupted(step):
        if step == 3:
            raise KeyboardInterrupt
        return 1 / (1 + step)

    with pytest.raises(KeyboardInterrupt):
        train(model, x, y, loss=mse, optimizer=optimizer, steps=5, schedule=interrupted)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert model.weight.grad is None


def test_a_run_can_be_stopped_by_what_was_measured():
    _, recorder = run(
        measure_at=range(13), stop_when=lambda step, record: record.value(step, "loss") < 0.5
    )
    losses = recorder.frame()["value"].tolist()
    assert losses[-1] < 0.5 <= min(losses[:-1])
    assert len(losses) < 13


def test_a_run_can_be_stopped_before_its_first_update():
    model, recorder = run(measure_at=[0, 5], stop_when=lambda step, record: True)
    assert same(model, new_model())
    assert recorder.frame()["step"].tolist() == [0]


def test_divergence_names_step_interval_rate_and_cure():
    with pytest.raises(
        TrainingDivergedError,
        match=rf"between steps 0 and {CHECK_EVERY}: the loss of a batch is .* 1e\+06; use a",
    ):
        run(steps=5 * CHECK_EVERY, lr=1e6, momentum=0)


@pytest.mark.parametrize(
    ("measured", "cut_off_at", "last"),
    [
        (CHECK_EVERY + 20, CHECK_EVERY + 50, CHECK_EVERY + 20),
        (CHECK_EVERY + 20, CHECK_EVERY + 20, CHECK_EVERY + 20),
        (20, CHECK_EVERY + 50, CHECK_EVERY),
    ],
)
def test_a_resumed_training_tells_the_same_divergence(tmp_path, measured, cut_off_at, last):
    diverges_after = CHECK_EVERY + 60

    def message(cut_off_at=None):
        def schedule(step):
            if step == cut_off_at:
                raise KeyboardInterrupt
            return 1 if step < diverges_after else 1e200

        saved = TrainingCheckpoint(Checkpoints(tmp_path, "identity", interval=0), "training")
        with pytest.raises((TrainingDivergedError, KeyboardInterrupt)) as raised:
            run(steps=300, measure_at=[0, measured], schedule=schedule, checkpoint=saved)
        return str(raised.value)

    assert message(cut_off_at=cut_off_at) == ""
    resumed = message()
    assert f"between steps {last} and {2 * CHECK_EVERY}: the loss" in resumed


@pytest.mark.parametrize("diverges_after", [CHECK_EVERY // 2, CHECK_EVERY + 60])
def test_divergence_is_told_since_the_last_check(diverges_after):
    first = diverges_after - diverges_after % CHECK_EVERY
    told = f"between steps {first} and {first + CHECK_EVERY}: the loss"
    with pytest.raises(TrainingDivergedError, match=told):
        run(steps=300, schedule=lambda step: 1 if step < diverges_after else 1e200)


def test_divergence_at_the_last_update_is_noticed():
    model = nn.Linear(3, 1, bias=False)
    data = (1e20 * X.float(), Y.float())
    with pytest.raises(TrainingDivergedError, match="the parameter 'weight' is not finite"):
        run(model, 1, 1e30, 0, data, loss=lambda f, y: (f - y).mean())


def test_one_entry_that_is_not_finite_is_noticed_at_a_measured_step():
    model, large = nn.Linear(3, 1, bias=False), torch.tensor([1e20, 1, 1])
    data = (large * X.float(), Y.float())
    with pytest.raises(TrainingDivergedError, match="steps 0 and 1: the parameter 'weight' is not"):
        run(model, 5, 1e30, 0, data, loss=lambda f, y: (f - y).mean(), measure_at=[1])
    assert model.weight.isfinite().any()


def test_a_loss_that_is_infinite_from_the_start_is_no_divergence():
    data = (1e200 * X, Y)
    with pytest.raises(MetricNotFiniteError, match=r"'loss' of layer 'all' .* is inf at step 0"):
        run(data=data, measure_at=[0])


def test_an_infinite_training_loss_is_divergence_not_a_metric():
    model = nn.Linear(3, 1, bias=False)
    x = X.float().clone()
    x[-1] = 1e30
    batches = torch.Generator().manual_seed(0)
    with pytest.raises(TrainingDivergedError, match=r"by step 1: the loss on 'train' is inf"):
        run(model, 1, 0.1, 0, (x, Y.float()), batch_size=1, batches=batches, measure_at=[1])


def test_a_metric_that_is_not_finite_ends_the_run():
    def probe(step, model):
        return Measurement(rows=[Row("layers.1", "train", "nfc", float("nan"))])

    with pytest.raises(MetricNotFiniteError, match=r"'nfc' of layer 'layers.1' .* nan at step 3"):
        run(measure_at=[3], probes=[probe])


@pytest.mark.parametrize("returned", [[], 0.5, {}, None])
def test_a_probe_that_returns_no_measurement_is_told_what_to_return(returned):
    with pytest.raises(
        TypeError, match=r"probe .* returned a \w+; return a Measurement of feature_"
    ):
        run(measure_at=[0], probes=[lambda step, model: returned])


def test_a_probe_must_not_change_parameters():
    def probe(step, model):
        with torch.no_grad():
            model.layers[0].bias.add_(1)
        return Measurement()

    with pytest.raises(ValueError, match=r"changed the parameter 'layers.0.bias' at step 0"):
        run(measure_at=[0], probes=[probe])


def test_mini_batches_need_a_generator_and_measured_steps_lie_in_the_run():
    for step in (13, -1, 0.5):
        with pytest.raises(
            UserError, match=f"measure_at: step {step} is outside the run's 0 to 12"
        ):
            run(measure_at=[0, step])
    seen = []
    probe = lambda step, model: seen.append(step) or Measurement()  # noqa: E731
    for size in (4, 0):
        with pytest.raises(ValueError, match="batches: missing; give torch_stream"):
            run(batch_size=size, batches=None, measure_at=[0], probes=[probe])
    assert not seen


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -3}, "steps: -3; it must be a whole number of at least 0"),
        ({"largest_gradient": -1}, "largest_gradient: -1; it must be positive"),
        ({"largest_gradient": 0}, "largest_gradient: 0; it must be positive"),
        ({"largest_gradient": float("nan")}, "largest_gradient: nan; it must be positive"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        run(**options)


class Drifting(nn.Module):
    """With a buffer that its state leaves out, and that training changes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 1)
        self.register_buffer("drift", torch.ones(1), persistent=False)

    def forward(self, x):
        if self.training:
            self.drift *= 0.9
        return self.drift * self.layer(x)


def test_buffers_that_the_models_state_leaves_out_are_resumed(tmp_path):
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.ones(8, 1)

    def run(checkpoint=None, after_update=None):
        model = Drifting()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options = {"checkpoint": checkpoint, "after_update": after_update}
        train(model, x, y, loss=mse, optimizer=optimizer, steps=6, **options)
        return model

    def cut_off(step, model):
        if step == 4:
            raise KeyboardInterrupt

    saved = TrainingCheckpoint(Checkpoints(tmp_path, "identity", interval=0), "training")
    with pytest.raises(KeyboardInterrupt):
        run(saved, cut_off)
    resumed, whole = run(saved), run()
    assert torch.equal(resumed.layer.weight, whole.layer.weight)
    assert torch.equal(resumed.drift, whole.drift)


def test_one_generator_for_batches_and_changes_of_inputs_is_refused_with_a_checkpoint(tmp_path):
    model, shared = nn.Conv2d(1, 1, 3), torch.Generator().manual_seed(0)
    saved = TrainingCheckpoint(Checkpoints(tmp_path, "identity"), "training")
    images = torch.randn(4, 1, 5, 5)
    with pytest.raises(ValueError, match="augment: draws from the generator of `batches`"):
        train(
            model,
            images,
            torch.zeros(4, 1, 3, 3),
            loss=mse,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            steps=2,
            batch_size=2,
            batches=shared,
            augment=RandomCropAndFlip(shared),
            checkpoint=saved,
        )


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(("inputs", "targets"), [(20, 12), (12, 20), (0, 0)])
def test_each_input_has_one_target(inputs, targets, batch_size):
    with pytest.raises(ValueError, match=f"x, y: {inputs} inputs and {targets} targets; give"):
        run(data=(X[:inputs], Y[:targets]), batch_size=batch_size)


def test_a_training_that_shares_its_generator_with_an_earlier_one_is_resumed(tmp_path):
    def both(folder, stop=None):
        model, batches = new_model(), torch_stream(0, "batches")
        checkpoints = Checkpoints(folder, "identity", interval=0)
        for name, steps in (("first", 7), ("second", 6)):
            saved, recorder = TrainingCheckpoint(checkpoints, name), Recorder()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            options = {"batches": batches, "batch_size": 6, "loss": mse, "recorder": recorder}
            probes = [stop] if stop and name == "second" else []
            options |= {"probes": probes, "measure_at": {3}, "optimizer": optimizer}
            train(model, X, Y, steps=steps, checkpoint=saved, **options)
            saved.save(steps, {"model": model, "optimizer": optimizer, "recorder": recorder})
        return model

    def stop(step, model):
        raise KeyboardInterrupt

    expected = both(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        both(tmp_path / "b", stop)
    assert same(both(tmp_path / "b"), expected)


def test_a_probe_must_not_change_parameters_by_the_least():
    def probe(step, model):
        with torch.no_grad():
            model.layers[0].weight.mul_(1 + 1e-6)
        return Measurement()

    with pytest.raises(ValueError, match=r"changed the parameter 'layers\.0\.weight'"):
        run(measure_at=[0], probes=[probe])


class Counter:
    """A probe that changes whenever it is called."""

    def __init__(self, metric, by):
        self.metric, self.by, self.count = metric, by, 0

    def __call__(self, step, model):
        self.count += self.by
        return Measurement([Row("all", "train", self.metric, float(self.count))])

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Watched(Progress):
    def __init__(self):
        super().__init__(6, "run")
        self.told = []

    def start_after(self, step, measure_at):
        assert measure_at == set(range(7))
        self.told.append(f"after {step}")

    def measured(self, seconds):
        self.told.append("measured")

    def update(self, step, loss):
        self.told.append(step)

    def close(self):
        self.told.append("closed")


def cut_off(folder, at=None, **options):
    """A training of six updates, cut off before one of them, that says what it went through."""

    def schedule(step):
        if step == at:
            raise KeyboardInterrupt
        return 1

    watched, recorder = Watched(), Recorder()
    saved = TrainingCheckpoint(Checkpoints(folder, "identity", interval=0), "training")
    options |= {"checkpoint": saved, "progress": watched, "recorder": recorder}
    with suppress(KeyboardInterrupt):
        run(steps=6, schedule=schedule, measure_at=range(7), **options)
    return recorder, watched.told


def test_every_probe_goes_on_from_its_own_state(tmp_path):
    def probes():
        return [Counter("ones", 1), Counter("tens", 10)]

    cut_off(tmp_path, 3, probes=probes())
    recorder, _ = cut_off(tmp_path, probes=probes())
    assert [recorder.value(step, "ones") for step in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    assert [recorder.value(step, "tens") for step in range(7)] == [10, 20, 30, 40, 50, 60, 70]


def test_progress_is_told_where_a_training_goes_on_and_when_it_ends(tmp_path):
    m = "measured"
    assert cut_off(tmp_path, 4)[1] == ["after 0", m, 1, m, 2, m, 3, m, 4, m, "closed"]
    assert cut_off(tmp_path)[1] == ["after 4", 5, m, 6, m, "closed"]


def test_updates_are_told_by_their_number():
    told = []
    run(steps=3, after_update=lambda step, model: told.append(step))
    assert told == [1, 2, 3]


def test_a_training_that_is_told_to_end_at_its_last_update_has_ended(tmp_path):
    store = Checkpoints(tmp_path, "identity")
    options = {"checkpoint": TrainingCheckpoint(store, "training"), "measure_at": [3]}
    recorder = None
    with suppress(KeyboardInterrupt):
        _, recorder = run(steps=3, **options, probes=[lambda *_: store.end_soon() or Measurement()])
    assert recorder is not None
    assert list(tmp_path.iterdir()) == []


def test_changes_of_inputs_may_keep_nothing(tmp_path):
    class Mirrored:
        def __init__(self):
            self.last = None

        def __call__(self, x):
            return -x

    saved = TrainingCheckpoint(Checkpoints(tmp_path, "identity"), "training")
    model, _ = run(steps=2, augment=Mirrored(), batches=None, checkpoint=saved)
    assert same(model, run(steps=2, data=(-X, Y))[0])

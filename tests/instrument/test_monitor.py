import copy
import functools
import json
import operator
import pickle
import random
import sys
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import feature_alignment as fa
from emulated_gpu import GPU
from feature_alignment.errors import UserError
from feature_alignment.instrument import MEASURES
from feature_alignment.instrument.arguments import labels_of_outputs
from feature_alignment.instrument.pictures import draw_record
from feature_alignment.instrument.subject import loss_of
from feature_alignment.training.errors import GradientsNotFiniteError
from feature_alignment.training.probes import COLUMNS, Measurement, Recorder, Row
from toys import Toy


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 1, 6, 6, generator=generator)
    return x, (x.mean((1, 2, 3)) > 0).long()


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64, 2),
    )


def trained(data, steps=12, watch=None, every=3, state=None, model=None):
    """A model after training, and everything that could have been disturbed."""
    model = network() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    monitor = None if watch is None else fa.Monitor(model, *data, every=every, measure=watch)
    draws = []
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()
        if monitor is not None:
            monitor.step()
        draws.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    draws += [torch.rand(3), torch.tensor(random.random())]
    return model, optimizer, draws, monitor


def test_training_with_a_monitor_gives_the_same_bits(data):
    random.seed(0)
    plain, plain_optimizer, plain_draws, _ = trained(data)
    random.seed(0)
    model, optimizer, draws, monitor = trained(data, watch=MEASURES)
    assert sorted(monitor.measured) == [0, 3, 6, 9, 12]
    for name, value in plain.state_dict().items():  # buffers too
        assert torch.equal(value, model.state_dict()[name]), name
    for mine, other in zip(plain_draws, draws, strict=True):
        assert torch.equal(mine, other)
    for mine, other in zip(plain_optimizer.state.values(), optimizer.state.values(), strict=True):
        assert torch.equal(mine["momentum_buffer"], other["momentum_buffer"])
    assert [m.training for m in model.modules()] == [m.training for m in plain.modules()]
    assert all(p.requires_grad for p in model.parameters())


def test_gradients_flags_and_modes_are_put_back(data):
    model = network()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    nn.functional.cross_entropy(model(data[0]), data[1]).backward()
    gradients = [p.grad for p in model.parameters()]
    with torch.no_grad(), torch.autocast("cpu"):
        fa.Monitor(model, *data).step()
        assert not torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert [p.grad for p in model.parameters()] == gradients  # the same objects
    assert [p.requires_grad for p in model.parameters()] == [False, *[True] * 5]
    assert (model.training, model[1].training) == (True, False)


def test_what_a_probe_of_ones_own_changes_is_put_back(data):
    def careless(step, model):
        model.requires_grad_(False)
        model.train()(data[0])
        model[1].num_batches_tracked = torch.tensor(7)
        return Measurement()

    model = network()
    model[1].running_var[0] = float("nan")
    model[0].bias.requires_grad_(False)
    buffers = dict(model.named_buffers())
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    fa.Monitor(model, *data, measure=careless).step()
    for name, buffer in model.named_buffers():
        assert buffer is buffers[name]
        assert torch.equal(buffer.nan_to_num(), before[name].nan_to_num())
    assert [p.requires_grad for p in model.parameters()] == [True, False, *[True] * 4]


def test_rows_are_those_of_the_probes_at_the_model_in_evaluation_mode(data):
    model, _, _, monitor = trained(data, watch=("kernel", "features"))
    frame = monitor.frame()
    assert list(frame.columns) == COLUMNS
    last = frame[frame["step"] == 12].set_index(["layer", "metric"])["value"]
    kernel = fa.tangent_kernel(model.eval(), data[0])
    assert last["all", "effective_rank"] == kernel.effective_rank()
    assert last["all", "label_alignment"] == kernel.alignment(data[1])
    found = fa.features(model, data[0], monitor.initial)
    assert last["5", "centred_nfc"] == found["5"].correlations()["centred_nfc"]


@pytest.mark.parametrize("folder", [True, False])
def test_a_record_goes_on_where_it_was(data, tmp_path, folder):
    *_, whole = trained(data, watch=MEASURES)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"every": 3, "measure": MEASURES}
    monitor = fa.Monitor(model, *data, **options)
    for step in range(1, 13):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()
        monitor.step()
        if step == 7:  # not a measured one
            monitor.save(tmp_path)
            state = tmp_path if folder else monitor.state_dict()
            before = monitor.frame()
            monitor = fa.Monitor(model, *data, **options, state=state)
            assert (monitor.at, monitor.measured) == (7, {0, 3, 6})
            assert monitor.frame().equals(before)
    assert monitor.frame().equals(whole.frame())


def test_all_of_a_record_goes_on(data, tmp_path):
    def probe(step, model):
        return Measurement(arrays={"steps": np.full(2, step)}, problems=[f"so at {step}"])

    model = network()
    monitor = fa.Monitor(model, *data, measure=[probe])
    monitor.step()
    monitor.measure(1)  # again: nothing
    assert monitor.problems == [(0, "so at 0"), (1, "so at 1")]
    assert monitor.seconds > 0
    monitor.save(tmp_path)
    again = fa.Monitor(model, *data, measure=[probe], state=tmp_path)
    assert again.problems == monitor.problems
    assert again.seconds == monitor.seconds
    again.step()
    found = {name: array.tolist() for name, array in again.arrays.items()}
    assert found == {f"steps/step{step}": [step, step] for step in range(3)}


@pytest.mark.parametrize(("step", "problems"), [(1, 0), (2, 1)])
def test_one_update_that_is_measured_but_not_told_leaves_no_gap(step, problems):
    model = nn.Linear(3, 2)
    monitor = fa.Monitor(model, torch.ones(5, 3), measure="path")
    with torch.no_grad():
        model.weight.add_(1)
    monitor.measure(step)
    assert len(monitor.problems) == problems
    frame = monitor.frame().query("metric == 'path_length'")
    assert frame["value"].iloc[-1] == pytest.approx(6**0.5)


def test_gaps_of_a_path_are_told_once_however_often_it_is_resumed(data):
    model = network()
    options = {"measure": "path", "every": 4}
    monitor = fa.Monitor(model, *data, **options)
    for step in (1, 3, 4, 8):
        state = monitor.state_dict()
        monitor = fa.Monitor(model, *data, **options, state=state)
        monitor.step(step)
    ((at, problem),) = monitor.problems
    assert at == 4
    assert problem.startswith("the path is too short")


def test_an_earlier_record_without_the_weights_goes_on(data):
    model = network()
    state = fa.Monitor(model, *data, measure=[]).state_dict()
    del state["weights"]
    monitor = fa.Monitor(model, *data, measure=[], state=state)
    monitor.step()
    assert monitor.problems == []


@pytest.mark.parametrize("around", [lambda: torch.autocast("cpu"), torch.inference_mode])
def test_what_is_around_a_measurement_does_not_change_it(data, around):
    model, loss = network(), nn.functional.cross_entropy
    expected = fa.Monitor(model, *data, loss=loss).frame()
    with around():
        found = fa.Monitor(model, *data, loss=loss).frame()
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("steps", "times"), [((None, None), 1), ((3, 4), 0), ((7, 8), 0), ((5, 6), 1)]
)
def test_a_record_of_other_weights_is_told_unless_it_is_of_another_step(data, steps, times):
    model = network()
    monitor = fa.Monitor(model, *data, every=3)
    for _ in range(4):
        monitor.step()
    state = monitor.state_dict()
    assert not fa.Monitor(model, *data, every=3, state=state).step()  # the same weights
    with torch.no_grad():
        model[5].bias += 1
    monitor = fa.Monitor(model, *data, every=3, state=state)
    for step in steps:
        monitor.step(step)
    told = [problem for _, problem in monitor.problems if "other weights" in problem]
    assert len(told) == times


def test_what_goes_wrong_later_is_kept_and_training_goes_on(data, caplog):
    model = network()
    monitor = fa.Monitor(model, *data, every=2)
    with torch.no_grad():
        for parameter in model[5].parameters():
            parameter.fill_(float("nan"))
    assert not monitor.step()
    assert monitor.step()
    assert [step for step, _ in monitor.problems] == [2] * len(monitor.problems)
    assert len(monitor.problems) == 2
    assert "not finite" in monitor.problems[0][1]
    assert "step 2: " in caplog.text
    assert set(monitor.frame()["step"]) == {0}


@pytest.mark.parametrize("first", [0, 5])
def test_what_goes_wrong_at_first_is_raised(data, first):
    with pytest.raises(ValueError, match="draws random numbers"):
        fa.Monitor(nn.Sequential(nn.Flatten(), Noisy(), nn.Linear(36, 2)), *data, first=first)


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def test_a_probe_of_ones_own_and_the_loss_are_recorded(data):
    def largest(step, model):
        return Measurement([Row("all", "train", "largest", float(model[5].weight.detach().max()))])

    monitor = fa.Monitor(
        network(), *data, measure=[largest], every=[1, 5], loss=nn.functional.cross_entropy
    )
    assert [monitor.step() for _ in range(6)] == [True, False, False, False, True, False]
    assert list(monitor.frame()["metric"]) == ["loss", "largest"] * 3


@pytest.mark.parametrize(("every", "only"), [(1, None), (3, None), (3, ["5"])])
def test_the_path_is_of_every_update_with_the_trace_of_measured_steps(data, every, only):
    model = network()
    monitor = fa.Monitor(model, *data, measure="path", every=every, only=only)
    path = fa.UpdatePath(model, lambda m: fa.tangent_trace(m, data[0], only=only), every, only)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()
        monitor.step()
        path(monitor.at, model)
    found = monitor.frame().query("step == 6").set_index("metric")["value"]
    assert found["path_length"] == pytest.approx(path.length, rel=1e-12)
    assert found["path_complexity"] == pytest.approx(path.complexity, rel=1e-12)
    assert monitor.problems == []


def test_updates_that_were_not_told_one_by_one_are_a_problem_of_the_path_told_once(data):
    monitor = fa.Monitor(network(), *data, measure="path", every=4)
    for step in (1, 4, 8):
        monitor.step(step)
    ((at, problem),) = monitor.problems
    assert at == 4
    assert problem.startswith("the path is too short")


def test_a_path_that_diverges_is_a_problem_at_measured_steps_only(data):
    model = network()
    monitor = fa.Monitor(model, *data, measure="path", every=2)
    with torch.no_grad():
        model[5].bias.fill_(float("nan"))
        model[5].weight.fill_(float("nan"))
    for _ in range(4):
        monitor.step()
    assert [at for at, _ in monitor.problems] == [2, 4]
    assert set(monitor.frame()["step"]) == {0}


def test_a_probe_of_ones_own_can_follow_every_update(data):
    class Counted:
        def __init__(self):
            self.told = []

        def after_update(self, step, model):
            if step == 2:
                raise ValueError("no")
            self.told.append((step, model.training))

        def __call__(self, step, model):
            return Measurement([Row("all", "train", "told", float(len(self.told)))])

    own, model = Counted(), network()
    monitor = fa.Monitor(model, *data, measure=own, every=4)
    for _ in range(4):
        monitor.step()
    monitor.step(4)  # again: no update
    assert own.told == [(1, False), (3, False), (4, False)]
    assert model.training
    assert monitor.problems == [(2, "no")]
    assert list(monitor.frame()["value"]) == [0, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": ["kernle"]}, "did you mean 'kernel'"),
        ({"measure": fa.FeatureProbe}, "measure: FeatureProbe is a class; give an instance"),
        ({"measure": ["kernel", fa.FeatureProbe]}, "measure: FeatureProbe is a class"),
        ({"measure": None}, "measure: found None; give names or probes"),
        ({"model": torch.tanh}, "model: a builtin_function.*; give a torch.nn.Module"),
        ({"every": 0}, "at least 1"),
        ({"every": True}, "every: True updates; it must be"),
        ({"first": -1}, "first: -1; it must be a whole number of at least 0"),
        ({"state": 3}, "state: a int; give a folder"),
        ({"loss": lambda f, y: None}, "loss: its result: a NoneType; give a number"),
        ({"every": "often"}, "'geometric'"),
        ({"every": 0.5}, "every: 0.5; give a whole number"),
        ({"loss": nn.functional.mse_loss, "y": None}, "loss: it needs `y`"),
        ({"state": "/nowhere"}, "there is no /nowhere/state.pt"),
        ({"every": [1.5]}, "every: .1.5.; give a whole number"),
        ({"every": [-1]}, "every: step -1; steps count from 0"),
        ({"state": {"initial": {}}}, "state: not a result of `Monitor.state_dict`"),
    ],
)
def test_mistakes_are_one_sentence(data, options, message):
    arguments = {"model": network(), "x": data[0], "y": data[1], **options}
    with pytest.raises(UserError, match=message):
        fa.Monitor(**arguments)


@pytest.mark.parametrize("every", [3, [0, 4], "geometric"])
def test_a_monitor_goes_on_after_it_was_pickled(data, every):
    monitor = fa.Monitor(network(), *data, every=every)
    copied = pickle.loads(pickle.dumps(monitor))
    assert [copied.step() for _ in range(6)] == [monitor.step() for _ in range(6)]
    pd.testing.assert_frame_equal(copied.frame(), monitor.frame())


def test_arguments_that_are_no_tensors_are_passed_on(data):
    class Moded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(36, 2)

        def forward(self, x, mode, words):
            return self.layer(x.flatten(1))

    x, y = data
    given = {"x": x, "mode": object(), "words": ["a", "b"]}
    model = Moded()
    monitor = fa.Monitor(model, given, y)
    again = fa.Monitor(model, given | {"mode": object()}, y, state=monitor.state_dict())
    assert again.frame().equals(monitor.frame())
    with pytest.raises(UserError, match="other samples"):
        fa.Monitor(model, given | {"words": ["c"]}, y, state=monitor.state_dict())


@pytest.mark.parametrize("y", [["a"] * 24, [[1], [1, 2]], [object()] * 24, 1, [], np.ones((0, 2))])
def test_labels_that_are_no_numbers_are_refused(data, y):
    with pytest.raises(UserError, match=r"^y: "):
        fa.Monitor(network(), data[0], y)


def test_steps_are_whole_numbers_and_a_record_is_by_step(data):
    monitor = fa.Monitor(network(), *data, measure="features")
    for step in (20, 10):
        monitor.measure(step)
    assert monitor.frame()["step"].is_monotonic_increasing
    (line, *_) = monitor.plot().axes[0].lines
    assert list(line.get_xdata()) == [0, 10, 20]
    for wrong in (lambda: monitor.measure(1.5), lambda: monitor.step(2.7)):
        with pytest.raises(UserError, match=r"^step: .* give a whole number"):
            wrong()
    with pytest.raises(UserError, match=r"^first: 2\.5; it must be a whole number of at least 0"):
        fa.Monitor(network(), *data, first=2.5)
    with pytest.raises(UserError, match=r"^step: -3; steps count from 0"):
        monitor.measure(-3)
    assert monitor.at == 20  # the record goes on from there


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_models_without_values_are_refused_with_a_cure(data, dtype):
    for model, says in [
        (nn.Linear(6, 2, device="meta"), "'weight' is on the device 'meta', .*; load the weights"),
        (nn.Sequential(nn.LazyLinear(2)), r"'0\.weight' has no shape yet; run the model once"),
    ]:
        with pytest.raises(ValueError, match=f"^parameter {says}"):
            fa.Monitor(model, *data, dtype=dtype)


def test_the_state_of_another_model_is_refused(data):
    state = fa.Monitor(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)), *data).state_dict()
    with pytest.raises(UserError, match="other parameters"):
        fa.Monitor(network(), *data, state=state)


def test_numpy_counts_are_whole_numbers(data):
    monitor = fa.Monitor(network(), *data, measure=["features"], every=np.int64(2))
    assert [monitor.step() for _ in range(4)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("every", "measured"), [(5, {0, 6, 10}), ([1, 7, 40], {0, 2, 8}), ("geometric", {0, 6, 8, 10})]
)
def test_steps_that_are_told_several_at_a_time_leave_none_out(data, every, measured):
    monitor = fa.Monitor(network(), *data, measure=[], every=every)
    assert [step for step in range(2, 12, 2) if monitor.step(step)] == sorted(measured)[1:]
    assert monitor.measured == measured
    assert not monitor.step(4)
    assert not monitor.step(5)
    assert [step for step, text in monitor.problems if "gave a smaller number" in text] == [10]


def test_arrays_are_taken_for_tensors(data):
    options = {"loss": nn.functional.cross_entropy, "measure": ["kernel"]}
    expected = fa.Monitor(network(), *data, every=[1, 3], **options)
    x, y = data[0].double().numpy(), pd.Series(data[1].numpy(), index=range(24, 48))
    found = fa.Monitor(network(), x, y, every=np.array([1, 3]), **options)
    for monitor in (expected, found):
        assert [monitor.step() for _ in range(3)] == [True, False, True]
    pd.testing.assert_frame_equal(found.frame(), expected.frame())
    assert found.problems == []


def test_labels_that_cannot_be_are_refused_at_once(data):
    with pytest.raises(ValueError, match="labels from 0 to 23 for a kernel of 2 outputs"):
        fa.Monitor(network(), data[0], torch.arange(24))


def test_what_needs_no_labels_is_measured_where_an_alignment_is_not_defined(data):
    monitor = fa.Monitor(network(), data[0], torch.zeros(24, dtype=torch.long), every=1)
    assert {"effective_rank", "nfc"} <= {*monitor.frame()["metric"]}
    ((step, problem),) = monitor.problems
    assert step == 0
    assert "all samples have the same label" in problem
    assert "units have died" not in problem


def test_what_is_defined_is_measured_beside_what_is_not(data):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    measure = "features", "adapted"
    with torch.no_grad():
        model[2].weight.zero_()
    y = torch.zeros(6, dtype=torch.long)
    monitor = fa.Monitor(model, torch.randn(6, 3), y, measure=measure)
    assert {*monitor.frame()["metric"]} >= {"adapted_kernel_change", "nfc"}
    assert {*monitor.frame()["layer"]} == {"4", "all"}
    (_, first), (_, second), (_, third) = monitor.problems
    assert first == "after step 0 no gradient reaches 0; its correlations are not defined."
    assert second.startswith("after step 0 no gradient reaches 2, or what it leads to")
    assert third.startswith("at step 0, adapted kernel: the labels are zero once centred")


@pytest.mark.parametrize("measure", ["kernel", "adapted"])
def test_outputs_and_labels_of_one_axis_are_measured(measure):
    layer, x, y = nn.Linear(3, 1), torch.randn(6, 3), torch.randn(6)
    flat = fa.Monitor(nn.Sequential(layer, nn.Flatten(0)), x, y, measure=measure).frame()
    expected = fa.Monitor(nn.Sequential(layer), x, y, measure=measure).frame()
    pd.testing.assert_frame_equal(flat, expected)


class Expanded(nn.Module):
    """A buffer that is one row seen three times, which cannot be written to."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("scale", torch.ones(1, 4).expand(3, 4))

    def forward(self, x):
        return self.layer(x * self.scale[0])


def test_a_record_goes_on_with_a_buffer_that_cannot_be_written_to(tmp_path):
    x, model = torch.randn(6, 4), Expanded()
    fa.Monitor(model, x, measure=["adapted"]).save(tmp_path)
    start = model.layer.weight.detach().clone()
    with torch.no_grad():
        model.layer.weight.add_(1)
    again = fa.Monitor(model, x, measure=["adapted"], state=tmp_path)
    again.measure(1)
    assert torch.equal(model.layer.weight, start + 1)
    assert torch.equal(again.initial["layer.weight"], start)


class Counting:
    """A probe with a state of NumPy's."""

    def __init__(self):
        self.seen = np.zeros(1)

    def __call__(self, step, model):
        self.seen += 1
        return Measurement([Row("all", "train", "seen", float(self.seen[0]))])

    def state_dict(self):
        return {"seen": self.seen, "last": np.float64(1.5)}

    def load_state_dict(self, state):
        self.seen = np.array(state["seen"])


def test_a_probes_state_of_numpy_comes_back(data, tmp_path):
    model = network()
    fa.Monitor(model, *data, measure=[Counting()]).save(tmp_path)
    again = fa.Monitor(model, *data, measure=[Counting()], state=tmp_path)
    again.measure(1)
    assert list(again.frame()["value"]) == [1.0, 2.0]


@pytest.mark.parametrize("content", [b"", b"cut", None])
def test_a_damaged_record_is_told_as_such(data, tmp_path, content):
    monitor = fa.Monitor(network(), *data, measure=["features"])
    monitor.save(tmp_path)
    whole = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(whole[:-9] if content is None else content)
    with pytest.raises(UserError, match=r"state\.pt is damaged, or no record"):
        fa.Monitor(network(), *data, measure=["features"], state=tmp_path)


def test_an_interrupted_measurement_can_be_repeated(data):
    calls = []

    def interrupted(step, model):
        calls.append(step)
        if calls == [0, 1]:
            raise KeyboardInterrupt
        return Measurement()

    monitor = fa.Monitor(network(), *data, measure=["features", interrupted])
    with pytest.raises(KeyboardInterrupt):
        monitor.measure(1)
    monitor.measure(1)
    assert monitor.problems == []
    assert set(monitor.frame()["step"]) == {0, 1}


@pytest.mark.parametrize("again", [("5", "0"), {"0", "5"}])
def test_what_is_selected_counts_and_not_in_which_order(data, again):
    model = network()
    state = fa.Monitor(model, *data, measure=["features"], only=["0", "5"]).state_dict()
    assert fa.Monitor(model, *data, measure=["features"], only=again, state=state).at == 0
    with pytest.raises(UserError, match="other samples"):
        fa.Monitor(model, *data, measure=["features"], only=["0"], state=state)


def test_the_state_of_another_record_is_refused(data):
    model = network()
    state = fa.Monitor(model, *data, measure=["features"]).state_dict()
    with pytest.raises(UserError, match="a record of features"):
        fa.Monitor(model, *data, measure=["kernel"], state=state)
    with pytest.raises(UserError, match="other samples"):
        fa.Monitor(model, data[0] + 1, data[1], measure=["features"], state=state)
    for option in ({"only": "trainable"}, {"loss": nn.functional.cross_entropy}):
        with pytest.raises(
            UserError, match="of another `output`, `only`, `dtype`, `split` or `loss`"
        ):
            fa.Monitor(model, *data, measure=["features"], **option, state=state)
    del state["loss"]  # as an earlier version wrote it
    assert fa.Monitor(model, *data, measure=["features"], state=state).at == 0


def test_models_with_methods_of_their_own_for_parameters_are_measured(data):
    class Own(nn.Sequential):
        def zero_grad(self):
            raise AssertionError

        def parameters(self, recurse=True):
            return self[-1].parameters(recurse)

    model = Own(*network())
    monitor = fa.Monitor(model, *data, measure=["kernel"])
    assert monitor.frame().equals(fa.Monitor(network(), *data, measure=["kernel"]).frame())


def test_an_autocast_that_accelerate_puts_around_the_forward_pass_is_left_out(data):
    """As `Accelerator(mixed_precision="bf16").prepare(model)` does; other wrappers stay."""

    class ConvertOutputsToFp32:
        def __init__(self, forward):
            self.forward = torch.autocast("cpu", dtype=torch.bfloat16)(forward)

    def converting(forward):
        wrapper = ConvertOutputsToFp32(forward)
        forward = functools.partial(wrapper.forward)
        forward.__wrapped__ = wrapper
        return forward

    model, plain, tripled = network(), network(), network()
    tripled._original_forward = tripled.forward
    tripled.forward = lambda x: 3 * tripled._original_forward(x)
    kernels = [fa.tangent_kernel(m.eval(), data[0]).total for m in (tripled, plain)]
    torch.testing.assert_close(kernels[0], 9 * kernels[1])
    model._original_forward = model.forward
    model.forward = converting(model.forward)
    wrapped = model.forward
    monitor = fa.Monitor(
        model, *data, measure=["kernel", "features"], loss=nn.functional.cross_entropy
    )
    expected = fa.Monitor(
        plain, *data, measure=["kernel", "features"], loss=nn.functional.cross_entropy
    )
    assert monitor.frame().equals(expected.frame())
    assert model.forward is wrapped
    assert model.eval()(data[0]).dtype == torch.bfloat16


def test_geometric_steps_are_those_of_the_papers(data):
    monitor = fa.Monitor(network(), *data, measure=["features"], every="geometric")
    due = [step for step in range(1, 14) if monitor.step()]
    assert due == [5, 6, 7, 8, 10, 11, 13]
    assert [monitor.step(step) for step in (20_000, 20_001, 10**8)] == [True, False, True]


def test_the_picture_leaves_the_settings_of_matplotlib(data):
    matplotlib = pytest.importorskip("matplotlib")
    *_, monitor = trained(data, watch=("features",))
    with matplotlib.rc_context({"font.size": 14, "image.cmap": "gray"}):
        before = dict(matplotlib.rcParams)
        monitor.plot()
        assert dict(matplotlib.rcParams) == before


def test_the_picture_has_a_panel_for_each_quantity(data):
    *_, monitor = trained(data, watch=("kernel", "features"))
    titles = [ax.get_title() for ax in monitor.plot().axes]
    assert "Effective rank of the tangent kernel" in titles
    assert "Centred neural feature correlation (C-NFC)" in titles


def test_far_steps_have_an_axis_that_no_curve_crosses_the_break_of():
    steps = [0, 1, 3, 10, 100]
    rows = [
        {"step": s, "layer": "all", "split": "train", "metric": "loss", "value": 1 / (1 + s)}
        for s in steps
    ]
    (ax,) = draw_record(pd.DataFrame(rows)).axes
    assert ax.get_xscale() == "symlog"
    assert [list(line.get_xdata()) for line in ax.lines[:2]] == [[0], [1, 3, 10, 100]]
    (ax,) = draw_record(pd.DataFrame(rows[:3])).axes
    assert ax.get_xscale() == "linear"
    assert [list(line.get_xdata()) for line in ax.lines] == [[0, 1, 3]]


def test_the_loss_is_of_outputs_in_the_models_own_shape():
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))  # outputs (n,)
    x, y = torch.randn(5, 3), torch.randn(5)
    monitor = fa.Monitor(model, x, y, measure=(), loss=nn.functional.mse_loss)
    expected = nn.functional.mse_loss(model(x), y).item()
    assert monitor.frame()["value"].item() == pytest.approx(expected)
    tokens = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7), nn.Unflatten(0, (-1,)))
    x, y = torch.randint(7, (2, 3, 6))

    def per_token(f, labels):  # (n, t, classes)
        return nn.functional.cross_entropy(f.flatten(0, 1), labels.flatten())

    monitor = fa.Monitor(tokens, x, y, measure=(), loss=per_token)
    expected = per_token(tokens(x), y).item()
    assert monitor.frame()["value"].item() == pytest.approx(expected)


def test_a_loss_may_have_an_axis(data):
    loss = nn.functional.cross_entropy
    monitor = fa.Monitor(network(), *data, measure=(), loss=lambda f, y: loss(f, y)[None])
    expected = loss(network().eval()(data[0]), data[1]).item()
    assert monitor.frame()["value"].item() == pytest.approx(expected)


def test_a_gradient_that_is_not_finite_at_first_is_raised():
    class Root(nn.Linear):
        def forward(self, x):
            return super().forward(x).square().sum(1, keepdim=True).sqrt()

    model = Root(3, 2, bias=False)
    with pytest.raises(GradientsNotFiniteError):
        fa.Monitor(model, torch.zeros(4, 3), measure="kernel")
    monitor = fa.Monitor(model, torch.ones(4, 3), measure="kernel")
    nn.init.zeros_(model.weight)
    monitor.step()
    assert monitor.problems[-1][0] == 1


def test_a_loss_that_pytorch_would_broadcast_is_refused():
    x, y = torch.randn(5, 3), torch.randn(5)
    with pytest.raises(UserError, match=r"loss: outputs of shape \(5, 1\) and y of shape \(5,\)"):
        fa.Monitor(nn.Linear(3, 1), x, y, measure=(), loss=nn.functional.mse_loss)


def test_held_out_samples_are_called_so(data):
    options = {"measure": MEASURES, "split": "test"}
    loss = nn.functional.cross_entropy
    monitor = fa.Monitor(network(), *data, loss=loss, **options)
    assert set(monitor.frame()["split"]) == {"test"}
    state = monitor.state_dict()
    with pytest.raises(UserError, match=r"or of another .* `split` or `loss`"):
        fa.Monitor(network(), *data, loss=loss, measure=options["measure"], state=state)
    with pytest.raises(UserError, match="split: found None; give a name"):
        fa.Monitor(network(), *data, split=None)


def test_splits_have_lines_of_their_own(data):
    x, y = data
    batches = {"seen": fa.Batch(x[:12], y[:12]), "unseen": fa.Batch(x[12:], y[12:])}
    monitor = fa.Monitor(network(), x, measure=[fa.TangentKernelProbe(batches)])
    monitor.step()
    picture = monitor.plot()
    assert [line.get_linestyle() for line in picture.axes[0].lines] == ["-", "--"]
    assert all(list(line.get_xdata()) == [0, 1] for line in picture.axes[0].lines)


def test_the_models_own_layer_of_an_earlier_record_goes_on():
    recorder = Recorder()
    recorder.load_state_dict(
        {"values": {(0, "", "train", "nfc"): 0.5}, "arrays": {}, "seconds": {}}
    )
    recorder.record(1, Measurement([Row("", "train", "nfc", 0.6)]))
    assert recorder.frame()["layer"].tolist() == ["(model)", "(model)"]
    assert recorder.value(1, "nfc", layer="") == 0.6


def test_a_warning_of_a_loss_that_is_about_something_else_is_not_taken_for_it(data):
    def loss(f, y):
        warnings.warn("a remark", stacklevel=1)
        return nn.functional.cross_entropy(f, y)

    with pytest.warns(UserWarning, match="a remark"):
        assert len(fa.Monitor(network(), *data, measure=(), loss=loss).frame()) == 1


def test_parameters_of_the_model_itself_have_a_layer_with_a_name():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 3))

        def forward(self, x):
            return x @ self.weight.T

    monitor = fa.Monitor(Scaled(), torch.randn(6, 3), torch.randn(6, 2))
    assert set(monitor.frame()["layer"]) == {"all", "(model)"}


def test_a_layer_that_cannot_be_measured_is_told_once(caplog):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift, self.head = nn.Parameter(torch.randn(1, 3)), nn.Linear(3, 2)

        def forward(self, x):
            return self.head(torch.tanh(x + self.shift))

    monitor = fa.Monitor(Shifted(), torch.randn(6, 3), measure="features")
    for _ in range(3):
        monitor.step()
    assert [record.getMessage() for record in caplog.records] == [
        "layer 'shift' does not multiply a layer's inputs (as if weights are computed from it, by "
        "weight normalisation), its part in the outputs is hidden, or no sample reaches it; no "
        "NFM or AGOP is computed for it."
    ]


def test_labels_that_are_not_one_for_each_sample_are_refused():
    with pytest.raises(ValueError, match="y: 12 labels for 6 samples"):
        fa.Monitor(nn.Linear(3, 2), torch.randn(6, 3), torch.arange(12) % 2)


def test_a_layer_without_an_alignment_does_not_end_the_measurement():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.last = nn.Linear(3, 2), nn.ParameterList([torch.zeros(2)])

        def forward(self, x):
            return self.net(x) + self.last[0]

    y = torch.tensor([0, 1, 0, 1, 1, 0])
    monitor = fa.Monitor(Biased(), torch.randn(6, 3), y, measure=("kernel",))
    assert not monitor.problems
    rows = monitor.frame()
    assert set(rows.loc[rows["metric"] == "label_alignment", "layer"]) == {"all", "net"}


def test_a_scalar_input_has_features():
    model = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
    rows = fa.Monitor(model, torch.randn(6, 1), measure=("features",)).frame()
    found = rows.loc[rows["layer"] == "0", "metric"]
    assert "nfc" in set(found)
    assert "nfc_mean_subtracted" not in set(found)


def test_nothing_that_goes_wrong_later_ends_a_training():
    def full(step, model):
        if step:
            raise RuntimeError("CUDA out of memory")
        return Measurement()

    monitor = fa.Monitor(nn.Linear(3, 2), torch.randn(6, 3), measure=(full,))
    monitor.step()
    assert monitor.problems == [(1, "CUDA out of memory")]


def test_the_output_is_chosen_by_any_callable_and_labels_may_be_arrays(tmp_path):
    class First:
        def __call__(self, returned):
            return returned[0]

    class Two(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    model, x, y = Two(3, 2), torch.randn(6, 3), torch.arange(6) % 2
    monitor = fa.Monitor(model, x, y.numpy(), measure=("kernel",), output=First())
    monitor.save(tmp_path)
    options = {"measure": ("kernel",), "output": First(), "state": tmp_path}
    assert fa.Monitor(model, x, y.numpy(), **options).at == 0
    with pytest.raises(UserError, match="other samples or labels"):
        fa.Monitor(model, x, 1 - y.numpy(), **options)


def test_samples_stay_what_they_were_when_their_memory_is_used_again():
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 2), torch.randn(6, 3), torch.arange(6) % 2
    monitor = fa.Monitor(model, x, y, measure="kernel")
    x.zero_()
    y.zero_()
    monitor.measure(1)
    frame = monitor.frame().set_index(["step", "metric"])["value"]
    assert frame[0].to_dict() == frame[1].to_dict()


def test_a_model_on_the_gpu_is_measured_there(data, emulation, tmp_path):
    x, y = data

    def watched(model, x, y, own):
        options = {"every": 2, "measure": MEASURES, "loss": loss}
        monitor = fa.Monitor(model, *own, **options)
        groups = fa.groups_by_layer(model, {"0": 2.0, "4": 1.0})
        optimizer = fa.SpeedLimited(groups, lr=0.1)
        for step in range(1, 7):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            monitor.step()
            if step == 3:
                monitor.save(tmp_path)
                monitor = fa.Monitor(model, *own, **options, state=tmp_path)
        return monitor.frame()

    loss, model = nn.functional.cross_entropy, network()
    del model[4]  # the dropout, which draws otherwise on a GPU
    with emulation():
        # Samples and labels may be NumPy's.
        own = (x.numpy(), y.numpy())
        found = watched(copy.deepcopy(model).to(GPU), x.to(GPU), y.to(GPU), own)
    expected = watched(model, x, y, data)
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-4, atol=1e-6)


def test_a_record_of_own_metrics_alone_is_drawn(tmp_path):
    class Own:
        def __call__(self, step, model):
            return Measurement(rows=[Row("all", "train", "mine", float(step))])

    monitor = fa.Monitor(nn.Linear(3, 2), torch.ones(4, 3), measure=[Own()])
    assert monitor.plot().axes[0].get_title() == "mine"


def test_layers_whose_names_begin_with_an_underscore_are_in_the_legend():
    model = nn.Module()
    model._a, model._b = nn.Linear(3, 4), nn.Linear(4, 2)
    model.forward = lambda x: model._b(torch.tanh(model._a(x)))
    picture = fa.Monitor(model, torch.randn(4, 3), measure="features").plot()
    assert {text.get_text() for text in picture.legends[0].get_texts()} >= {" _a", " _b"}


def test_of_many_layers_the_first_and_the_last_by_depth_are_named():
    layers = [f"{i}.linear" for i in range(14)]
    ordered = ["all", *layers, "0.linear.weight[1]"]  # a part of the first, measured after all
    rows = [
        {"step": step, "layer": layer, "split": "train", "metric": "nfc", "value": 0.5}
        for step in (0, 1)
        for layer in ordered
    ]
    (legend,) = draw_record(pd.DataFrame(rows)).legends
    assert [text.get_text() for text in legend.get_texts()] == ["all", "0.linear", "13.linear"]
    assert legend.get_title().get_text().startswith("15 layers")


def test_axes_have_room_for_what_is_not_usual():
    rows = [
        {"step": step, "layer": "all", "split": "train", "metric": metric, "value": value}
        for metric, values in {"largest_eigenvalue": (2.0, 0.0), "nfc": (0.5, -0.3)}.items()
        for step, value in enumerate(values)
    ]
    eigenvalue, nfc = draw_record(pd.DataFrame(rows)).axes
    assert eigenvalue.get_yscale() == "linear"
    assert nfc.get_ylim() == (-0.3, 1.02)
    rows[1]["value"] = 1.0
    assert draw_record(pd.DataFrame(rows)).axes[0].get_yscale() == "log"


def test_names_are_not_taken_for_mathematics():
    name = r"$\frac$"
    row = {"step": 0, "split": "train", "metric": name, "value": 0.5}
    rows = [{**row, "layer": layer} for layer in (name, "other")]
    picture = draw_record(pd.DataFrame(rows))
    picture.canvas.draw()
    assert picture.legends[0].get_texts()[0].get_text() == r"\$\frac\$"


def test_panels_of_a_record_have_the_same_steps(data):
    *_, monitor = trained(data, watch=("features",))  # C-NFC begins after the first step
    assert len({ax.get_xlim() for ax in monitor.plot().axes if ax.lines}) == 1


@pytest.mark.parametrize("missing", ["matplotlib", "seaborn"])
def test_a_plot_without_what_draws_it_names_the_extra(monkeypatch, missing):
    monitor = fa.Monitor(nn.Linear(3, 1), torch.randn(4, 3), measure="features")
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)  # as where it is not installed
    with pytest.raises(ImportError, match=r"plot needs .*'feature-alignment\[plots\]'"):
        monitor.plot()


def test_two_threads_that_measure_leave_modes_and_gradients(data):
    model = network().train()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    monitors = [fa.Monitor(model, *data, measure=["kernel"]) for _ in range(2)]
    threads = [threading.Thread(target=monitor.step) for monitor in monitors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(monitor.measured == {0, 1} for monitor in monitors)
    assert model.training
    assert all((parameter.grad == 1).all() for parameter in model.parameters())


def test_parameters_that_are_released_later_are_not_measured():
    """Both factors of the path and all kernels are of the parameters that were trainable."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, y = torch.randn(6, 3).double(), torch.arange(6) % 2
    measure = ("kernel", "adapted", "path")
    records = []
    for only in ("trainable", ["2"]):
        other = copy.deepcopy(model)
        other[0].requires_grad_(False)
        monitor = fa.Monitor(other, x, y, only=only, measure=measure)
        optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
        for t in range(4):
            if t == 2:
                other[0].requires_grad_(True)
                state = monitor.state_dict()
                monitor = fa.Monitor(other, x, y, only=only, measure=measure, state=state)
            optimizer.zero_grad()
            nn.functional.cross_entropy(other(x), y).backward()
            optimizer.step()
            monitor.step()
        assert not monitor.problems
        records.append(monitor.frame())
    pd.testing.assert_frame_equal(*records)


def test_the_change_of_the_kernel_is_its_cosine_with_the_first(data):
    model, _, _, monitor = trained(data, watch="kernel")
    start = fa.tangent_kernel(model.eval(), data[0], parameters=monitor.initial).total
    found = monitor.frame().query("metric == 'kernel_change'").set_index("step")["value"]
    assert found[0] == pytest.approx(1)
    buffers = dict(model.named_buffers())  # of the last step; the first kernel has the first's
    for name, value in monitor.state_dict()["buffers"].items():
        buffers[name].copy_(value)
    start = fa.tangent_kernel(model, data[0], parameters=monitor.initial).total
    torch.testing.assert_close(monitor.state_dict()["probes"][0]["initial"]["train"], start)
    assert found[12] < 0.99
    resumed = fa.Monitor(model, *data, every=3, measure="kernel", state=monitor.state_dict())
    resumed.measure(13)
    kernel = fa.tangent_kernel(model, data[0]).total
    last = resumed.frame().query("metric == 'kernel_change' and step == 13")["value"].item()
    assert last == pytest.approx(fa.kernel_alignment(kernel, start), abs=1e-6)


def test_labels_may_have_the_shape_of_the_outputs_or_be_classes_of_the_last_axis():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    tokens = torch.randint(7, (5, 3))
    one_hot = nn.functional.one_hot(tokens, 7)
    found = [
        fa.Monitor(model, tokens, y, measure=("kernel", "adapted")).frame()
        for y in (one_hot.flatten(1), one_hot, tokens)
    ]
    pd.testing.assert_frame_equal(found[0], found[1])
    pd.testing.assert_frame_equal(found[0], found[2])
    with pytest.raises(UserError, match=r"y: class numbers from -100 to .*; give those of the 7"):
        fa.Monitor(model, tokens, tokens - 100, measure="kernel")
    with pytest.raises(UserError, match=r"y: one number for each sample, for outputs of .*5, 3, 7"):
        fa.Monitor(model, tokens, tokens[:, 0], measure="kernel")

    def last(f, y):
        return nn.functional.cross_entropy(f[:, -1], y)

    fa.Monitor(model, tokens, tokens[:, 0], measure="features", loss=last)


def test_a_parameter_that_goes_ends_the_path_and_is_told(data):
    model = network()
    monitor = fa.Monitor(model, *data, measure="path")
    prune.random_unstructured(model[0], "weight", amount=0.4)
    monitor.step()
    assert "parameter '0.weight' is gone" in monitor.problems[0][1]


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("mse", "loss: found 'mse'; give a function"),
        (nn.CrossEntropyLoss, "loss: found .*CrossEntropyLoss.*; give a function"),
        (nn.CrossEntropyLoss(reduction="none"), r"loss: it gives values of shape \(24,\)"),
    ],
)
def test_what_is_no_loss_is_refused(data, loss, says):
    with pytest.raises(UserError, match=says):
        fa.Monitor(network(), *data, measure="kernel", loss=loss)


def test_a_model_without_layers_to_measure_is_told_of_the_kernel():
    weight = nn.Parameter(torch.ones(4, 2))
    model = Toy(lambda m, x: torch.tanh(x @ m.weight) @ m.weight.T)
    model.weight = weight
    with pytest.raises(ValueError, match=r"no layer to measure: .*; measure='kernel' needs"):
        fa.Monitor(model, torch.randn(3, 4))
    assert len(fa.Monitor(model, torch.randn(3, 4), measure="kernel").frame())


def test_arrays_of_probes_can_be_read(data):
    def probe(step, model):
        return Measurement(arrays={"mean": np.array([step])})

    monitor = fa.Monitor(network(), *data, measure=probe)
    monitor.step()
    assert {name: array.tolist() for name, array in monitor.arrays.items()} == {
        "mean/step0": [0],
        "mean/step1": [1],
    }


def of_precision(data, training, state=None, steps=(), **options):
    """A model of a precision after training, and its record."""
    model, x = network().to(training), data[0].to(training)
    if state is not None:
        model.load_state_dict(state["model"])
        options["state"] = state["record"]
    measure = (*MEASURES, Squares())
    loss = nn.functional.cross_entropy
    monitor = fa.Monitor(model, x, data[1], every=2, measure=measure, loss=loss, **options)
    for _ in steps:
        torch.manual_seed(monitor.at)
        grads = torch.autograd.grad(loss(model(x).float(), data[1]), list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), grads, strict=True):
                parameter -= 0.1 * gradient
        monitor.step()
    return model, monitor


class Squares:
    """A probe that tells the precision it is given, and keeps nothing."""

    def __call__(self, step, model):
        (parameter, *_) = model.parameters()
        return Measurement([Row("", "train", "bits", float(torch.finfo(parameter.dtype).bits))])


def test_half_precision_is_measured_in_a_copy(data):
    model, monitor = of_precision(data, torch.bfloat16, steps=range(4), dtype=torch.float32)
    assert not monitor.problems
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    frame = monitor.frame()
    assert set(frame.query("metric == 'bits'")["value"]) == {32}
    single = copy.deepcopy(model).float().eval()
    x = data[0].bfloat16().float()
    last = frame.query("step == 4 and layer == 'all'").set_index("metric")["value"]
    kernel = fa.tangent_kernel(single, x)
    assert last["label_alignment"] == pytest.approx(kernel.alignment(data[1]))
    loss = nn.functional.cross_entropy(single(x), data[1]).item()
    assert last["loss"] == pytest.approx(loss)
    assert last["path_length"] > 0

    half, first = of_precision(data, torch.bfloat16, steps=range(2), dtype=torch.float32)
    state = {"model": half.state_dict(), "record": first.state_dict()}
    _, resumed = of_precision(data, torch.bfloat16, state, range(2), dtype=torch.float32)
    pd.testing.assert_frame_equal(resumed.frame(), frame)
    with pytest.raises(UserError, match="state: it is a record on other samples or labels"):
        of_precision(data, torch.bfloat16, state, dtype=torch.float64)


@pytest.mark.parametrize(
    ("dtype", "inputs", "says"),
    [
        (torch.float16, None, r"are torch\.float16; .*, in a Monitor by dtype=torch\.float32"),
        (torch.float64, None, r"^x: .*are torch\.float64; give x\.to\(torch\.float64\)\.$"),
        (torch.float32, "pixels", r"^x: the model's forward\(\) takes other arguments"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_one_sentence(data, dtype, inputs, says):
    with pytest.raises(ValueError, match=says):
        fa.Monitor(network().to(dtype), *data, inputs=inputs)


def test_another_precision_leaves_the_training_and_adds_digits(data):
    plain, single = of_precision(data, torch.float32, steps=range(4))
    model, double = of_precision(data, torch.float32, steps=range(4), dtype=torch.float64)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    found = [m.frame().query("metric != 'bits'")["value"].to_numpy() for m in (single, double)]
    np.testing.assert_allclose(*found, rtol=2e-3, atol=1e-4)
    assert not np.array_equal(*found)


class Uncopied(nn.Linear):
    def __deepcopy__(self, memo):
        raise RuntimeError("only one of a kind")


@pytest.mark.parametrize(
    ("model", "dtype", "says"),
    [
        (nn.Linear(3, 1), "float32", "dtype: 'float32'; give torch.float32 or"),
        (nn.Linear(3, 1), torch.int64, r"dtype: torch\.int64; give torch.float32 or"),
        (Uncopied(3, 1), torch.float64, r"dtype: the model cannot be copied \(only one of a kind"),
    ],
)
def test_what_is_no_precision_is_refused(model, dtype, says):
    with pytest.raises(UserError, match=says):
        fa.Monitor(model, torch.ones(2, 3), dtype=dtype)


class Scaled(nn.Module):
    """With a setting, complex numbers, and a buffer that comes later."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.scale = nn.Linear(4, 6), nn.Linear(6, 3), 0.1
        self.register_buffer("turn", torch.polar(torch.ones(3), torch.arange(3.0)))
        self.register_buffer("seen", None)

    def forward(self, x):
        z = torch.view_as_complex(torch.tanh(self.scale * self.first(x)).view(-1, 3, 2))
        return self.last(torch.view_as_real(z * self.turn).flatten(1).to(x.dtype))


def test_a_copy_follows_all_that_changes():
    def scale(model):
        model.scale = 3.0

    def widen(model):
        model.last = nn.Linear(6, 5)

    def remember(model):
        model.seen = torch.ones(2)

    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for change in (scale, widen, remember):
        model = Scaled()
        monitor = fa.Monitor(model, x, measure="kernel", dtype=torch.float64)
        change(model)
        monitor.step()
        found = monitor.frame().query("step == 1").set_index("metric")["value"]
        kernel = fa.tangent_kernel(copy.deepcopy(model).double(), x.double())
        assert found["effective_rank"] == pytest.approx(kernel.effective_rank(), rel=1e-10)
        told = [problem for _, problem in monitor.problems]
        larger = ["at step 1: the kernel has another size than the first one"]
        assert told == (larger if change is widen else [])


def test_a_model_that_can_no_longer_be_copied_is_a_problem():
    model = nn.Linear(3, 1)
    monitor = fa.Monitor(model, torch.ones(2, 3), measure="kernel", dtype=torch.float64)
    model.lock = threading.Lock()
    assert monitor.step()
    step, problem = monitor.problems[-1]
    assert step == 1
    assert "dtype: the model cannot be copied" in problem


def test_a_record_without_a_first_kernel_has_no_change_of_it(data):
    _, _, _, monitor = trained(data, watch="kernel")
    state = monitor.state_dict()
    state["probes"] = [{}]  # as in older records
    resumed = fa.Monitor(monitor.model, *data, every=3, measure="kernel", state=state)
    resumed.measure(13)
    assert "kernel_change" not in set(resumed.frame().query("step == 13")["metric"])


@pytest.mark.parametrize("kind", [np.uint16, np.int64, ">i8"])
def test_labels_of_tokens_may_be_of_any_integer_type(kind):
    torch.manual_seed(0)
    model, tokens = nn.Embedding(7, 7), torch.randint(7, (5, 3))
    expected = fa.Monitor(model, tokens, tokens, measure="kernel").frame()
    found = fa.Monitor(model, tokens, tokens.numpy().astype(kind), measure="kernel").frame()
    pd.testing.assert_frame_equal(found, expected)


def test_a_single_output_has_no_classes():
    x = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))
    model, counts = nn.Linear(2, 1), torch.arange(15).view(5, 3)
    frames = [fa.Monitor(model, x, y, measure="kernel").frame() for y in (counts, counts.float())]
    pd.testing.assert_frame_equal(*frames)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"loss": nn.CrossEntropyLoss()}, {"loss": nn.CrossEntropyLoss(label_smoothing=0.9)}),
        (
            {"loss": nn.CrossEntropyLoss(torch.ones(2))},
            {"loss": nn.CrossEntropyLoss(torch.tensor([9.0, 1.0]))},
        ),
        (
            {"loss": functools.partial(nn.functional.cross_entropy, label_smoothing=0.5)},
            {"loss": functools.partial(nn.functional.cross_entropy)},
        ),
        (
            {"output": functools.partial(operator.mul, 1.0)},
            {"output": functools.partial(operator.mul, 2.0)},
        ),
        (
            {"output": functools.partial(torch.mul, other=1.0)},
            {"output": functools.partial(torch.narrow, dim=1, start=0, length=2)},
        ),
    ],
)
def test_settings_of_losses_and_outputs_count(data, first, again):
    options = {"measure": ("kernel",), "every": 1}
    state = fa.Monitor(network(), *data, **first, **options).state_dict()
    assert fa.Monitor(network(), *data, **copy.deepcopy(first), **options, state=state)
    with pytest.raises(ValueError, match="state: it is a record on other samples or labels"):
        fa.Monitor(network(), *data, **again, **options, state=state)


@pytest.mark.parametrize("every", ["", b"geometric", "often"])
def test_steps_are_no_other_words_than_geometric(data, every):
    with pytest.raises(ValueError, match=r"every: .*; give a whole number, steps, or 'geometric'"):
        fa.Monitor(network(), *data, every=every)


def test_what_is_measured_is_named_or_a_probe(data):
    with pytest.raises(ValueError, match="measure: found 3; give names or probes"):
        fa.Monitor(network(), *data, measure=["kernel", 3])


@pytest.mark.parametrize(
    ("error", "told"),
    [(KeyError("b"), "raised KeyError 'b'"), (AssertionError(), "raised AssertionError")],
)
def test_a_failure_that_says_little_is_told_with_its_probe(data, error, told):
    def mine(step, model):
        if step:
            raise error
        return Measurement()

    monitor = fa.Monitor(network(), *data, measure=mine)
    monitor.step()
    assert monitor.problems == [(1, f"mine {told}")]


def test_a_record_is_saved_in_a_folder(data, tmp_path):
    monitor = fa.Monitor(network(), *data, measure=("kernel",))
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"folder: .*file is a file; give another"):
        monitor.save(tmp_path / "file" / "record")
    with pytest.raises(ValueError, match="folder: a NoneType; give the path of a folder"):
        monitor.save(None)


def test_a_record_of_tokens_is_not_resumed_in_another_precision():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(6, 1))
    x = torch.tensor([[0, 1], [2, 3], [1, 2]])
    state = fa.Monitor(model, x, measure="kernel", dtype=torch.float32).state_dict()
    with pytest.raises(UserError, match="of another `output`, `only`, `dtype`"):
        fa.Monitor(model, x, measure="kernel", dtype=torch.float64, state=state)


def test_a_class_number_beyond_the_outputs_is_told():
    with pytest.raises(UserError, match="class numbers from 0 to 3; give those of the 3 outputs"):
        labels_of_outputs(torch.tensor([[0, 3]]), torch.Size([1, 2, 3]))


def test_a_warning_that_a_loss_raises_is_its_own():
    def loss(f, y):
        raise UserWarning("mine")

    with pytest.raises(UserWarning, match="mine"):
        loss_of(loss, torch.ones(2, 1), torch.ones(2, 1))


def test_the_record_tells_how_many_parameters(tmp_path):
    fa.Monitor(nn.Linear(2, 3), torch.ones(4, 2), measure="kernel").save(tmp_path)
    about = json.loads((tmp_path / "about.json").read_text())
    assert (about["parameters"], about["samples"]) == (9, 4)

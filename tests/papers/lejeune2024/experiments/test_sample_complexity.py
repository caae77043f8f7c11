import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.lejeune2024.experiments import sample_complexity
from feature_alignment.papers.lejeune2024.experiments.sample_complexity import MODES, run_seed
from feature_alignment.papers.lejeune2024.parameters import SampleComplexity
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.checkpoint import Checkpoints
from feature_alignment.training.loop import train

SIZES = {"train_sizes": [25, 50], "test_samples": 40}
PARAMETERS = SampleComplexity(
    **SIZES,
    **{f"cnn_{key}": value for key, value in SIZES.items()},
    mlp_width=16,
    mlp_depth=3,
    cnn_width=4,
    sgd_rate=0.1,
    adam_rate=0.01,
    batch_size=10,
    patience=3,
    max_epochs=6,
)


@pytest.fixture(scope="module")
def dataset():
    """Two classes of noise around a dark and a bright half."""
    generator = np.random.default_rng(0)
    arrays = {}
    for split, number in (("train", 200), ("test", 40)):
        labels = np.arange(number) % 2
        images = generator.integers(0, 100, (number, 16, 16, 1))
        images[labels == 1, :8] += 120
        arrays |= {f"x_{split}": images.astype(np.uint8), f"y_{split}": labels}
    return Dataset(arrays, {"name": "mnist", "description": "noise"})


def result(dataset, checkpoints=None, **settings):
    cpu, parameters = torch.device("cpu"), PARAMETERS.but(**settings)
    return run_seed(SeedRun(0, parameters, cpu, {"dataset": dataset}, checkpoints=checkpoints))


def run(dataset, checkpoints=None, **settings):
    rows = pd.DataFrame(result(dataset, checkpoints, **settings).rows)
    return rows.pivot(index="n", columns="metric", values="value")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "cnn"])
@pytest.mark.parametrize("model", MODES)
def test_every_model_learns_to_tell_halves_apart(dataset, network, model):
    found = run(dataset, network=network, model=model, max_epochs=12, patience=12)
    assert found.loc[50, "test_error"] < 0.2
    assert found["images_seen"].tolist() == [25, 50]


def test_a_redrawn_set_shows_more_images(dataset):
    found = run(dataset, sampling="redrawn")
    assert (found["images_seen"] > [50, 90]).all()


def test_a_run_ends_when_the_error_stays(dataset):
    found = run(dataset, sgd_rate=1e-9, max_epochs=50)
    assert found["best_epoch"].tolist() == [1, 1]


@pytest.mark.parametrize("sampling", ["kept", "redrawn"])
def test_a_size_that_was_finished_is_not_trained_again(dataset, monkeypatch, tmp_path, sampling):
    whole, cut, again = [], [], []

    def counted(calls, limit):
        def train_epoch(model, x, y, **further):
            calls.append(len(x))
            if len(calls) > limit:
                raise KeyboardInterrupt
            return train(model, x, y, **further)

        monkeypatch.setattr(sample_complexity, "train", train_epoch)

    counted(whole, 99)
    expected = run(dataset, sampling=sampling)
    first = whole.count(25)
    store = Checkpoints(tmp_path, "a", interval=1e9)  # due never, so that only ends are saved
    counted(cut, first + 1)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, store, sampling=sampling)
    counted(again, 99)
    found = run(dataset, store, sampling=sampling)
    assert again == whole[first:]
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_its_time_is_recorded_by_part(dataset):
    seconds = result(dataset).seconds
    assert seconds["training"] > 0 < seconds["evaluating"]
    assert seconds["measuring"] == 0  # the test error is all there is


@pytest.mark.parametrize(("network", "key"), [("mlp", "train_sizes"), ("cnn", "cnn_train_sizes")])
def test_too_few_images_are_refused(dataset, network, key):
    with pytest.raises(UserError, match=rf"\.{key}: found 500, but noise has only 200 training"):
        run(dataset, network=network, **{key: [25, 500]})


def test_the_last_epochs_error_is_no_smaller_than_the_bests(dataset):
    guessed = np.random.default_rng(0).permutation(dataset.arrays["y_test"])
    noisy = Dataset({**dataset.arrays, "y_test": guessed}, dataset.info)
    best, last = (run(noisy, reported_epoch=told)["test_error"] for told in ("best", "last"))
    assert (last >= best).all()
    assert (last > best).any()


def test_normalised_images_look_alike_at_any_brightness(dataset):
    darker = {**dataset.arrays, "x_train": dataset.arrays["x_train"] // 20 * 4}
    brighter = {**dataset.arrays, "x_train": dataset.arrays["x_train"] // 20 * 20}
    for normalisation, alike in (("none", False), ("unit-variance", True)):
        errors = [
            run(Dataset(arrays, dataset.info), normalisation=normalisation)["test_error"]
            for arrays in (darker, brighter)
        ]
        assert np.array_equal(*errors) is alike


def test_initial_weights_are_as_asked_for(dataset):
    lecun, kaiming = (
        run(dataset, initialisation=name, model="fixed")["test_error"]
        for name in ("lecun", "kaiming_zero_bias")
    )
    assert not np.array_equal(lecun, kaiming)


@pytest.mark.parametrize(
    ("network", "kind", "settings"),
    [
        ("mlp", torch.optim.SGD, {"lr": 0.1, "momentum": 0.7}),
        ("cnn", torch.optim.Adam, {"lr": 0.01}),
    ],
)
def test_optimizers_are_those_of_the_released_code(network, kind, settings):
    p = PARAMETERS.but(network=network, momentum=0.7)
    optimizer = sample_complexity._optimizer(p, torch.nn.Linear(2, 2))
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert {key: group[key] for key in settings} == settings


@pytest.mark.parametrize(("network", "convolutions"), [("mlp", 0), ("cnn", 4)])
def test_the_network_is_the_one_asked_for(network, convolutions, dataset):
    cpu, parameters = torch.device("cpu"), PARAMETERS.but(network=network)
    run = SeedRun(0, parameters, cpu, {"dataset": dataset})
    model = sample_complexity._network(run, torch.Size([1, 16, 16]), 2)
    assert sum(isinstance(m, torch.nn.Conv2d) for m in model.modules()) == convolutions


def test_fixed_and_adaptive_features_are_trained_differently(dataset, monkeypatch):
    def recorded(model, *given, own=train, **options):
        found = own(model, *given, **options)
        with torch.no_grad():
            outputs.append(model(given[0]))
        return found

    outputs = []
    monkeypatch.setattr(sample_complexity, "train", recorded)
    for model in MODES:
        run(dataset, model=model, max_epochs=1)
    fixed, adaptive, full = outputs[1::2]  # after an epoch on the larger of two sizes
    assert not any(torch.allclose(fixed, other) for other in (adaptive, full))
    assert not torch.allclose(adaptive, full)


def test_epochs_end_when_the_error_has_stayed_for_as_many_as_patience():
    course = sample_complexity._Course({}, torch.zeros(1, dtype=torch.bool))
    for error, ended in ((0.5, False), (0.4, False), (0.6, False), (0.4, False), (0.4, True)):
        course.errors.append(error)
        assert course.ended(PARAMETERS) is ended
    course.errors = [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]
    assert course.ended(PARAMETERS)  # after as many epochs as there may be


def test_random_streams_go_on_from_a_saved_course():
    streams = {name: torch.Generator().manual_seed(0) for name in ("samples", "batches")}
    course = sample_complexity._Course(streams, torch.zeros(1, dtype=torch.bool), [0.5])
    state = course.state_dict()
    drawn = [torch.rand(3, generator=stream) for stream in streams.values()]
    course.load_state_dict(state)
    assert all(map(torch.equal, drawn, (torch.rand(3, generator=s) for s in streams.values())))
    assert course.errors == [0.5]


def test_the_samples_of_a_smaller_size_are_among_those_of_a_larger_one(dataset, monkeypatch):
    def recorded(model, x, *given, own=train, **options):
        drawn[len(x)] = {image.numpy().tobytes() for image in x}
        return own(model, x, *given, **options)

    drawn = {}
    monkeypatch.setattr(sample_complexity, "train", recorded)
    run(dataset, max_epochs=1)
    assert list(map(len, drawn.values())) == [25, 50]
    assert drawn[25] < drawn[50]


def test_normalised_images_have_mean_0_and_variance_1(dataset):
    p = PARAMETERS.but(normalisation="unit-variance")
    cpu = torch.device("cpu")
    x, _ = sample_complexity._tensors(SeedRun(0, p, cpu), *dataset.split("train"))
    variance, mean = torch.var_mean(x, dim=(1, 2, 3))
    torch.testing.assert_close(mean, torch.zeros(200), atol=1e-5, rtol=0)
    torch.testing.assert_close(variance, torch.ones(200))

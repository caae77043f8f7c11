import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.kernels.average_features import average_tangent_features, copy_parameters
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.kernels.tangent_grams import TangentKernel
from feature_alignment.papers.lejeune2024.experiments import digit_regression, kernel_measures
from feature_alignment.papers.lejeune2024.experiments import two_digits as two_digits_module
from feature_alignment.papers.lejeune2024.experiments.digit_regression import run_seed
from feature_alignment.papers.lejeune2024.experiments.kernel_measures import compare
from feature_alignment.papers.lejeune2024.experiments.two_digits import two_digits
from feature_alignment.papers.lejeune2024.parameters import DigitRegression
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.errors import TrainingDivergedError

PARAMETERS = DigitRegression(
    train_samples=40,
    kernel_samples=20,
    width=8,
    batch_size=10,
    epochs=30,
    target_epochs=30,
    path_points=5,
)


@pytest.fixture(scope="module")
def dataset():
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 3 + 1
    images = (
        generator.integers(0, 120, (120, 6, 6, 1))
        + 40 * (labels == 3)[:, None, None, None] * (np.arange(6) < 3)[:, None, None]
    )
    return Dataset(
        {"x_train": images.astype(np.uint8), "y_train": labels}, {"description": "noise"}
    )


def run(dataset, **settings):
    parameters = PARAMETERS.but(**settings)
    return run_seed(SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset}))


def test_a_network_that_does_not_learn_is_one_sentence():
    kernel = TangentKernel({"0": torch.eye(3)}, 1)
    kernels = dict.fromkeys(("adapted", "initial", "final"), kernel)
    with pytest.raises(UserError, match="the network does not learn; make it wider"):
        compare(kernels, torch.ones(3, 3), 1, SeedResult())


def test_linear_targets_may_be_annealed_several_times(dataset):
    once = run(dataset, targets="linear", epochs=1).arrays["target"]
    again = run(dataset, targets="linear", epochs=1, target_annealing_epochs=30).arrays["target"]
    several = run(dataset, targets="linear", epochs=1, target_annealing_epochs=10).arrays["target"]
    np.testing.assert_array_equal(once, again)
    assert np.abs(several - once).max() > 1e-3


def values(result):
    frame = pd.DataFrame(result.rows)
    return frame[frame["layer"] == "all"].set_index("metric")["value"]


def test_kernels_and_measures_fit_together(dataset):
    result = run(dataset)
    kernels = {
        name: torch.as_tensor(result.arrays[f"kernel/{name}"]).double().flatten()
        for name in ("initial", "adapted", "label")
    }
    found = values(result)
    for metric, pair in {
        "label_similarity": ("adapted", "label"),
        "initial_label_similarity": ("initial", "label"),
        "average_initial_cosine": ("adapted", "initial"),
    }.items():
        first, second = (kernels[name] for name in pair)
        cosine = first @ second / (first.norm() * second.norm())
        assert found[metric] == pytest.approx(float(cosine), rel=1e-5)
    assert (np.diff(result.arrays["target"]) >= 0).all()
    assert found["mixture_residual"] < np.sqrt(1 - found["average_initial_cosine"] ** 2)
    frame = pd.DataFrame(result.rows)
    shares = frame.loc[frame["metric"] == "label_change_share", "value"]
    assert len(shares) == 3
    assert shares.sum() == pytest.approx(1)


def test_flipped_labels_are_harder_to_fit_and_leave_the_linear_targets_alone(dataset):
    plain, flipped = run(dataset), run(dataset, label_flips=0.25)
    assert values(flipped)["loss"] > values(plain)["loss"]
    assert values(flipped)["target_accuracy"] == values(plain)["target_accuracy"]
    np.testing.assert_array_equal(flipped.arrays["target"], plain.arrays["target"])


def test_more_hidden_layers_give_more_layers(dataset):
    rows = pd.DataFrame(run(dataset, hidden_layers=1, epochs=2).rows)
    assert rows.loc[rows["metric"] == "label_change_share", "layer"].nunique() == 2


def test_too_few_images_are_refused(dataset):
    with pytest.raises(UserError, match=r"train_samples: found 100, but noise has only 80"):
        run(dataset, train_samples=100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x, y: (x, np.sort(y)),
            r"of the first 40 training images of .* 2 and 3 all are of class 2",
        ),
        (lambda x, y: (x, 0 * y), "of the training images of the classes 2 and 3 none is"),
        (
            lambda x, y: (x * (np.arange(120) != 4)[:, None, None, None], y),
            r"training image 4 \(counted from 0\), of class 2, is of one colour",
        ),
    ],
)
def test_images_of_one_class_or_of_one_colour_are_refused(dataset, change, message):
    x, y = change(dataset.arrays["x_train"], dataset.arrays["y_train"])
    parameters = PARAMETERS.but(train_samples=40)
    data = {"dataset": Dataset({"x_train": x, "y_train": y}, dataset.info)}
    drawn = SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset})
    for seed in range(9):  # of few that are drawn all may be of one class
        assert len(two_digits(drawn, "train", 3, generator=np.random.default_rng(seed))[0]) == 3
    with pytest.raises(UserError, match=message):
        two_digits(SeedRun(0, parameters, torch.device("cpu"), data), "train", 40)


def test_a_network_that_dies_has_diverged(dataset):
    with pytest.raises(TrainingDivergedError, match="final kernel is zero"):
        run(dataset, learning_rate=1.0, bias=False, normalisation="unit-norm")


def test_images_have_norm_or_variance_one(dataset):
    for normalisation, measure in (("unit-norm", np.linalg.norm), ("unit-variance", np.std)):
        parameters = PARAMETERS.but(normalisation=normalisation)
        seed_run = SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset})
        x, _ = two_digits(seed_run, "train", 10)
        np.testing.assert_allclose(x.mean(dim=1), 0, atol=1e-12)
        np.testing.assert_allclose(measure(x.numpy(), axis=1), 1)


def test_half_the_variance_of_three_layers_makes_a_quarter_of_the_initial_kernel(dataset):
    wide = {"width": 128, "bias": False, "epochs": 1}
    kernels = [
        run(dataset, initialisation=name, **wide).arrays["kernel/initial"]
        for name in ("kaiming", "lecun")
    ]
    assert np.trace(kernels[0]) / np.trace(kernels[1]) == pytest.approx(4, rel=0.25)


def test_least_squares_with_more_features_than_images_returns_the_classes(dataset):
    # Of so many units some are never active, where the default of older PyTorch finds no rank.
    found = run(dataset, target_fit="least-squares", width=512, epochs=1)
    np.testing.assert_allclose(np.abs(found.arrays["target"]), 1, atol=1e-3)
    assert values(found)["target_accuracy"] == 1
    assert (np.abs(run(dataset, width=64, epochs=1).arrays["target"]) < 0.99).any()


def test_biases_of_the_targets_network_need_biases(dataset):
    for bias in (True, False):
        plain, with_bias = (
            run(dataset, bias=bias, target_bias=given, epochs=1).arrays["target"]
            for given in (False, True)
        )
        assert np.array_equal(plain, with_bias) is not bias


def test_annealing_by_epoch_or_step_differs_only_where_an_epoch_has_several_steps(dataset):
    for batch_size, alike in ((40, True), (10, False)):
        losses = {
            values(run(dataset, annealing=by, batch_size=batch_size, epochs=5))["loss"]
            for by in ("epoch", "step")
        }
        assert (len(losses) == 1) is alike


def test_momentum_is_the_one_asked_for_in_both_trainings(dataset, monkeypatch):
    def recorded(*given, own=two_digits_module.train, **options):
        groups.extend(options["optimizer"].param_groups)
        return own(*given, **options)

    groups = []
    monkeypatch.setattr(two_digits_module, "train", recorded)
    run(dataset, momentum=0.3, epochs=2, target_epochs=2)
    assert [group["momentum"] for group in groups] == [0.3, 0.3]


def test_a_generator_draws_images_in_another_order(dataset):
    drawn = SeedRun(0, PARAMETERS, torch.device("cpu"), {"dataset": dataset})
    whole, first, again, other = (
        two_digits(
            drawn, "train", 80, generator=seed if seed is None else np.random.default_rng(seed)
        )
        for seed in (None, 0, 0, 1)
    )
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    labels = {tuple(x.tolist()): y.item() for x, y in zip(*whole, strict=True)}
    assert [labels[tuple(x.tolist())] for x in first[0]] == first[1][:, 0].tolist()


def test_labels_are_flipped_at_random(dataset, monkeypatch):
    def recorded(run, model, x, y, *given, own=digit_regression.fit, **options):
        seen.append(y.clone())
        return own(run, model, x, y, *given, **options)

    seen = []
    monkeypatch.setattr(digit_regression, "fit", recorded)
    for share in (0.0, 0.25):
        run(dataset, label_flips=share, epochs=1, target_epochs=2)
    plain, flipped = seen[1], seen[3]
    turned = (flipped == -plain)[:, 0]
    assert torch.equal(flipped[~turned], plain[~turned])
    assert turned.sum() == 10
    assert not turned[:10].all()


def test_changes_and_what_is_to_be_learnt_count_from_the_initial_outputs(dataset, monkeypatch):
    def trained(run, model, x, y, *given, own=digit_regression.fit, **options):
        before = model(x).detach()
        steps = own(run, model, x, y, *given, **options)
        outputs[:] = before, model(x).detach(), y.clone()
        return steps

    def parts(*given, own=kernel_measures.parts_of_prediction):
        told.append(given[-1])
        return own(*given)

    def label(change, own=digit_regression.label_kernel):
        told.append(change)
        return own(change)

    outputs, told = [], []
    monkeypatch.setattr(digit_regression, "fit", trained)
    monkeypatch.setattr(digit_regression, "label_kernel", label)
    monkeypatch.setattr(kernel_measures, "parts_of_prediction", parts)
    run(dataset, targets="linear", epochs=3)
    before, after, y = (values[:20] for values in outputs)
    order = torch.argsort(y[:, 0])
    change, residual = told
    torch.testing.assert_close(change, (after - before)[order])
    torch.testing.assert_close(residual, (y - before)[order, 0])


@pytest.mark.parametrize(("annealing", "updates"), [("epoch", 4), ("step", 1)])
def test_the_rate_falls_after_each_epoch_or_update(dataset, monkeypatch, annealing, updates):
    def recorded(*given, own=two_digits_module.train, **options):
        schedules.append(options["schedule"])
        return own(*given, **options)

    schedules = []
    monkeypatch.setattr(two_digits_module, "train", recorded)
    run(dataset, annealing=annealing, epochs=2, target_epochs=2)  # of 4 updates each
    for rate in schedules:
        assert [rate(t) for t in range(updates)] == [1] * updates
        assert rate(updates) < 1


def test_measures_are_those_of_the_network_before_and_after_training(dataset, monkeypatch):
    def trained(run, model, x, y, *given, own=digit_regression.fit, **options):
        before = copy_parameters(model)
        steps = own(run, model, x, y, *given, **options)
        kept[:] = model, before, x, y
        return steps

    kept = []
    monkeypatch.setattr(digit_regression, "fit", trained)
    result = run(dataset, targets="linear", precision="float64")
    model, before, x, y = kept
    after, order = copy_parameters(model), torch.argsort(y[:20, 0])
    images, target = x[:20][order], y[:20][order, 0]
    z = images
    for layer in ("layers.0", "layers.1"):
        z = torch.relu(z @ before[f"{layer}.weight"].T + before[f"{layer}.bias"])
    residual = target - (z @ before["layers.2.weight"].T + before["layers.2.bias"])[:, 0]
    first, average = (
        average_tangent_features(model, before, end, images, 5) for end in (before, after)
    )
    initial, adapted = (kernel_measures.kernel_of(phi).total for phi in (first, average))
    moved = {name: after[name] - value for name, value in before.items()}
    change = {name: average[name] - phi for name, phi in first.items()}
    final = tangent_kernel(model, images).total
    expected = {
        "loss": float((model(x) - y).detach().square().mean()),
        "final_average_scale": float(final.norm() / adapted.norm()),
        **kernel_measures.parts_of_prediction(average, moved, "layers.2", target, residual),
        **kernel_measures.last_features(torch.cat([z, torch.ones(20, 1)], dim=1), target),
        **kernel_measures.locate(adapted, initial, target),
        **kernel_measures.transformation(initial, change, residual),
    }
    found = values(result)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(result.arrays["kernel_diagonal"], adapted.diagonal())

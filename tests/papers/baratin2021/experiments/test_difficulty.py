import numpy as np
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.baratin2021.experiments import difficulty
from feature_alignment.papers.baratin2021.experiments.difficulty import draw_examples, run_seed
from feature_alignment.papers.baratin2021.parameters import Difficulty
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.schedule import geometric

PARAMETERS = Difficulty(
    easy_samples=200,
    difficult_samples=50,
    kernel_samples=20,
    width=16,
    linear_layers=3,
    learning_rate=0.1,
    batch_size=20,
    steps=80,
)


@pytest.fixture(scope="module")
def bars():
    """Ten classes of 4 × 10 images, each a bright column of its own, under a little noise."""
    return stripes(axis=2)


def stripes(axis):
    rng = np.random.default_rng(axis)
    y = np.arange(400) % 10
    x = rng.integers(0, 60, (400, 10, 10, 1))
    for image, label in zip(x, y, strict=True):
        image.swapaxes(0, axis - 1)[label] += 150
    return Dataset({"x_train": x.astype(np.uint8), "y_train": y}, {"name": "bars"})


def seed_run(bars, seed=0, rows=None, **changes):
    datasets = {"dataset": bars, "difficult_dataset": rows}
    return SeedRun(seed, PARAMETERS.but(**changes), torch.device("cpu"), datasets)


def last(result, metric, split):
    return [r["value"] for r in result.rows if (r["metric"], r["split"]) == (metric, split)][-1]


def test_easy_examples_are_learned_and_random_labels_are_not_yet(bars):
    result = run_seed(seed_run(bars))
    assert last(result, "accuracy", "easy") > 0.9
    assert last(result, "accuracy", "difficult") < 0.5
    easy, difficult = (last(result, "label_alignment", split) for split in ("easy", "difficult"))
    assert 0 < difficult < easy < 1


def test_same_seed_same_rows(bars):
    first, second, other = (run_seed(seed_run(bars, seed, steps=6)).rows for seed in (0, 0, 1))
    assert first == second
    assert first != other


def test_a_further_dataset_gives_the_difficult_examples_with_their_labels(bars):
    rows = stripes(axis=1)
    examples = draw_examples(seed_run(bars, rows=rows, difficult_dataset="kmnist"))
    for split, axis, number in (("easy", 1, 200), ("difficult", 2, 50)):
        x, y = examples[split]
        assert y.tolist() == x[:, 0].mean(axis=axis).argmax(axis=1).tolist()
        assert len(y) == number


def test_examples_of_two_datasets_are_drawn_apart(bars):
    """Of as many images, else those of the same numbers would be drawn."""
    examples = draw_examples(seed_run(bars, rows=bars, difficult_dataset="kmnist"))
    easy, difficult = (examples[split][0] for split in ("easy", "difficult"))
    assert not torch.equal(easy[: len(difficult)], difficult)


def test_difficult_examples_of_the_same_dataset_are_none_of_the_easy_ones(bars):
    dataset = PARAMETERS.dataset
    examples = draw_examples(seed_run(bars, rows=bars, difficult_dataset=dataset))
    x, y = (part.numpy() for part in examples["difficult"])
    assert y.tolist() == x[:, 0].mean(axis=1).argmax(axis=1).tolist()  # with their labels
    easy = {image.tobytes() for image in examples["easy"][0].numpy()}
    assert easy.isdisjoint(image.tobytes() for image in x)


def test_random_labels_are_on_images_that_are_not_among_the_easy_ones(bars):
    examples = draw_examples(seed_run(bars))
    x, y = (part.numpy() for part in examples["difficult"])
    assert np.mean(y != x[:, 0].mean(axis=1).argmax(axis=1)) > 0.7
    easy = {image.tobytes() for image in examples["easy"][0].numpy()}
    assert not easy & {image.tobytes() for image in x}


def test_all_difficult_examples_have_labels_drawn_anew(bars, monkeypatch):
    seen = []
    monkeypatch.setattr(difficulty, "random_labels", lambda *given: seen.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        draw_examples(seed_run(bars))
    labels, share, classes, _ = seen[0]
    assert (len(labels), share, classes) == (50, 1.0, 10)


def test_the_kernel_is_measured_on_examples_that_there_are(bars):
    with pytest.raises(UserError, match=r"kernel_samples: found 51, at most 50"):
        run_seed(seed_run(bars, kernel_samples=51))


def test_pixels_are_standardised_or_from_0_to_1(bars):
    x = draw_examples(seed_run(bars))["easy"][0]
    raw = draw_examples(seed_run(bars, images="unit_interval"))["easy"][0]
    assert 0 <= raw.min() < 0.01
    assert 0.5 < raw.max() <= 1
    assert (raw - raw.mean()) / raw.std(correction=0) == pytest.approx(x, abs=1e-5)


def test_the_alignment_shown_swaps_names_with_the_default_one(bars):
    def alignments(**changes):
        rows = run_seed(seed_run(bars, steps=2, **changes)).rows
        return {r["metric"]: r["value"] for r in rows if (r["step"], r["split"]) == (2, "easy")}

    default, raw = alignments(), alignments(alignment="label_alignment_equation_7_raw")
    assert raw["label_alignment"] == default["label_alignment_equation_7_raw"]
    assert raw["label_alignment_equation_7_raw"] == default["label_alignment"]
    assert default.keys() == raw.keys()


def test_layers_weights_and_their_decay_are_those_asked_for(bars, monkeypatch):
    seen = []
    monkeypatch.setattr(
        difficulty, "train", lambda model, *_, **o: seen.append((model, o)) or 1 / 0
    )
    for changes in ({}, {"tied": True}, {"init": "pytorch", "weight_decay": 0.5, "momentum": 0.3}):
        with pytest.raises(ZeroDivisionError):
            run_seed(seed_run(bars, linear_layers=5, **changes))
    (plain, _), (tied, _), (other, options) = seen
    assert len({id(layer) for layer in plain.layers}) == 5
    assert [id(tied.layers[1])] * 3 == [id(layer) for layer in tied.layers[1:4]]
    assert len(list(tied.parameters())) == 6
    assert plain.layers[0].bias.abs().max() == 0 < other.layers[0].bias.abs().max()
    (group,) = options["optimizer"].param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.1, 0.3, 0.5)


def test_tied_layers_are_measured_and_trained(bars):
    result = run_seed(seed_run(bars, linear_layers=4, tied=True, width=40, learning_rate=0.03))
    assert last(result, "accuracy", "easy") > 0.9
    assert 0 < last(result, "label_alignment", "easy") < 1


def test_all_examples_are_evaluated_and_the_first_measured_at_the_steps_asked_for(
    bars, monkeypatch
):
    seen, batches = [], []
    monkeypatch.setattr(difficulty, "TangentKernelProbe", lambda b, **_: batches.append(b))
    monkeypatch.setattr(difficulty, "train", lambda *given, **o: seen.append((given, o)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_seed(seed_run(bars, measure_at={"first": 3, "ratio": 2.0}))
    (((model, x, y), options),) = seen
    examples = draw_examples(seed_run(bars))
    assert torch.equal(x, torch.cat([images for images, _ in examples.values()]))
    assert torch.equal(y, torch.cat([labels for _, labels in examples.values()]))
    for split, (images, labels) in examples.items():
        assert torch.equal(options["evaluate_on"][split][0], images)
        assert torch.equal(options["evaluate_on"][split][1], labels)
        assert torch.equal(batches[0][split].x, images[:20])
    assert [layer.out_features for layer in model.layers] == [16, 16, 10]
    assert options["measure_at"] == {*geometric(80, 3, 2.0), 80}

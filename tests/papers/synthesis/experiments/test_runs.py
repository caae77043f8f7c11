import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.papers.synthesis.experiments import runs
from feature_alignment.papers.synthesis.experiments.runs import image_task, run_seed, text_task
from feature_alignment.papers.synthesis.parameters import Network, Runs
from feature_alignment.pipeline.parameters import Geometric
from feature_alignment.pipeline.run import SeedRun

SIZES = {"train_samples": 20, "test_samples": 10, "kernel_samples": 6, "trace_samples": 3}
PARAMETERS = Runs(
    mlp=Network(**SIZES, width=8),
    gpt=Network(**SIZES, width=8),
    context=4,
    batch_size=10,
    steps=4,
    measure_at=Geometric(first=1, ratio=1.4),
    path_points=2,
    precision="float64",
)
RNG = np.random.default_rng(0)
DIGITS = Dataset(
    {
        **{
            f"x_{split}": RNG.integers(256, size=(30, 4, 4, 1)).astype("uint8")
            for split in ("train", "test")
        },
        **{f"y_{split}": RNG.integers(10, size=30) for split in ("train", "test")},
    },
    {"name": "mnist", "description": "toy"},
)
TEXT = Dataset(
    {
        "text_train": RNG.integers(5, size=101).astype("uint8"),
        "text_test": RNG.integers(5, size=50).astype("uint8"),
        "vocabulary": np.arange(97, 102, dtype=np.uint32),
    },
    {"name": "shakespeare", "description": "toy"},
)


def seed_run(**changes):
    data = TEXT if changes.get("network") == "gpt" else DIGITS
    return SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu"), {"dataset": data})


def rows(**changes):
    return pd.DataFrame(run_seed(seed_run(**changes)).rows)


def value(frame, metric, step, split="train", layer="all"):
    chosen = frame[(frame["metric"] == metric) & (frame["step"] == step)]
    return chosen[(chosen["split"] == split) & (chosen["layer"] == layer)]["value"].item()


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "gpt"])
@pytest.mark.parametrize("optimizer", ["gd", "slo"])
def test_all_quantities_stand_at_the_same_steps(network, optimizer):
    frame = rows(network=network, optimizer=optimizer)
    whole = frame[frame["layer"] == "all"]
    for metric in ("effective_rank", "label_alignment", "adapted_kernel_alignment", "mean_nfc"):
        assert whole.loc[whole["metric"] == metric, "step"].tolist() == [0, 1, 2, 3, 4]
    assert value(frame, "path_complexity", 0) == 0 < value(frame, "path_complexity", 2)
    for metric, sign in (("loss", 1), ("accuracy", -1)):
        test, train = (value(frame, metric, 4, split=split) for split in ("test", "train"))
        gap = value(frame, f"{metric}_gap", 4, split="test")
        assert gap == pytest.approx(sign * (test - train))
    layers = frame[(frame["metric"] == "nfc") & (frame["step"] == 4)]
    assert len(layers) == {"mlp": 3, "gpt": 6}[network]  # not the readout
    assert value(frame, "mean_nfc", 4) == pytest.approx(layers["value"].mean())


def test_the_first_step_of_the_path_is_the_updates_length_by_the_features(monkeypatch):
    monkeypatch.setattr(runs, "EPSILON", 0.0)
    run = seed_run(optimizer="slo")
    task = image_task(run)
    trace = tangent_trace(task.model.eval(), task.splits["train"][0][:3])
    # Without relaxation each of the four layers moves by the rate.
    length = runs.RATES["slo"]["mlp"] * 4**0.5
    frame = pd.DataFrame(run_seed(run).rows)
    assert value(frame, "path_complexity", 1) == pytest.approx(length * trace**0.5)


@pytest.mark.parametrize("task", [image_task, text_task])
def test_random_labels_change_half_of_the_training_labels_and_nothing_else(task):
    network = "gpt" if task is text_task else "mlp"
    clean, noisy = (task(seed_run(network=network, random_label_share=s)) for s in (0, 0.5))
    for split in ("train", "test"):
        torch.testing.assert_close(clean.splits[split][0], noisy.splits[split][0])
    torch.testing.assert_close(clean.splits["test"][1], noisy.splits["test"][1])
    wrong = (clean.splits["train"][1] != noisy.splits["train"][1]).double().mean()
    assert 0.2 < wrong <= 0.5
    for first, second in zip(clean.model.parameters(), noisy.model.parameters(), strict=True):
        torch.testing.assert_close(first, second)


def test_texts_do_not_overlap_and_their_targets_are_what_follows():
    every = Network(**{**SIZES, "train_samples": 25}, width=8)
    x, y = text_task(seed_run(network="gpt", gpt=every)).splits["train"]
    codes = torch.as_tensor(TEXT.text("train").astype("int64"))
    found = {tuple(text.tolist()) for text in torch.cat([x, y[:, -1:]], dim=1)}
    assert found == {tuple(codes[i : i + 5].tolist()) for i in range(0, 100, 4)}
    torch.testing.assert_close(x[:, 1:], y[:, :-1])


def test_more_samples_than_there_are_are_refused():
    sizes = PARAMETERS.gpt.plain() | {"train_samples": 26}
    with pytest.raises(UserError, match=r"gpt\.train_samples: found 26, at most 25 is allowed"):
        rows(network="gpt", gpt=sizes)
    for key in ("kernel_samples", "trace_samples"):
        with pytest.raises(UserError, match="mlp: 21 samples to measure on, of 20 to train on"):
            PARAMETERS.but(mlp=PARAMETERS.mlp.plain() | {key: 21})


def test_a_training_with_too_few_measurements_for_rank_correlations_is_refused():
    assert PARAMETERS.but(steps=4).steps == 4  # measured at all of 0 to 4
    with pytest.raises(UserError, match=r"4 measurements in 4 steps; .* lower measure_at\.ratio"):
        PARAMETERS.but(measure_at={"first": 2, "ratio": 1.4})


def test_gaps_are_what_is_worse_on_test_samples():
    frame = rows(random_label_share=0.0)
    for step in frame["step"].unique():
        losses, accuracies = (
            [value(frame, metric, step, split) for split in ("train", "test")]
            for metric in ("loss", "accuracy")
        )
        assert value(frame, "loss_gap", step, "test") == pytest.approx(losses[1] - losses[0])
        found = value(frame, "accuracy_gap", step, "test")
        assert found == pytest.approx(accuracies[0] - accuracies[1])


def test_the_adapted_kernel_has_the_points_asked_for(monkeypatch):
    def recorded(*given, own=runs.AdaptedKernelProbe, **options):
        seen.append(options)
        return own(*given, **options)

    seen = []
    monkeypatch.setattr(runs, "AdaptedKernelProbe", recorded)
    rows(path_points=3)
    assert seen[0]["points"] == 3


def test_kernels_of_the_transformer_are_those_of_the_last_character_and_what_follows(monkeypatch):
    def recorded(batches, *, own=runs.TangentKernelProbe, **options):
        seen.append((batches["train"].y, options["output"]))
        return own(batches, **options)

    seen = []
    monkeypatch.setattr(runs, "TangentKernelProbe", recorded)
    rows(network="gpt", steps=4)
    (labels, output), logits = seen[0], torch.arange(24.0).reshape(2, 3, 4)
    _, y = text_task(seed_run(network="gpt")).splits["train"]
    assert torch.equal(labels.argmax(dim=1), y[:6, -1])
    assert torch.equal(output(logits), logits[:, 2])


@pytest.mark.parametrize(
    ("network", "optimizer", "rate", "every"),
    [("mlp", "gd", 0.01, 1), ("mlp", "slo", 0.1, 1), ("gpt", "gd", 0.1, 10)],
)
def test_training_has_the_settings_of_its_network_and_optimizer(
    monkeypatch, network, optimizer, rate, every
):
    def path(model, trace, steps=1, own=runs.UpdatePath):
        seen.append(steps)
        return own(model, trace, steps)

    seen = []
    monkeypatch.setattr(runs, "UpdatePath", path)
    monkeypatch.setattr(runs, "train", lambda *_, **given: seen.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rows(network=network, optimizer=optimizer)
    found, given = seen
    settings = given["optimizer"].param_groups[0]
    assert (found, settings["lr"], given["batch_size"]) == (every, rate, 10)
    assert settings.get("momentum") == (0.9 if optimizer == "gd" else None)


def test_the_adapted_kernel_of_the_transformer_is_that_of_the_last_character_too(monkeypatch):
    seen = []
    monkeypatch.setattr(runs, "AdaptedKernelProbe", lambda *_, **options: seen.append(options))
    monkeypatch.setattr(runs, "train", lambda *_, **given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rows(network="gpt")
    logits = torch.arange(24.0).reshape(2, 3, 4)
    assert torch.equal(seen[0]["output"](logits), logits[:, 2])

import math

import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.experiments import character_gpt
from feature_alignment.papers.beaglehole2024.experiments.character_gpt import (
    _some,
    _texts,
    run_seed,
)
from feature_alignment.papers.beaglehole2024.parameters import CharacterGPT
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = CharacterGPT(
    blocks=1,
    heads=2,
    width=8,
    context=6,
    learning_rate=0.02,
    batch_size=8,
    steps=40,
    warmup_steps=5,
    measure_every=20,
    loss_samples=12,
    probe_samples=5,
    output_samples=2,
    precision="float64",
)


def test_heads_share_the_width():
    with pytest.raises(UserError, match="width of 8 cannot be shared by 3 heads"):
        PARAMETERS.but(heads=3)


@pytest.fixture
def alphabet():
    """The same four characters over and over: what follows is certain."""
    text = np.tile(np.arange(4, dtype=np.uint8), 60)
    vocabulary = np.array([97, 98, 99, 100], dtype=np.uint32)
    arrays = {"text_train": text, "text_test": text[:40], "vocabulary": vocabulary}
    return Dataset(arrays, {"name": "shakespeare", "description": "toy"})


def run(dataset, **changes):
    result = run_seed(
        SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu"), {"dataset": dataset})
    )
    return pd.DataFrame(result.rows)


def test_a_certain_text_is_learned_and_attention_is_measured(alphabet):
    rows = run(alphabet)
    loss = rows[rows["metric"] == "loss"].pivot(index="step", columns="split", values="value")
    assert loss.loc[0].to_numpy() == pytest.approx([math.log(4)] * 2, rel=0.05)
    assert (loss.loc[40] < 0.3).all()
    names = {f"blocks.0.attention.{name}" for name in ("query", "key", "value")}
    assert set(rows["layer"]) == {"all", *names}
    assert rows[rows["metric"] == "centred_nfc"]["value"].between(0, 1).all()


def test_a_context_longer_than_the_text_is_refused(alphabet):
    with pytest.raises(UserError, match="context: 50 characters, but the test part of toy has 40"):
        run(alphabet, context=50)


def test_texts_of_other_purposes_are_other_texts_each_with_what_follows(alphabet):
    seed_run = SeedRun(0, PARAMETERS, torch.device("cpu"), {"dataset": alphabet})
    texts = _texts(seed_run, "train")
    drawn = [_some(seed_run, purpose, texts, 30) for purpose in ("train", "train", "probe")]
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    for x, y in drawn:
        assert torch.equal(x[:, 1:], y[:, :-1])


def test_training_has_the_settings_of_nanogpt(alphabet, monkeypatch):
    seen = []
    monkeypatch.setattr(character_gpt, "train", lambda *_, **given: seen.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(alphabet)
    assert (seen[0]["largest_gradient"], seen[0]["batch_size"]) == (1.0, 8)
    assert seen[0]["optimizer"].param_groups[0]["lr"] == 0.02
    rates = [seen[0]["schedule"](step) for step in (0, 4, 5, 39)]
    assert rates[0] < rates[1] <= 1
    assert rates[2] == pytest.approx(1, abs=0.25)
    assert rates[3] == pytest.approx(0.02, abs=0.01)


def test_losses_and_attention_are_measured_on_texts_of_their_own(alphabet, monkeypatch):
    probes, trainings = [], []
    monkeypatch.setattr(
        character_gpt, "FeatureProbe", lambda *given, **o: probes.append((given, o))
    )
    monkeypatch.setattr(character_gpt, "train", lambda *_, **o: trainings.append(o) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(alphabet)
    seed_run = SeedRun(0, PARAMETERS, torch.device("cpu"), {"dataset": alphabet})
    ((_, probed), options), found = probes[0], trainings[0]["evaluate_on"]
    assert options["output_samples"] == 2
    for x, purpose, split, number in (
        (probed, "probe", "train", 5),
        (found["train"][0], "train", "train", 12),
        (found["test"][0], "test", "test", 12),
    ):
        assert torch.equal(x, _some(seed_run, purpose, _texts(seed_run, split), number)[0])

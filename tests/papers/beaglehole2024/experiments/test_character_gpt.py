import math

import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.experiments.character_gpt import run_seed
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

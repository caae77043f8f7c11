"""Feature correlations of a small character-level transformer's attention layers.

Source: beaglehole2024, Figures 2D and 15B, Appendix J.
"""

from typing import Any

import numpy as np
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.errors import UserError
from feature_alignment.models.gpt import GPT
from feature_alignment.pipeline.run import SeedResult, precision
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import sequence_cross_entropy
from feature_alignment.training.optimizers import make_optimizer, warmup_cosine_rate
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import measurement_schedule

Parameters = dict[str, Any]
Pair = tuple[torch.Tensor, torch.Tensor]

LEAST_RATE = 0.02
"""The learning rate that nanoGPT ends with, 1e-4, over the one here."""
LARGEST_GRADIENT = 1.0
CHUNK = 32
"""Texts that are measured at a time: attention over 256 characters takes memory."""


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one network to predict the next character, with nanoGPT's settings but for Adam's.

    Args:
        seed: the seed; it chooses initial weights, batches and the measured texts.
        parameters: the section `beaglehole2024_character_gpt` of the config.
        device: where to train.
        dataset: the text.
        label: names the run in its progress lines.

    Returns:
        Training and test loss per character in nats, each on `loss_samples` texts, and the
        measures of `FeatureProbe` in the query, key and value layers on `probe_samples` training
        texts.

    Raises:
        UserError: if the text is shorter than the context.
        TrainingDivergedError: if training diverged.
    """
    context, steps = parameters["context"], parameters["steps"]
    x, y = _texts(dataset, "train", context, device)
    measured, measured_test = (
        _some(_texts(dataset, split, context, device), parameters["loss_samples"], seed, split)
        for split in ("train", "test")
    )
    probed, _ = _some((x, y), parameters["probe_samples"], seed, "probe")
    blocks = parameters["blocks"]
    model = GPT(
        len(dataset.vocabulary),
        blocks,
        parameters["heads"],
        parameters["width"],
        context,
        torch_stream(seed, "init"),
        dtype=precision(parameters),
    ).to(device)
    recorder = train(
        model,
        x,
        y,
        loss=sequence_cross_entropy,
        optimizer=make_optimizer(
            model.parameters(), {"name": "adam", "lr": parameters["learning_rate"]}
        ),
        steps=steps,
        batch_size=parameters["batch_size"],
        batches=torch_stream(seed, "batches"),
        schedule=warmup_cosine_rate(steps, parameters["warmup_steps"], LEAST_RATE),
        largest_gradient=LARGEST_GRADIENT,
        measure_at=measurement_schedule({"every": parameters["measure_every"]}, steps),
        evaluate_on={"train": measured, "test": measured_test},
        probes=[
            FeatureProbe(
                model,
                probed,
                layers=[
                    f"blocks.{block}.attention.{name}"
                    for block in range(blocks)
                    for name in ("query", "key", "value")
                ],
                chunk_size=CHUNK,
                output_samples=parameters["output_samples"],
                generator=torch_stream(seed, "probe/outputs"),
            ),
        ],
        progress=Progress(steps, label),
    )
    result = SeedResult()
    result.extend(recorder)
    return result


def _texts(dataset: Dataset, split: str, context: int, device: torch.device) -> Pair:
    """All texts of `context` characters, and the characters that follow: views (n, context).

    Raises:
        UserError: if the text is not longer than the context.
    """
    codes = torch.as_tensor(dataset.text(split).astype(np.int64), device=device)
    if len(codes) <= context:
        raise UserError(
            f"context: {context} characters, but the {split} part of "
            f"{dataset.info['description']} has {len(codes)}; shorten it or give a longer text."
        )
    windows = codes.unfold(0, context + 1, 1)
    return windows[:, :-1], windows[:, 1:]


def _some(texts: Pair, number: int, seed: int, purpose: str) -> Pair:
    """So many of the texts, drawn with replacement."""
    chosen = torch.as_tensor(stream(seed, f"texts/{purpose}").integers(len(texts[0]), size=number))
    x, y = (part.index_select(0, chosen.to(part.device)) for part in texts)
    return x, y

"""beaglehole2024, Figures 2D and 15B, Appendix J: a character-level transformer's attention."""

import numpy as np
import torch

from feature_alignment.errors import UserError
from feature_alignment.models.gpt import GPT
from feature_alignment.papers.beaglehole2024.parameters import CharacterGPT
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import sequence_cross_entropy
from feature_alignment.training.schedule import every, warmup_cosine_rate

Pair = tuple[torch.Tensor, torch.Tensor]

LEAST_RATE = 0.02  # nanoGPT's final learning rate, 1e-4, over the one here
LARGEST_GRADIENT = 1.0
MEASURED = ("query", "key", "value")
CHUNK = 32  # texts measured at a time: attention over 256 characters takes memory


def run_seed(run: SeedRun[CharacterGPT]) -> SeedResult:
    """Train one network to predict the next character, with nanoGPT's settings except Adam's."""
    p = run.parameters
    train_texts = _texts(run, "train")
    measured = {
        "train": _some(run, "train", train_texts, p.loss_samples),
        "test": _some(run, "test", _texts(run, "test"), p.loss_samples),
    }
    probed, _ = _some(run, "probe", train_texts, p.probe_samples)
    sizes = len(run.dataset.vocabulary), p.blocks, p.heads, p.width, p.context
    model = GPT(*sizes, run.torch_stream("init"), dtype=run.dtype).to(run.device)
    layers = [name for name, _ in model.named_modules() if name.endswith(MEASURED)]
    probe = FeatureProbe(
        model,
        probed,
        layers=layers,
        chunk_size=CHUNK,
        output_samples=p.output_samples,
        generator=run.torch_stream("probe/outputs"),
    )
    recorder = train(
        model,
        *train_texts,
        loss=sequence_cross_entropy,
        optimizer=torch.optim.Adam(model.parameters(), lr=p.learning_rate),
        **run.training(p.steps),
        batch_size=p.batch_size,
        schedule=warmup_cosine_rate(p.steps, p.warmup_steps, LEAST_RATE),
        largest_gradient=LARGEST_GRADIENT,
        measure_at=every(p.measure_every, p.steps),
        evaluate_on=measured,
        probes=[probe],
    )
    return SeedResult().extend(recorder)


def _texts(run: SeedRun[CharacterGPT], split: str) -> Pair:
    # All texts of `context` characters, and the characters that follow: views (n, context).
    dataset, context = run.dataset, run.parameters.context
    codes = torch.as_tensor(dataset.text(split).astype(np.int64), device=run.device)
    if len(codes) <= context:
        raise UserError(
            f"context: {context} characters, but the {split} part of "
            f"{dataset.info['description']} has {len(codes)}; shorten it or give a longer text."
        )
    windows = codes.unfold(0, context + 1, 1)
    return windows[:, :-1], windows[:, 1:]


def _some(run: SeedRun[CharacterGPT], purpose: str, texts: Pair, number: int) -> Pair:
    """Draw a number of the texts with replacement."""
    x, y = texts
    rng = run.stream(f"texts/{purpose}")
    chosen = torch.as_tensor(rng.integers(len(x), size=number), device=x.device)
    return x[chosen], y[chosen]

"""baratin2021, Figures 4 and 13, Sections 3.4 and 3.5: easy and difficult training examples."""

import torch

from feature_alignment.data.canonical import to_float
from feature_alignment.data.transforms import random_labels, standardise
from feature_alignment.papers.baratin2021.parameters import Difficulty
from feature_alignment.pipeline.labelled_images import (
    CLASSES,
    Splits,
    check_kernel_samples,
    image_classifier,
    kernel_batches,
)
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.kernel_probe import TangentKernelProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, cross_entropy
from feature_alignment.training.schedule import geometric


def run_seed(run: SeedRun[Difficulty]) -> SeedResult:
    """Train one MLP on easy and difficult examples together, and measure its kernel on both.

    It is measured on the first `kernel_samples` of each, with the labels used in training.
    """
    p = run.parameters
    splits = draw_examples(run)
    check_kernel_samples("baratin2021_difficulty.kernel_samples", p.kernel_samples, splits)
    x, y = (torch.cat(parts) for parts in zip(*splits.values(), strict=True))
    model = image_classifier(run, "mlp", x[0].shape, p.width, p.linear_layers - 1, init=p.init)
    for i in range(2, p.linear_layers - 1 if p.tied else 2):
        model.set_submodule(f"layers.{i}", model.get_submodule("layers.1"))
    rate, decay = p.learning_rate, p.weight_decay
    batches = kernel_batches(splits, p.kernel_samples)
    recorder = train(
        model,
        x,
        y,
        loss=cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), rate, p.momentum, weight_decay=decay),
        **run.training(p.steps),
        batch_size=p.batch_size,
        measure_at={*geometric(p.steps, p.measure_at.first, p.measure_at.ratio), p.steps},
        evaluate_on=splits,
        metrics={"accuracy": accuracy},
        probes=[TangentKernelProbe(batches, spectrum=False, checked_once=True)],
    )
    result = SeedResult().extend(recorder)
    swapped = {p.alignment: "label_alignment", "label_alignment": p.alignment}
    for row in result.rows:
        row["metric"] = swapped.get(row["metric"], row["metric"])
    return result


def draw_examples(run: SeedRun[Difficulty]) -> Splits:
    """The easy and the difficult examples, scaled as `images` says, with their training labels."""
    p, rng = run.parameters, run.stream("data")
    easy, keys = p.easy_samples, f"experiments.{p.experiment}."
    if p.difficult_dataset in (None, p.dataset):  # of one dataset, without common images
        x, y = run.dataset.draw("train", easy + p.difficult_samples, rng, f"{keys}easy_samples")
        x_difficult, y_difficult = x[easy:], y[easy:]
        if p.difficult_dataset is None:
            y_difficult, _ = random_labels(y_difficult, 1.0, CLASSES, run.stream("random_labels"))
        x, y = x[:easy], y[:easy]
    else:
        x, y = run.dataset.draw("train", easy, rng, f"{keys}easy_samples")
        difficult, other = run.datasets["difficult_dataset"], run.stream("data/difficult")
        x_difficult, y_difficult = difficult.draw(
            "train", p.difficult_samples, other, f"{keys}difficult_samples"
        )
    labels = {"easy": y, "difficult": y_difficult}
    if p.images == "standardised":
        inputs = standardise(x, x_difficult)
    else:
        inputs = [to_float(images).transpose(0, 3, 1, 2) for images in (x, x_difficult)]
    return {
        split: (torch.tensor(images, **run.to), torch.tensor(labels[split], device=run.device))
        for split, images in zip(labels, inputs, strict=True)
    }

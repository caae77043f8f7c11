"""baratin2021, Figures 2, 3, 11, 12, 14, Sections 3.1–3.3, 3.5, Appendix C.2: image classifiers."""

import torch
from torch import nn

from feature_alignment.papers.baratin2021.parameters import Classification
from feature_alignment.pipeline.labelled_images import (
    check_kernel_samples,
    image_classifier,
    kernel_batches,
    labelled_images,
)
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.kernel_probe import TangentKernelProbe
from feature_alignment.training.batches import RandomCropAndFlip
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, cross_entropy
from feature_alignment.training.schedule import geometric


def run_seed(run: SeedRun[Classification]) -> SeedResult:
    """Train one network and measure its tangent kernel on fixed training and test batches.

    The training batch has the labels used in training, including random ones; the test batch has
    the true labels.
    """
    p = run.parameters
    splits, wrong = labelled_images(run, p.train_samples, p.test_samples, p.random_label_share)
    check_kernel_samples("baratin2021_classification.kernel_samples", p.kernel_samples, splits)
    first = slice(p.evaluation_samples)
    evaluated = {split: (x[first], y[first]) for split, (x, y) in splits.items()}
    model = build_network(run, splits["train"][0][0].shape)
    at, batches = p.measure_at, kernel_batches(splits, p.kernel_samples)
    measured = at if isinstance(at, tuple) else geometric(p.steps, at.first, at.ratio)
    rate, decay = p.learning_rate, p.weight_decay
    recorder = train(
        model,
        *splits["train"],
        loss=cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), rate, p.momentum, weight_decay=decay),
        **run.training(p.steps),
        batch_size=p.batch_size,
        augment=RandomCropAndFlip(run.torch_stream("augmentation")) if p.augmentation else None,
        measure_at={*measured, p.steps},
        evaluate_on=evaluated,
        metrics={"accuracy": accuracy},
        probes=[TangentKernelProbe(batches, layers=True, uncentred=True, checked_once=True)],
    )
    result = SeedResult()
    result.add("wrong_label_share", wrong, step=0)
    for split, (_, labels) in evaluated.items():
        result.add("evaluation_samples", len(labels), step=0, split=split)
    return result.extend(recorder)


def build_network(run: SeedRun[Classification], shape: torch.Size) -> nn.Module:
    """The network that the parameters describe, for images of (channels, height, width)."""
    p = run.parameters
    if p.model == "mlp":
        return image_classifier(run, "mlp", shape, p.width, p.linear_layers - 1, init=p.init)
    norm = ("resnet18" if p.model == "resnet18" else "vgg") in p.batch_norm
    return image_classifier(run, p.model, shape, p.base_width, init=p.init, batch_norm=norm)

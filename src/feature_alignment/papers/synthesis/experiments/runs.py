"""Train one network and measure the quantities of all three papers at the same steps.

Source: baratin2021, eq. 5, 7 and 18; lejeune2024, Section 3; beaglehole2024, Sections 2.2 to 5.2.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from feature_alignment.complexity.update_path import UpdatePath
from feature_alignment.data.transforms import random_labels
from feature_alignment.errors import UserError
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.models.gpt import GPT
from feature_alignment.papers.synthesis.parameters import Network, Runs
from feature_alignment.pipeline.labelled_images import CLASSES, image_classifier, labelled_images
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.probes.kernel_probe import AdaptedKernelProbe, Batch, TangentKernelProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import Loss, accuracy, cross_entropy, sequence_cross_entropy
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Recorder, Row
from feature_alignment.training.schedule import geometric
from feature_alignment.training.speed_limited import SpeedLimited, groups_by_layer

HIDDEN_LAYERS = 3
BLOCKS, HEADS = 2, 4
RATES = {  # step sizes, chosen by the training loss alone; SLO's apply to every layer
    "gd": {"mlp": 0.01, "vgg": 0.01, "gpt": 0.1},
    "slo": {"mlp": 0.1, "vgg": 0.05, "gpt": 0.1},
}
MOMENTUM = 0.9
EPSILON = 0.1  # SLO's relaxation, added to the gradient norm of each layer
TRACE_EVERY = {"mlp": 1, "vgg": 1, "gpt": 10}
"""Updates between two measurements of Tr K; the transformer's many outputs make it slow."""
OUTPUT_SAMPLES = 8  # random backward passes that estimate the transformer's feature covariances


class Task(NamedTuple):
    """A network and its data.

    `splits` has inputs and targets, `train` with random labels and `test` with true ones. The NFC
    is measured for `layers`, and kernels are those of `output`, see `tangent_kernel`.
    """

    model: nn.Module
    splits: dict[str, tuple[torch.Tensor, torch.Tensor]]
    classes: int
    layers: list[str]
    loss: Loss = cross_entropy
    accuracy: Loss = accuracy
    output: Callable[[torch.Tensor], torch.Tensor] | None = None
    feature_options: Mapping[str, Any] = MappingProxyType({})


def run_seed(run: SeedRun[Runs]) -> SeedResult:
    """Train one network; the three probes measure on the first training samples.

    A seed has the same samples and initial weights for every optimizer and share of random labels.
    """
    p, own = run.parameters, _own(run)
    task = text_task(run) if p.network == "gpt" else image_task(run)
    model, output = task.model.eval(), task.output
    x, y = (part[: own.kernel_samples] for part in task.splits["train"])
    traced = task.splits["train"][0][: own.trace_samples]
    labels = nn.functional.one_hot(y if y.ndim == 1 else y[:, -1], task.classes)
    batch = Batch(x, labels.to(run.dtype))
    plan = plan_capture(model, traced, output=output)
    path = UpdatePath(model, lambda m: tangent_trace(m, traced, plan=plan), TRACE_EVERY[p.network])
    probes = [
        TangentKernelProbe({"train": batch}, checked_once=True, output=output),
        AdaptedKernelProbe(model, batch, points=p.path_points, output=output),
        FeatureProbe(model, x, layers=task.layers, **task.feature_options),
        lambda *_: Measurement([Row(WHOLE_NETWORK, "train", "path_complexity", path.complexity)]),
    ]
    rate = RATES[p.optimizer][p.network]
    if p.optimizer == "gd":
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    else:
        optimizer = SpeedLimited(groups_by_layer(model, 1.0), lr=rate, epsilon=EPSILON)
    recorder = train(
        model.train(),
        *task.splits["train"],
        loss=task.loss,
        optimizer=optimizer,
        **run.training(p.steps),
        batch_size=p.batch_size,
        measure_at={*geometric(p.steps, p.measure_at.first, p.measure_at.ratio), p.steps},
        evaluate_on=task.splits,
        metrics={"accuracy": task.accuracy},
        probes=probes,
        after_update=path,
    )
    result = SeedResult().extend(recorder)
    _add_summaries(result, recorder)
    return result


def image_task(run: SeedRun[Runs]) -> Task:
    """The MLP or the VGG, on standardised images; all layers but the last are measured."""
    own, p = _own(run), run.parameters
    numbers = own.train_samples, own.test_samples
    splits, _ = labelled_images(run, *numbers, p.random_label_share, p.network)
    name, shape = "mlp" if p.network == "mlp" else "vgg11", splits["train"][0].shape[1:]
    init = "kaiming_zero_bias"
    model = image_classifier(run, name, shape, own.width, HIDDEN_LAYERS, init=init)
    weighted = nn.Conv2d, nn.Linear
    *layers, _ = (name for name, part in model.named_modules() if isinstance(part, weighted))
    return Task(model, splits, CLASSES, layers)


def text_task(run: SeedRun[Runs]) -> Task:
    """The transformer, on texts that do not overlap; query, key and value layers are measured.

    It predicts every next character; kernels are those of the logits after the last one.

    Raises:
        UserError: if there are fewer texts than requested.
    """
    own, vocabulary, context = _own(run), len(run.dataset.vocabulary), run.parameters.context
    splits = {}
    for split in ("train", "test"):
        codes = run.dataset.text(split).astype(np.int64)
        starts = np.arange(0, len(codes) - context, context)
        number = getattr(own, f"{split}_samples")
        if number > len(starts):
            raise UserError(
                f"experiments.synthesis_runs.gpt.{split}_samples: found {number}, at most "
                f"{len(starts)} is allowed, the {split} texts of {context} characters."
            )
        chosen = run.stream(f"data/{split}").permutation(starts)[:number]
        x, y = (codes[chosen[:, None] + np.arange(context) + shift] for shift in (0, 1))
        if split == "train":
            share, rng = run.parameters.random_label_share, run.stream("random_labels")
            y = random_labels(y.ravel(), share, vocabulary, rng)[0].reshape(y.shape)
        splits[split] = tuple(torch.tensor(codes, device=run.device) for codes in (x, y))
    sizes = vocabulary, BLOCKS, HEADS, own.width, context
    model = GPT(*sizes, run.torch_stream("init"), dtype=run.dtype).to(run.device)
    parts = (name for name, _ in model.named_modules())
    return Task(
        model,
        splits,
        vocabulary,
        [name for name in parts if name.endswith(("query", "key", "value"))],
        sequence_cross_entropy,
        lambda f, y: accuracy(f.flatten(0, 1), y.flatten()),
        lambda f: f[:, -1],
        {"output_samples": OUTPUT_SAMPLES, "generator": run.torch_stream("probe/outputs")},
    )


def _own(run: SeedRun[Runs]) -> Network:
    return getattr(run.parameters, run.parameters.network)


def _add_summaries(result: SeedResult, recorder: Recorder) -> None:
    frame = recorder.frame()
    layers = frame[frame["metric"].isin(["nfc", "centred_nfc"])]
    means = layers.groupby(["step", "metric"], as_index=False)["value"].mean()
    for row in means.itertuples():
        result.add(f"mean_{row.metric}", row.value, step=row.step)
    for step in frame["step"].unique():
        for metric, sign in (("loss", -1), ("accuracy", 1)):
            train, test = (recorder.value(step, metric, split=s) for s in ("train", "test"))
            result.add(f"{metric}_gap", sign * (train - test), step=step, split="test")

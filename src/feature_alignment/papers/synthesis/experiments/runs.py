"""Train one network and measure what each of the three papers does, at the same steps.

Source: baratin2021, eq. 5, 7 and 18; lejeune2024, Section 3; beaglehole2024, Sections 2.2, 3 and
5.2.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn

from feature_alignment.complexity.update_path import UpdatePath
from feature_alignment.errors import UserError
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.papers.synthesis.experiments.tasks import Task, image_task, text_task
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.adapted_kernel_probe import AdaptedKernelProbe
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.probes.kernel_probe import Batch, TangentKernelProbe
from feature_alignment.training.loop import train
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Probe, Recorder, Row
from feature_alignment.training.schedule import geometric
from feature_alignment.training.speed_limited import SpeedLimited, groups_by_layer

if TYPE_CHECKING:
    from feature_alignment.papers.synthesis.parameters import Runs

OVER_LAYERS = ("nfc", "centred_nfc")


def run_seed(run: "SeedRun[Runs]") -> SeedResult:
    """Train one network, on labels of which a share may be random.

    The same seed has the same samples and initial weights whatever the optimizer and the share.
    Kernels and feature covariances are those of the first training samples, with the labels that
    are trained on.

    Returns:
        At each measured step: losses, accuracies and their gaps; what `TangentKernelProbe`,
        `AdaptedKernelProbe` and `FeatureProbe` measure; the means of NFC and C-NFC over the layers
        (`mean_nfc`, `mean_centred_nfc`); the complexity C so far (`path_complexity`).
    """
    p = run.parameters
    task = text_task(run) if p.network == "gpt" else image_task(run)
    x, y = task.splits["train"]
    path = _complexity(run, task)
    recorder = train(
        task.model,
        x,
        y,
        loss=task.loss,
        optimizer=_optimizer(run, task.model),
        steps=p.steps,
        batch_size=p.batch_size,
        batches=run.torch_stream("batches"),
        measure_at={*geometric(p.steps, p.measure_at.first, p.measure_at.ratio), p.steps},
        evaluate_on=task.splits,
        metrics={"accuracy": task.accuracy},
        probes=_probes(run, task, path),
        after_update=path,
        progress=run.progress(p.steps),
        checkpoint=run.checkpoint(),
    )
    result = SeedResult()
    result.extend(recorder)
    _add_summaries(result, recorder)
    return result


def _optimizer(run: "SeedRun[Runs]", model: nn.Module) -> torch.optim.Optimizer:
    p = run.parameters
    own = getattr(p, p.network)
    if p.optimizer == "gd":
        return torch.optim.SGD(model.parameters(), lr=own.learning_rate, momentum=p.momentum)
    return SpeedLimited(groups_by_layer(model, 1.0), lr=own.slo_rate, epsilon=p.epsilon)


def _complexity(run: "SeedRun[Runs]", task: Task) -> UpdatePath:
    own = getattr(run.parameters, run.parameters.network)
    batch = _first(run, task, "trace_samples")[0]
    plan = plan_capture(task.model.eval(), batch, output=task.output)
    task.model.train()
    return UpdatePath(
        task.model, lambda model: tangent_trace(model, batch, plan=plan), own.trace_every
    )


def _probes(run: "SeedRun[Runs]", task: Task, path: UpdatePath) -> list[Probe]:
    x, y = _first(run, task, "kernel_samples")
    last = y[:, -1] if y.ndim > 1 else y
    batch = Batch(x, nn.functional.one_hot(last, task.classes).to(run.dtype))
    return [
        TangentKernelProbe({"train": batch}, output=task.output),
        AdaptedKernelProbe(
            task.model.eval(), batch, points=run.parameters.path_points, output=task.output
        ),
        FeatureProbe(task.model, x, layers=task.layers, **task.feature_options),
        _PathProbe(path),
    ]


class _PathProbe:
    def __init__(self, path: UpdatePath) -> None:
        self._path = path

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        return Measurement([Row(WHOLE_NETWORK, "train", "path_complexity", self._path.complexity)])


def _first(run: "SeedRun[Runs]", task: Task, key: str) -> tuple[torch.Tensor, torch.Tensor]:
    """So many of the training samples as the network's section says under a key.

    Raises:
        UserError: if there are fewer.
    """
    p = run.parameters
    (x, y), number = task.splits["train"], getattr(getattr(p, p.network), key)
    if number > len(x):
        raise UserError(
            f"experiments.synthesis_runs.{p.network}.{key}: found {number}, at most {len(x)} is "
            "allowed, the number of training samples."
        )
    return x[:number], y[:number]


def _add_summaries(result: SeedResult, recorder: Recorder) -> None:
    frame = recorder.frame()
    layers = frame[frame["metric"].isin(OVER_LAYERS)]
    means = layers.groupby(["step", "metric"], as_index=False)["value"].mean()
    for row in means.itertuples():
        result.add(f"mean_{row.metric}", row.value, step=row.step)
    for step in frame["step"].unique():
        for metric, sign in (("loss", -1), ("accuracy", 1)):
            train, test = (recorder.value(step, metric, split=s) for s in ("train", "test"))
            result.add(f"{metric}_gap", sign * (train - test), step=step, split="test")

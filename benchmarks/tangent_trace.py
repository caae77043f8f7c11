"""Time the tangent kernel's trace against one training step on as many samples.

Both are measured in the same process, alternating, on 32×32 images with 10 classes, in CPU
seconds. A training step is a forward pass, the cross-entropy, a backward pass and an update of SGD
with momentum. Also measured are the forward and c backward passes alone, which the trace needs at
least, and the plan, which is made once for many traces.

Run from the root of the checkout:

    PYTHONPATH=src python benchmarks/tangent_trace.py --output benchmarks/tangent_trace.csv
"""

import argparse
import os
import statistics
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from floor import run_passes
from measuring import cpu_seconds, made_with
from torch import nn

from feature_alignment.determinism import configure, torch_stream
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.gradients.samples import as_samples
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG

OUTPUTS = 10


def _mlp(width: int) -> nn.Module:
    return MLP(3072, [width], OUTPUTS, "relu", True, torch_stream(0, "init"))


def _vgg19(base_width: int) -> nn.Module:
    return VGG(19, base_width, OUTPUTS, torch_stream(0, "init"), init="kaiming")


def _resnet18(base_width: int) -> nn.Module:
    return ResNet18(base_width, OUTPUTS, torch_stream(0, "init"))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "MLP, 1 hidden layer of 256": lambda: _mlp(256),
    "VGG19, base width 8": lambda: _vgg19(8),
    "VGG19, base width 16": lambda: _vgg19(16),
    "VGG19, base width 64": lambda: _vgg19(64),
    "ResNet18, base width 8": lambda: _resnet18(8),
}


def main() -> None:
    """Measure every model and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="the table, CSV")
    options = parser.parse_args()
    configure(options.threads)
    x = torch.randn(options.samples, 3, 32, 32, generator=torch_stream(0, "data"))
    y = torch.arange(options.samples) % OUTPUTS
    rows = []
    for name, build in MODELS.items():
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        times: dict[str, list[float]] = {"step": [], "trace": [], "passes": [], "plan": []}
        for _ in range(options.repeats):
            model.train()
            with cpu_seconds(times["step"]):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.eval()
            with cpu_seconds(times["plan"]):
                plan = plan_capture(model, x)
            with cpu_seconds(times["trace"]):
                tangent_trace(model, x, plan=plan)
            with cpu_seconds(times["passes"]):
                run_passes(plan, as_samples(x))
        median = {name: statistics.median(seconds) for name, seconds in times.items()}
        rows.append(
            {
                "model": name,
                "parameters": sum(p.numel() for p in model.parameters()),
                "samples": options.samples,
                "outputs": OUTPUTS,
                "training_step_seconds": round(median["step"], 4),
                "trace_seconds": round(median["trace"], 4),
                "plan_seconds": round(median["plan"], 4),
                "trace_over_step": round(median["trace"] / median["step"], 1),
                "passes_over_step": round(median["passes"] / median["step"], 1),
                "threads": options.threads,
                "load": round(os.getloadavg()[0], 1),
                "torch": torch.__version__,
                **made_with(),
            }
        )
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()

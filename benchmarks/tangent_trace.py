"""Time the tangent kernel's trace against one training step on as many samples.

Both are measured in the same process, alternating, on 32×32 images with 10 classes. A training
step is a forward pass, the cross-entropy, a backward pass and an update of SGD with momentum.

Run from the root of the checkout:

    PYTHONPATH=src python benchmarks/tangent_trace.py --output benchmarks/tangent_trace.csv
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from feature_alignment.determinism import configure, torch_stream
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
        steps, traces = [], []
        for _ in range(options.repeats):
            model.train()
            start = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            steps.append(time.perf_counter() - start)
            model.eval()
            start = time.perf_counter()
            tangent_trace(model, x)
            traces.append(time.perf_counter() - start)
        step, trace = statistics.median(steps), statistics.median(traces)
        rows.append(
            {
                "model": name,
                "parameters": sum(p.numel() for p in model.parameters()),
                "samples": options.samples,
                "outputs": OUTPUTS,
                "training_step_seconds": round(step, 4),
                "trace_seconds": round(trace, 4),
                "trace_over_step": round(trace / step, 1),
                "threads": options.threads,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "processor": platform.machine(),
            }
        )
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()

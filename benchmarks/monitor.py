"""What monitoring a training costs: seconds of a measurement relative to those of an update.

    python benchmarks/monitor.py [--output FILE]

Run it on an idle machine. Times are CPU seconds on one thread, medians over repetitions.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from measuring import made_with
from torch import nn

import feature_alignment as fa

REPETITIONS = 5


def networks() -> dict[str, tuple[nn.Module, torch.Tensor, torch.Tensor]]:
    """Networks by name, each with a batch of the size that it would be trained with."""
    import torchvision

    torch.manual_seed(0)
    mlp = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
    resnet = torchvision.models.resnet18(num_classes=10)
    return {
        "MLP 784-256-256-10": (mlp, torch.randn(128, 1, 28, 28), torch.arange(128) % 10),
        "torchvision ResNet18, 32 × 32": (
            resnet,
            torch.randn(128, 3, 32, 32),
            torch.arange(128) % 10,
        ),
    }


def seconds(function: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    """CPU seconds of a call, the median of several after a warm-up call."""
    times = []
    for _ in range(repetitions + 1):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).with_suffix(".csv")
    parser.add_argument("--output", type=Path, default=default, help="the table, CSV")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, (model, x, y) in networks().items():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def update(model=model, x=x, y=y, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        repetitions = REPETITIONS if name.startswith("MLP") else 1
        step = seconds(update, repetitions)
        for samples in (20, 50, 100):
            for measure in ("kernel", "features", "adapted"):
                if measure == "adapted" and not name.startswith("MLP"):
                    continue  # n·c·p numbers: 11 million parameters do not fit
                monitor = fa.Monitor(model, x[:samples], y[:samples], measure=[measure], every=1000)
                numbers = iter(range(1, 100))
                taken = seconds(lambda: monitor.measure(next(numbers)), repetitions)  # noqa: B023
                rows.append(
                    {
                        "network": name,
                        "measure": measure,
                        "samples": samples,
                        "update_seconds": step,
                        "measurement_seconds": taken,
                        "in_updates": taken / step,
                        "overhead_percent_every_1000": 100 * taken / (1000 * step),
                    }
                )
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows).assign(torch=torch.__version__, **made_with())
    table.to_csv(options.output, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()

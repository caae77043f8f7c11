"""Time a training step of the linearised and the factorised model against the plain network's.

Networks and batches are those of Figure 4 in lejeune2024's earlier version. Steps of the three
models alternate in one process; CPU time is reported, which other load disturbs least.

Run from the root of the checkout:

    PYTHONPATH=src python benchmarks/tangent_models.py --output benchmarks/tangent_models.csv
"""

import argparse
import statistics
import time
from pathlib import Path

import pandas as pd
import torch
from measuring import made_with
from torch import nn

from feature_alignment.determinism import configure, torch_stream
from feature_alignment.models.mlp import sequential_mlp, small_cnn
from feature_alignment.models.tangent_models import MODES, TangentModel

BATCH, OUTPUTS = 50, 10


def main() -> None:
    """Measure both networks and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="the table, CSV")
    options = parser.parse_args()
    configure(options.threads)
    networks = {
        "MLP, depth 5, width 128": (
            sequential_mlp(784, [128] * 4, OUTPUTS, torch_stream(0, "init"), "lecun"),
            torch.rand(BATCH, 784, generator=torch_stream(0, "data")),
        ),
        "CNN, width 16": (
            small_cnn(32, 3, 16, OUTPUTS, torch_stream(0, "init"), "lecun"),
            torch.rand(BATCH, 3, 32, 32, generator=torch_stream(0, "data")),
        ),
    }
    y = torch.arange(BATCH) % OUTPUTS
    rows = []
    for name, (network, x) in networks.items():
        models = {mode: TangentModel(network, mode) for mode in MODES} | {"plain": network}
        trained = {
            mode: [p for p in model.parameters() if p.requires_grad]
            for mode, model in models.items()
        }
        optimizers = {mode: torch.optim.SGD(p, 1e-3, 0.9) for mode, p in trained.items()}
        seconds: dict[str, list[float]] = {mode: [] for mode in models}
        for _ in range(options.repeats):
            for mode, model in models.items():
                start = time.process_time()
                optimizers[mode].zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizers[mode].step()
                seconds[mode].append(time.process_time() - start)
        median = {mode: statistics.median(values) for mode, values in seconds.items()}
        for mode in models:
            rows.append(
                {
                    "network": name,
                    "model": mode,
                    "trained_parameters": sum(p.numel() for p in trained[mode]),
                    "batch": BATCH,
                    "step_cpu_ms": round(1000 * median[mode], 3),
                    "speed_over_plain": round(median["plain"] / median[mode], 2),
                    "threads": options.threads,
                    "torch": torch.__version__,
                    **made_with(),
                }
            )
            print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()

"""Time and memory of regression with adaptive tangent features on MNIST, ten outputs.

Each case runs in its own process, whose whole peak memory is measured (PyTorch itself takes about
0.5 GB of it). The network is an MLP with two hidden layers; inputs have zero mean and unit norm,
targets are one-hot.

Run from the root of the checkout:

    PYTHONPATH=src python benchmarks/adaptive_features.py --mnist FOLDER \
        --output benchmarks/adaptive_features.csv
"""

import argparse
import json
import multiprocessing
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import made_with
from torch import nn

from feature_alignment.adaptive.adaptive_features import AdaptiveTangentFeatures
from feature_alignment.data.prepare import prepare_dataset
from feature_alignment.determinism import configure, torch_stream
from feature_alignment.models.mlp import MLP

OUTPUTS, TEST_SAMPLES = 10, 1000
CASES = [
    {"n": n, "width": width, "structure": structure}
    for n, width, structure in [
        (125, 128, "layers"),
        (250, 128, "layers"),
        (500, 128, "layers"),
        (500, 512, "layers"),
        (500, 128, "none"),
        (500, 128, "diagonal"),
    ]
]


def _measure(folder: str, threads: int, case: dict[str, Any]) -> dict[str, Any]:
    configure(threads)
    arrays, _ = prepare_dataset("mnist", {"source": "torchvision", "path": folder})
    parts = {}
    for split, number in (("train", case["n"]), ("test", TEST_SAMPLES)):
        x = arrays[f"x_{split}"][:number].reshape(number, -1).astype(float)
        x -= x.mean(axis=1, keepdims=True)
        labels = torch.as_tensor(arrays[f"y_{split}"][:number]).long()
        parts[split] = x / np.linalg.norm(x, axis=1, keepdims=True), labels
    (x, labels), (x_test, labels_test) = parts["train"], parts["test"]
    widths = [case["width"]] * 2
    network = MLP(784, widths, OUTPUTS, "relu", True, torch_stream(0, "init"), init="kaiming")
    model = AdaptiveTangentFeatures(network, structure=case["structure"])
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(x, nn.functional.one_hot(labels, OUTPUTS).double())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    wrong = model.predict(x_test).argmax(axis=1) != labels_test.numpy()
    return {
        **case,
        "outputs": OUTPUTS,
        "parameters": sum(p.numel() for p in network.parameters()),
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "iterations": model.n_iter_,
        "converged": model.converged_,
        "objective": round(model.objective_, 4),
        "test_error": round(float(wrong.mean()), 4),
        "threads": threads,
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        **made_with(),
    }


def main() -> None:
    """Measure every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", required=True, help="the folder that holds MNIST/raw")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="the table, CSV")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(_measure, (options.mnist, options.threads, case)))
        print(json.dumps(rows[-1]), flush=True)
    pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()

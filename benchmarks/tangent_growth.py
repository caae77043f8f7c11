"""How time and memory of the tangent kernel grow if one size varies and the others are fixed.

Every point is measured in its own process on one thread. The numbers in the picture are slopes of
straight lines through the last three points on logarithmic axes; hollow points were computed in
blocks of samples, since the gradients of all samples exceed the memory budget.

    PYTHONPATH=src python benchmarks/tangent_growth.py

writes benchmarks/tangent_growth.csv and .png.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from measuring import in_new_process, made_with, measured
from networks import gpt, mlp, perturbed, vgg
from torch import nn

from feature_alignment.gradients.blocks import DEFAULT_BUDGET
from feature_alignment.kernels.tangent import tangent_kernel

AXES = ("n", "c", "width", "depth", "tokens or pixels", "budget (MB)")
QUANTITIES = {"cpu_seconds": "CPU seconds", "peak_growth_mb": "peak memory (MB)"}

# The fixed sizes, in the order of the axes. The default budget suffices for every point except
# those of its own sweep.
_BUDGET = DEFAULT_BUDGET // 10**6
FIXED = {
    "MLP": (100, 10, 256, 4, 1, _BUDGET),
    "VGG": (32, 10, 8, 19, 32**2, _BUDGET),
    "GPT": (32, 10, 64, 2, 64, _BUDGET),
}
# The first of five points, each twice the one before. VGGs come in only two depths.
FIRST = {
    "MLP": {"n": 32, "c": 4, "width": 128, "depth": 1, "budget (MB)": 1},
    "VGG": {"n": 8, "c": 4, "width": 4, "tokens or pixels": 32**2, "budget (MB)": 8},
    "GPT": {"n": 8, "c": 4, "width": 32, "depth": 1, "tokens or pixels": 16, "budget (MB)": 32},
}


def problem(name: str, sizes: Mapping[str, int]) -> tuple[nn.Module, torch.Tensor]:
    """The network of these sizes and inputs for it."""
    n, c, width, depth, positions = (sizes[axis] for axis in AXES[:5])
    if name == "MLP":
        return mlp(width, depth, c), torch.randn(n, 784)
    if name == "GPT":
        return gpt(width, depth, c, positions), torch.randint(c, (n, positions))
    height = 2 ** ((positions.bit_length() - 1) // 2)  # squares, and halves of squares
    return vgg(width, depth, c), torch.randn(n, 3, height, positions // height)


def measure(name: str, sizes: Mapping[str, int]) -> dict[str, float]:
    """Compute one kernel in this process; its time, memory, and number of blocks of samples."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = problem(name, sizes)
    model = perturbed(model)
    tangent_kernel(model, x[:2])  # the first use loads libraries
    steps: list[float] = []
    options = {"memory_budget": 10**6 * sizes["budget (MB)"], "progress": steps.append}
    kernel, taken = measured(lambda: tangent_kernel(model, x, **options))
    pairs = len(steps) // len(kernel.layers)  # pairs of blocks, without mirrored ones
    return {**taken, "blocks": round((8 * pairs + 1) ** 0.5 - 1) // 2}


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw a panel for each size and quantity, with the slope next to each line."""
    figure, panels = plt.subplots(2, 6, figsize=(17, 6), sharex="col", layout="constrained")
    for row, (quantity, label) in zip(panels, QUANTITIES.items(), strict=True):
        row[0].set_ylabel(label)
        for panel, axis in zip(row, AXES, strict=True):
            panel.set_title(axis)
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.margins(x=0.2)
            for colour, model in zip(("C0", "C1", "C2"), FIRST, strict=True):
                points = table[(table["axis"] == axis) & (table["model"] == model)]
                if points.empty:
                    continue
                x, y = points["value"].to_numpy(), points[quantity].clip(lower=0.01).to_numpy()
                slope, _ = np.polyfit(np.log(x[-3:]), np.log(y[-3:]), 1)
                fill = list(np.where(points["blocks"] > 1, "white", colour))
                panel.plot(x, y, color=colour, label=model)
                panel.scatter(x, y, color=fill, edgecolors=colour, zorder=3)
                panel.annotate(f" {slope:.1f}", (x[-1], y[-1]), color=colour)
    panels[0][0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Measure all points, write the table and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=FIRST, default=list(FIRST))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        for axis, first in FIRST[model].items():
            for value in [first * 2**doublings for doublings in range(5)]:
                sizes = dict(zip(AXES, FIXED[model], strict=True)) | {axis: value}
                row = {"model": model, "axis": axis, "value": value, **sizes}
                row["load"] = round(os.getloadavg()[0], 1)
                rows.append(row | in_new_process(measure, model, sizes))
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows).assign(torch=torch.__version__, **made_with())
    table.to_csv(options.output / "tangent_growth.csv", index=False)
    draw(table, options.output / "tangent_growth.png")


if __name__ == "__main__":
    main()

"""Time and memory of the exact tangent kernel, beside other ways to it, in one run.

    PYTHONPATH=src:PLACE python benchmarks/tangent_kernel.py --jax PYTHON

The other ways are torch.func, NNGeometry and neural-tangents. The last two are no dependencies of
the project: PLACE is a folder with NNGeometry (`pip install --no-deps --target PLACE nngeometry`),
PYTHON the interpreter of an environment with neural-tangents 0.6.5 and a JAX of its time
(`pip install neural-tangents==0.6.5 "jax[cpu]==0.4.23" "numpy<2" "scipy<1.12"`). Rows of what is
not there are left out, which the table says.

Every measurement is a process of its own, so that memory is its own. Results of all ways are
compared with each other. Writes benchmarks/tangent_kernel.csv and .md.

What can be gained: where the weights are square and as wide as there are positions (the GPT of
width 64), no known form is cheaper than the product of all gradients, p·(n·c)² multiplications in
torch.func and half as many here, so that their ratio tends to 2 as n·c grows.
"""

import argparse
import csv
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from networks import MODELS
from torch import nn

from feature_alignment.kernels.tangent import tangent_kernel

WAYS = ("ours", "torch.func", "NNGeometry")
NEURAL_TANGENTS = "neural-tangents"
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """A model of some width on some samples, and the ways to measure on it."""

    model: str
    width: int
    n: int
    ways: tuple[str, ...] = WAYS


# The other ways run where they fit into 8 GB and a few minutes; NNGeometry has no embeddings.
CASES = [
    Case("VGG19", 16, 25),
    Case("VGG19", 16, 50, ("ours", "torch.func")),
    Case("VGG19", 16, 100),
    Case("VGG19", 8, 50),
    Case("VGG19", 32, 100, ("ours",)),
    Case("VGG19", 64, 100, ("ours",)),
    Case("ResNet18", 16, 50),
    Case("ResNet18", 16, 100, ("ours", "torch.func")),
    Case("ResNet18", 64, 50, ("ours",)),
    Case("GPT", 64, 25, ("ours", "torch.func")),
    Case("GPT", 64, 50, ("ours", "torch.func")),
    Case("GPT", 64, 100, ("ours", "torch.func")),
    Case("GPT", 128, 50, ("ours", "torch.func")),
    Case("GPT", 128, 100, ("ours",)),
    Case("MLP", 256, 100, (*WAYS, NEURAL_TANGENTS)),
    Case("MLP", 256, 300, ("ours", "NNGeometry")),
    Case("MLP", 1024, 30),
    Case("MLP", 1024, 300, ("ours", "NNGeometry")),
    Case("MLP", 1024, 1000, ("ours",)),
]


def by_torch_func(model: nn.Module, x: torch.Tensor, outputs: int) -> torch.Tensor:
    """The usual recipe: vmap of jacrev gives the Jacobian, its product the kernel."""
    values = {name: value.detach() for name, value in model.named_parameters()}

    def f(moving: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, moving, (sample[None],))[0]

    jacobian = torch.func.vmap(torch.func.jacrev(f), in_dims=(None, 0))
    rows = {name: torch.empty(len(x), outputs, value.numel()) for name, value in values.items()}
    for start in range(0, len(x), 10):  # a few samples at a time, so that their graphs fit
        for name, block in jacobian(values, x[start : start + 10]).items():
            rows[name][start : start + 10] = block.flatten(2)
    total = torch.zeros(len(x) * outputs, len(x) * outputs)
    for block in rows.values():
        features = block.flatten(0, 1)
        total += features @ features.T
    return total


def by_nngeometry(model: nn.Module, x: torch.Tensor, outputs: int) -> torch.Tensor:
    """NNGeometry's Gram matrix."""
    from nngeometry.gram import GramMatrix
    from nngeometry.layercollection import LayerCollection
    from torch.utils.data import DataLoader, TensorDataset

    gram = GramMatrix(
        model,
        DataLoader(TensorDataset(x), batch_size=50),
        function=lambda batch: model(batch),
        layer_collection=LayerCollection.from_model(model),
    )
    return gram.data.permute(1, 0, 3, 2).reshape(len(x) * outputs, len(x) * outputs)


def problem(case: Case) -> tuple[nn.Module, torch.Tensor, int]:
    """The case's model and inputs, and its number of outputs."""
    build, draw, outputs = MODELS[case.model]
    torch.manual_seed(0)
    model, x = build(case.width), draw(case.n)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_normal_(parameter)
    return model, x, outputs


def measure(case: Case, way: str, path: str, threads: int) -> dict[str, float]:
    """Compute one kernel in this process, save it, and tell what it took."""
    torch.set_num_threads(threads)
    model, x, outputs = problem(case)
    computations: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "ours": lambda x: tangent_kernel(model, x).total,
        "torch.func": lambda x: by_torch_func(model, x, outputs),
        "NNGeometry": lambda x: by_nngeometry(model, x, outputs),
    }
    computations[way](x[:2])  # the first use of each loads libraries
    memory, cpu, start = _peak_memory(), time.process_time(), time.perf_counter()
    kernel = computations[way](x)
    seconds = time.perf_counter() - start
    cpu, memory = time.process_time() - cpu, _peak_memory() - memory
    torch.save(kernel.detach(), path)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "outputs": outputs,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_growth_mb": memory / 1e6,
    }


def _peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes; Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) * 1024


def measure_neural_tangents(case: Case, path: str, python: str, threads: int) -> dict[str, object]:
    """The same by neural-tangents, which runs in another environment; MLPs only."""
    model, x, outputs = problem(case)
    arrays = {"x": x.numpy()}
    for number, layer in enumerate(model.layers):
        arrays[f"weight{number}"] = layer.weight.detach().numpy()
        arrays[f"bias{number}"] = layer.bias.detach().numpy()
    np.savez(f"{path}.npz", **arrays)
    script = HERE / "by_neural_tangents.py"
    command = [python, str(script), f"{path}.npz", f"{path}.npy", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    torch.save(torch.from_numpy(np.load(f"{path}.npy")), path)
    result = json.loads(done.stdout)
    print(result.pop("versions"), result.pop("implementation"))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "outputs": outputs, **result}


def run_case(
    case: Case, ways: tuple[str, ...], threads: int, python: str | None
) -> list[dict[str, object]]:
    """Measure a case in every way, each in a new process, and compare the kernels."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for way in ways:
            path = f"{folder}/{way}.pt"
            row = {"model": case.model, "width": case.width, "n": case.n, "way": way}
            row["load"] = round(os.getloadavg()[0], 1)
            if way == NEURAL_TANGENTS:
                row |= measure_neural_tangents(case, path, python, threads)
            else:
                request = json.dumps([case.model, case.width, case.n, way, path, threads])
                command = [sys.executable, __file__, "--measure", request]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                row |= json.loads(done.stdout)
            ours, kernel = torch.load(f"{folder}/ours.pt"), torch.load(path)
            row["difference"] = float((kernel - ours).norm() / ours.norm())
            row["times_ours"] = row["cpu_seconds"] / (rows or [row])[0]["cpu_seconds"]
            rows.append(row)
            print(row, flush=True)
    return rows


def versions(threads: int, python: str | None) -> str:
    """One line on what was run and where."""
    cpu = platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
        cpu = f"{names[0]} ({cpu})" if names else cpu
    geometry = "not installed, its rows are left out"
    if importlib.util.find_spec("nngeometry"):
        geometry = importlib.metadata.version("nngeometry")
    jax = "not installed, its row is left out"
    if python:
        code = "import jax, neural_tangents as nt; print(nt.__version__, 'on JAX', jax.__version__)"
        done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        jax = done.stdout.strip()
    return (
        f"Python {platform.python_version()}, PyTorch {torch.__version__}, NNGeometry {geometry}, "
        f"neural-tangents {jax}; "
        f"{cpu}, threads: {threads} on {os.cpu_count()} cores, float32."
    )


def table(rows: list[dict[str, object]], description: str) -> str:
    """The rows as Markdown."""
    lines = [
        "# Time and memory of the tangent kernel",
        "",
        "Made by `python benchmarks/tangent_kernel.py`, which says what it needs. " + description,
        "Peak memory is the growth of the process. Difference is the relative Frobenius distance",
        "from our kernel, times ours the ratio of CPU seconds, which other load disturbs least.",
        "Load is the machine's load average before the measurement; 0 is idle. neural-tangents is",
        "the fastest of its implementations, compiled beforehand.",
        "",
        "| model | width | parameters | n·c | way | seconds | CPU seconds | peak MB | times ours |"
        " difference | load |",
        "|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['model']} | {row['width']} | {row['parameters']:,} "
            f"| {row['n']}·{row['outputs']} | {row['way']} | {row['seconds']:.1f} "
            f"| {row['cpu_seconds']:.2f} | {row['peak_growth_mb']:,.0f} "
            f"| {row['times_ours']:.1f} | {row['difference']:.1e} | {row['load']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all cases, or one in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", help="for the benchmark's own processes")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jax", help="interpreter of an environment with neural-tangents")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the two tables")
    arguments = parser.parse_args()
    if arguments.measure:
        model, width, n, way, path, threads = json.loads(arguments.measure)
        print(json.dumps(measure(Case(model, width, n), way, path, threads)))
        return
    description = versions(arguments.threads, arguments.jax)
    missing = {NEURAL_TANGENTS} if arguments.jax is None else set()
    if importlib.util.find_spec("nngeometry") is None:
        missing.add("NNGeometry")
    rows: list[dict[str, object]] = []
    for case in CASES:
        if case.model in arguments.models:
            ways = tuple(way for way in case.ways if way not in missing)
            rows += run_case(case, ways, arguments.threads, arguments.jax)
            _write(rows, description, arguments.output)  # so that a stopped run is not lost


def _write(rows: list[dict[str, object]], description: str, folder: Path) -> None:
    with (folder / "tangent_kernel.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (folder / "tangent_kernel.md").write_text(table(rows, description))


if __name__ == "__main__":
    main()

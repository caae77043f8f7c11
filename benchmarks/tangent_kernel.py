"""Time and memory of the exact tangent kernel, compared with other ways and with a lower bound.

    PYTHONPATH=src:PLACE python benchmarks/tangent_kernel.py --jax PYTHON

The other ways are torch.func (vmap of jacrev, some samples at a time), a loop (one backward pass
for each sample and output), NNGeometry and neural-tangents. The last two are not dependencies of
the project: PLACE is a folder with NNGeometry (`pip install --no-deps --target PLACE nngeometry`),
PYTHON the interpreter of an environment with neural-tangents 0.6.5 and a JAX of its time
(`pip install neural-tangents==0.6.5 "jax[cpu]==0.4.23" "numpy<2" "scipy<1.12"`). Rows of missing
packages are omitted, and the table says so; this includes the published models without timm and
transformers (`pip install -e .[zoo]`).

Every measurement runs in its own process, so that memory is its own. The results of all ways are
compared with ours. `floor` gives the least that ours could take. Writes
benchmarks/tangent_kernel.csv and .md, or on a GPU (`--device cuda`) tangent_kernel_gpu.csv and .md:
there seconds are compared, memory is the GPU's, and networks of the published width are added.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from floor import floor
from measuring import in_new_process, measured
from networks import MODELS, perturbed
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from feature_alignment.kernels.tangent import tangent_kernel

OURS, FUNC, LOOP = "ours", "torch.func", "loop"
CALLS, SHORT = 3, 10  # the fastest of CALLS counts if the first takes less than SHORT seconds
NNGEOMETRY, NEURAL_TANGENTS = "NNGeometry", "neural-tangents"
HERE = Path(__file__).resolve().parent

Row = dict[str, object]


@dataclass(frozen=True)
class Case:
    """A model on n samples, and the ways to measure on it; our own models have a width."""

    model: str
    n: int
    width: int = 0
    ways: tuple[str, ...] = (OURS, FUNC, LOOP)

    @property
    def title(self) -> str:
        """The model with its width."""
        return f"{self.model}, width {self.width}" if self.width else self.model


# The other ways run if they fit into 8 GB and a few minutes; NNGeometry has no embeddings.
CASES = [
    Case("VGG19", 25, 16, (OURS, FUNC, LOOP, NNGEOMETRY)),
    Case("VGG19", 100, 16),
    Case("VGG19", 100, 64, (OURS,)),
    Case("ResNet18", 50, 16, (OURS, FUNC, LOOP, NNGEOMETRY)),
    Case("GPT", 50, 64),
    Case("MLP", 100, 256, (OURS, FUNC, LOOP, NNGEOMETRY, NEURAL_TANGENTS)),
    Case("MLP", 300, 256, (OURS, NNGEOMETRY)),
    Case("MLP", 30, 1024, (OURS, FUNC, LOOP, NNGEOMETRY)),
    Case("MLP", 300, 1024, (OURS, NNGEOMETRY)),
    Case("MLP", 1000, 1024, (OURS,)),
    Case("ViT", 24),
    Case("GPT-2", 24),
    Case("LLaMA", 24),
    Case("BERT", 24),
    Case("Mixer", 24),
    Case("ConvNeXt", 24),
    Case("MobileNetV3", 24),
    Case("timm-ResNet18", 16),
    Case("TransformerEncoder", 24),
    Case("LSTM", 50),
]
# Cases in which the Jacobians of the other ways fit into some 25 GB.
GPU_CASES = [
    Case("VGG19", 25, 64, (OURS, FUNC, NNGEOMETRY)),
    Case("ResNet18", 50, 64, (OURS, FUNC, NNGEOMETRY)),
]


def by_ours(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The engine."""
    return tangent_kernel(model, x).total


def by_torch_func(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The usual recipe: vmap of jacrev gives the Jacobian, its product the kernel."""
    values = {name: value.detach() for name, value in model.named_parameters()}

    def f(moving: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, moving, (sample[None],))[0]

    jacobian = torch.func.vmap(torch.func.jacrev(f), in_dims=(None, 0))
    rows: dict[str, torch.Tensor] = {}
    with sdpa_kernel(SDPBackend.MATH):  # vmap supports no other attention
        for start in range(0, len(x), 8):  # a few samples at a time, so that their graphs fit
            for name, block in jacobian(values, x[start : start + 8]).items():
                if name not in rows:
                    rows[name] = block.new_empty(len(x), block.shape[1], values[name].numel())
                rows[name][start : start + 8] = block.flatten(2)
    return _gram([block.flatten(0, 1) for block in rows.values()])


def by_loop(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """One backward pass for each sample and output, and one product for each parameter."""
    parameters = list(model.parameters())
    rows: list[torch.Tensor] = []
    for i in range(len(x)):
        f = model(x[i : i + 1]).flatten()
        if not rows:
            rows = [p.new_empty(len(x) * len(f), p.numel()) for p in parameters]
        for y, output in enumerate(f):
            found = torch.autograd.grad(
                output, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for row, gradient in zip(rows, found, strict=True):
                row[i * len(f) + y] = gradient.flatten()
    return _gram(rows)


def by_nngeometry(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
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
    kernel = gram.data.permute(1, 0, 3, 2)
    return kernel.flatten(2).flatten(0, 1)


def _gram(rows: list[torch.Tensor]) -> torch.Tensor:
    total = rows[0].new_zeros(len(rows[0]), len(rows[0]))
    for features in rows:
        total += features @ features.T
    return total


WAYS: dict[str, Callable[[nn.Module, torch.Tensor], torch.Tensor]] = {
    OURS: by_ours,
    FUNC: by_torch_func,
    LOOP: by_loop,
    NNGEOMETRY: by_nngeometry,
}


def problem(case: Case, device: str = "cpu") -> tuple[nn.Module, torch.Tensor]:
    """The case's model and inputs."""
    torch.manual_seed(0)
    network = MODELS[case.model]
    model, x = perturbed(network.build(case.width)), network.draw(case.n)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return model.to(device), x.to(device)


def measured_on_gpu(compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
    """Like `measured`, with the GPU's memory, after everything started on it has finished."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    cpu = time.process_time()
    result = compute()
    torch.cuda.synchronize()
    return result, {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_growth_mb": (torch.cuda.max_memory_allocated() - before) / 1e6,
    }


def measure(case: Case, way: str, path: str, threads: int, device: str) -> Row:
    """Compute one kernel in this process, save it, and return its time and memory.

    Times are the fastest call's, memory is the first's.
    """
    torch.set_num_threads(threads)
    model, x = problem(case, device)
    WAYS[way](model, x[:2])  # the first use of each loads libraries
    on = measured if device == "cpu" else measured_on_gpu
    kernel, taken = on(lambda: WAYS[way](model, x))
    for _ in range(CALLS - 1 if taken["cpu_seconds"] < SHORT else 0):
        _, again = on(lambda: WAYS[way](model, x))
        taken |= {key: min(taken[key], again[key]) for key in ("seconds", "cpu_seconds")}
    torch.save(kernel.detach().cpu(), path)
    return taken


def measure_floor(case: Case, threads: int, device: str) -> Row:
    """The least that our kernel takes, in CPU seconds (on a CPU only), and the parameters."""
    torch.set_num_threads(threads)
    model, x = problem(case)
    best = floor(model, x) if device == "cpu" else {}
    return {"parameters": sum(p.numel() for p in model.parameters()), **best}


def measure_neural_tangents(case: Case, path: str, python: str, threads: int) -> Row:
    """The kernel by neural-tangents, which runs in another environment; MLPs only."""
    model, x = problem(case)
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
    return result


def run_case(
    case: Case, ways: list[str], threads: int, python: str | None, device: str
) -> list[Row]:
    """Measure a case in every way, each in a new process, and compare the kernels."""
    best = in_new_process(measure_floor, case, threads, device)
    parameters = best.pop("parameters")
    compared = "cpu_seconds" if device == "cpu" else "seconds"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for way in ways:
            path = f"{folder}/{way}.pt"
            row: Row = {"model": case.title, "parameters": parameters, "n": case.n}
            row |= {"outputs": MODELS[case.model].outputs, "way": way}
            row["load"] = round(os.getloadavg()[0], 1)
            if way == NEURAL_TANGENTS:
                row |= measure_neural_tangents(case, path, python, threads)
            else:
                row |= in_new_process(measure, case, way, path, threads, device)
            ours, kernel = torch.load(f"{folder}/{OURS}.pt"), torch.load(path)
            row["difference"] = float((kernel - ours).norm() / ours.norm())
            row["times_ours"] = row[compared] / (rows or [row])[0][compared]
            if way == OURS and best:
                row |= best | {"multiple": row["cpu_seconds"] / best["floor_seconds"]}
            rows.append(row)
            print(row, flush=True)
    return rows


def missing_packages(python: str | None) -> set[str]:
    """What cannot be measured here: ways, and packages with models."""
    needed = {network.package for network in MODELS.values()} - {None}
    missing = {name for name in needed if importlib.util.find_spec(name) is None}
    if importlib.util.find_spec("nngeometry") is None:
        missing.add(NNGEOMETRY)
    return missing if python else missing | {NEURAL_TANGENTS}


def versions(threads: int, python: str | None, missing: set[str], device: str) -> str:
    """What was run and where, in two sentences."""
    cpu = platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
        cpu = f"{names[0]} ({cpu})" if names else cpu
    found = [f"Python {platform.python_version()}", f"PyTorch {torch.__version__}"]
    for name in ("timm", "transformers", NNGEOMETRY):
        if name not in missing:
            found.append(f"{name} {importlib.metadata.version(name.lower())}")
    if python:
        code = "import jax, neural_tangents as nt; print(nt.__version__, 'on JAX', jax.__version__)"
        done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        found.append(f"{NEURAL_TANGENTS} {done.stdout.strip()}")
    left_out = f" Not installed, so left out: {', '.join(sorted(missing))}." if missing else ""
    if device != "cpu":
        cpu = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}; {cpu}"
    where = f"{cpu}, threads: {threads} on {os.cpu_count()} cores, float32."
    return f"{', '.join(found)}; {where}{left_out}"


def table(rows: list[Row], description: str, device: str) -> str:
    """The rows as Markdown."""
    here, ratio = "process", "CPU seconds, which other load disturbs least"
    if device != "cpu":
        here, ratio = "GPU's memory", "seconds"
    lines = [
        "# Time and memory of the tangent kernel",
        "",
        "Made by `python benchmarks/tangent_kernel.py`, which says what it needs. " + description,
        f"Times are the fastest of {CALLS} calls, after one on two samples; of one that takes over",
        f"{SHORT} seconds there is no other. neural-tangents: the best implementation, compiled",
        f"beforehand. Peak memory is the growth of the {here} in the first call.",
        "Difference is the relative Frobenius distance from our kernel, times ours the ratio of",
        f"{ratio}.",
        "The floor is what ours would take at best, in CPU seconds: a forward pass and c backward",
        "passes, measured, and the fewest multiplications that contract what they give, at the",
        "rate of a large product of matrices; the multiple of it is what ours takes. Load is the",
        "machine's load average before the measurement; 0 is idle.",
        "",
        "| model | parameters | n·c | way | CPU seconds | seconds | peak MB | times ours |"
        " floor seconds | multiple | difference | load |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        best = f"{row['floor_seconds']:.2f} | {row['multiple']:.1f}" if "multiple" in row else " | "
        lines.append(
            f"| {row['model']} | {row['parameters']:,} | {row['n']}·{row['outputs']} "
            f"| {row['way']} | {row['cpu_seconds']:.2f} | {row['seconds']:.2f} "
            f"| {row['peak_growth_mb']:,.0f} | {row['times_ours']:.1f} | {best} "
            f"| {row['difference']:.1e} | {row['load']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all cases and write both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jax", help="interpreter of an environment with neural-tangents")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the two tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device, on_gpu = options.device, options.device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU here; leave it out to measure the CPU.")
    python = None if on_gpu else options.jax
    missing = missing_packages(python)
    description = versions(options.threads, python, missing, device)
    file = options.output / ("tangent_kernel_gpu" if on_gpu else "tangent_kernel")
    rows: list[Row] = []
    for case in [*CASES, *GPU_CASES] if on_gpu else CASES:
        if case.model in options.models and MODELS[case.model].package not in missing:
            ways = [way for way in case.ways if way not in missing]
            rows += run_case(case, ways, options.threads, python, device)
            # After every case, so that a stopped run is not lost.
            pd.DataFrame(rows).to_csv(file.with_suffix(".csv"), index=False)
            file.with_suffix(".md").write_text(table(rows, description, device))


if __name__ == "__main__":
    main()

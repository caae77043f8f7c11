"""The scripts of benchmarks/ still run: on tiny sizes, in this process."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from feature_alignment.gradients import position_gram
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.gradients.position_gram import form_costs
from feature_alignment.gradients.samples import as_samples

FOLDER = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "by_neural_tangents")


@pytest.fixture
def script(monkeypatch):
    """A function that imports a script, whose processes are then calls."""
    monkeypatch.syspath_prepend(FOLDER)

    def load(name):
        module = importlib.import_module(name)
        if hasattr(module, "in_new_process"):
            monkeypatch.setattr(module, "in_new_process", lambda f, *arguments: f(*arguments))
        return module

    return load


def run(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    module.main()


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_names_it_imports_exist(script, name):
    script(name)


def test_the_ways_to_the_kernel_agree_and_ours_is_measured_beside_its_floor(
    script, monkeypatch, tmp_path
):
    module = script("tangent_kernel")
    monkeypatch.setattr(script("floor"), "product_rate", lambda: 100.0)
    cases = [module.Case("MLP", 3, 4), module.Case("VGG19", 2, 1)]
    monkeypatch.setattr(module, "CASES", cases)
    run(module, monkeypatch, "--models", "MLP", "--output", tmp_path)
    rows = pd.read_csv(tmp_path / "tangent_kernel.csv")
    assert list(rows["way"]) == ["ours", "torch.func", "loop"]
    assert (rows["difference"] < 1e-5).all()
    ours = rows[rows["way"] == "ours"]
    assert np.allclose(ours["multiple"] * ours["floor_seconds"], ours["cpu_seconds"])
    assert rows[rows["way"] != "ours"]["multiple"].isna().all()
    text = (tmp_path / "tangent_kernel.md").read_text()
    assert text.count("| loop |") == 1
    assert "left out: " in text
    assert "neural-tangents" in text.split("left out: ")[1].splitlines()[0]


@pytest.mark.parametrize(("seconds", "fastest"), [((3, 1, 2), 1), ((2, 9, 9), 2), ((20, 1, 1), 20)])
def test_the_fastest_of_three_short_calls_counts_and_the_memory_of_the_first(
    script, monkeypatch, tmp_path, seconds, fastest
):
    module, given = script("tangent_kernel"), iter(seconds)

    def measured(compute):
        taken = float(next(given))
        times = {"seconds": taken, "cpu_seconds": taken, "peak_growth_mb": taken}
        return compute(), times

    monkeypatch.setattr(module, "measured", measured)
    taken = module.measure(module.Case("MLP", 2, 4), "ours", tmp_path / "kernel.pt", 1, "cpu")
    assert taken == {"seconds": fastest, "cpu_seconds": fastest, "peak_growth_mb": seconds[0]}


def test_on_a_gpu_seconds_are_compared_and_wider_networks_added(script, monkeypatch, tmp_path):
    module = script("tangent_kernel")
    cuda = {
        "is_available": lambda: True,
        "get_device_name": lambda: "a GPU of the test",
        "synchronize": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "memory_allocated": lambda: 10**6,
        "max_memory_allocated": lambda: 4 * 10**6,
    }
    for name, function in cuda.items():
        monkeypatch.setattr(torch.cuda, name, function)
    on_the_cpu, asked = module.problem, []

    def problem(case, device="cpu"):
        asked.append(device)
        return on_the_cpu(case)

    monkeypatch.setattr(module, "problem", problem)
    monkeypatch.setattr(module, "in_new_process", lambda function, *given: function(*given))
    monkeypatch.setattr(module, "CASES", [])
    monkeypatch.setattr(module, "GPU_CASES", [module.Case("MLP", 3, 4)])
    run(module, monkeypatch, "--device", "cuda", "--output", tmp_path)
    assert asked == ["cpu", "cuda", "cuda", "cuda"]
    rows = pd.read_csv(tmp_path / "tangent_kernel_gpu.csv")
    assert list(rows["way"]) == ["ours", "torch.func", "loop"]
    assert np.allclose(rows["times_ours"], rows["seconds"] / rows["seconds"][0])
    assert (rows["peak_growth_mb"] == 3).all()
    text = (tmp_path / "tangent_kernel_gpu.md").read_text()
    assert "a GPU of the test" in text
    assert "times ours the ratio of seconds." in " ".join(text.split())


def test_without_a_gpu_none_is_measured(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        run(script("tangent_kernel"), monkeypatch, "--device", "cuda", "--output", tmp_path)
    assert "PyTorch sees no GPU here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["MLP", "VGG19", "ResNet18", "GPT", "TransformerEncoder", "LSTM"])
def test_networks_have_the_outputs_they_are_listed_with(script, name):
    network = script("networks").MODELS[name]
    with torch.no_grad():
        assert network.build(4).eval()(network.draw(2)).shape == (2, network.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["timm", "transformers"])
def test_published_networks_have_the_outputs_they_are_listed_with(script, package):
    pytest.importorskip(package)
    for network in script("networks").MODELS.values():
        if network.package == package:
            with torch.no_grad():
                assert network.build(0).eval()(network.draw(2)).shape == (2, network.outputs)


@pytest.mark.parametrize(
    ("layer", "shape", "positions", "weight", "groups"),
    [
        (nn.Linear(30, 20), (30,), 1, (20, 30), 1),
        (nn.Linear(5, 6), (3, 5), 3, (6, 5), 1),
        (nn.Linear(7, 90), (40, 7), 40, (90, 7), 1),
        (nn.Conv2d(4, 6, 3, groups=2), (4, 8, 8), 36, (3, 18), 2),
    ],
)
def test_the_floor_counts_the_multiplications_of_the_cheapest_form(
    script, monkeypatch, layer, shape, positions, weight, groups
):
    monkeypatch.setattr(position_gram, "_MOVE", 0)
    monkeypatch.setattr(position_gram, "_NARROW", 1)
    monkeypatch.setattr(position_gram, "_ROUND", 0)
    layer.bias = None
    few, n = as_samples(torch.randn(3, *shape)), 10
    plan = plan_capture(nn.Sequential(layer, nn.Tanh(), nn.Flatten(), Sums(4)), few)
    costs = form_costs((n, n), 4, (positions,) * 2, weight, symmetric=True, groups=groups)
    assert script("floor").kernel_multiplications(plan, few, n) == min(costs.values())


class Sums(nn.Module):
    """The entries' weighted sums, all of whose gradients differ."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs

    def forward(self, x):
        waves = torch.outer(torch.arange(x.shape[1]) + 1.0, torch.arange(self.outputs) + 1.0)
        return x @ waves.sin()


def test_the_floor_passes_backward_once_for_each_output(script):
    passes = []

    class Watched(nn.Linear):
        def forward(self, x):
            h = super().forward(x)
            if h.requires_grad:
                h.register_hook(lambda gradient: passes.append(1))
            return h

    few = as_samples(torch.randn(3, 5))
    plan = plan_capture(nn.Sequential(Watched(5, 6), nn.Linear(6, 4)), few)
    passes.clear()
    script("floor").run_passes(plan, few)
    assert len(passes) == 4


@pytest.mark.slow
def test_memory_that_was_freed_before_does_not_hide_what_is_measured():
    code = """
import torch
from measuring import measured

torch.ones(10**8)
print(measured(lambda: torch.ones(2 * 10**7))[1]["peak_growth_mb"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    assert 70 < float(done.stdout) < 100


@pytest.mark.slow
def test_growth_is_tabled_and_drawn_and_blocks_are_seen(script, monkeypatch, tmp_path):
    module = script("tangent_growth")
    monkeypatch.setattr(module, "FIXED", {"GPT": (2, 3, 4, 1, 4, 50), "MLP": (8, 4, 128, 2, 1, 50)})
    first = {"GPT": {"width": 4}, "MLP": {"n": 2, "budget (MB)": 1}, "VGG": {}}
    monkeypatch.setattr(module, "FIRST", first)
    run(module, monkeypatch, "--output", tmp_path, "--models", "GPT", "MLP")
    table = pd.read_csv(tmp_path / "tangent_growth.csv")
    assert {"torch", "python", "processor", "commit"} <= set(table)
    assert list(table["value"]) == [4, 8, 16, 32, 64, 2, 4, 8, 16, 32, 1, 2, 4, 8, 16]
    assert (table["blocks"] == 1).all()
    assert (tmp_path / "tangent_growth.png").stat().st_size > 10_000
    sizes = dict(zip(module.AXES, (64, 10, 256, 2, 1, 1), strict=True))
    assert module.measure("MLP", sizes)["blocks"] > 1


def test_the_trace_is_timed_beside_its_passes(script, monkeypatch, tmp_path):
    module = script("tangent_trace")
    monkeypatch.setattr(module, "MODELS", {"MLP": lambda: module._mlp(3)})
    path = tmp_path / "trace.csv"
    run(module, monkeypatch, "--samples", 3, "--repeats", 1, "--output", path)
    (row,) = pd.read_csv(path).to_dict("records")
    assert row["trace_over_step"] > 0
    assert row["passes_over_step"] > 0

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import feature_alignment as fa
from feature_alignment.kernels.tangent_grams import TangentKernel
from feature_alignment.version import own_version

ROOT = Path(fa.__file__).parent


def test_every_name_is_there_and_documented():
    for name in fa.__all__:
        value = getattr(fa, name)
        assert value.__doc__, name
        assert name in dir(fa)


def test_type_checkers_are_told_of_every_name_and_of_no_other():
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    imports = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    told = {(name.asname, f"{line.module}") for line in imports for name in line.names}
    assert told == {(name, f"feature_alignment.{home}") for name, home in fa._HOMES.items()}


X, Y, MODEL = torch.ones(6, 4), torch.arange(6) % 3, nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(
            (lambda take=take: take(torch.tanh), "model: a builtin_.*; give a torch.nn.Module")
            for take in (
                fa.copy_parameters,
                fa.layer_matrices,
                lambda model: fa.groups_by_layer(model, 1.0),
                lambda model: fa.path_norm(model, (4,)),
                lambda model: fa.tangent_kernel(model, X),
            )
        ),
        (lambda: fa.tangent_kernel(MODEL, X, only=lambda name: True), "only: a function; give"),
        (lambda: fa.tangent_kernel(MODEL, X, plan=3), "plan: a int; give the result of plan_cap"),
        (lambda: fa.Jacobian(MODEL, X).times(torch.ones(15)), "direction: a Tensor; give values"),
        (lambda: fa.TangentKernelProbe({"train": (X, Y)}), "batches: 'train': a tuple; give a"),
        (lambda: fa.TangentKernelProbe(fa.Batch(X, Y)), "batches: a Batch; give a Batch for each"),
        (lambda: fa.AdaptedKernelProbe(MODEL, X), "batch: a Tensor; give a Batch of inputs and"),
        (lambda: fa.effective_penalty("square"), "penalty: a str; give a function"),
        (lambda: fa.free_trace("A", {"A": torch.eye(2)}), "families: 'A': a Tensor; give a"),
        (
            lambda: fa.predicted_correlation(fa.data_matrices(X, Y), [1, 2, 3, 4]),
            r"data_trace: a dict; give matrix_trace\(data_matrices",
        ),
        (lambda: fa.label_alignment(torch.eye(6), np.array(list("abcdef"))), "y: it is not an"),
        (lambda: fa.kernel_alignment(np.array(["a"]), torch.eye(6)), "kernel: it is not an arr"),
        (
            lambda: fa.AdaptiveTangentFeatures(nn.Linear).fit(X.numpy(), Y.numpy()),
            "network: Linear is a class; give an instance",
        ),
    ],
)
def test_arguments_of_another_kind_are_told_in_one_sentence(wrong, said):
    with pytest.raises(ValueError, match=rf"^{said}"):
        wrong()


@pytest.mark.parametrize(
    "take",
    [
        fa.copy_parameters,
        fa.layer_matrices,
        lambda model: fa.fisher_rao_norm(model, X, Y),
        lambda model: fa.path_norm(model, (4,)),
        lambda model: fa.UpdatePath(model, lambda model: 1.0),
    ],
)
@pytest.mark.parametrize("model", [nn.LazyLinear(3), nn.Linear(4, 3, device="meta")])
def test_parameters_without_values_are_told_in_one_sentence(take, model):
    with pytest.raises(ValueError, match=r"^parameter 'weight' (has no shape|is on the d)"):
        take(model)


def test_a_kernel_has_its_layers_names():
    kernel = fa.tangent_kernel(nn.Sequential(MODEL, nn.Linear(3, 2)), X)
    assert list(kernel) == ["0", "1"]
    assert "0" in kernel
    assert "weight" not in kernel


def test_read_only_arrays_are_taken_without_a_warning(recwarn):
    kernel = np.eye(6)
    kernel.flags.writeable = False
    assert fa.kernel_alignment(kernel, torch.eye(6)) == pytest.approx(1)
    assert fa.Jacobian(nn.Linear(4, 3), X).times({"bias": kernel[0, :3]}).any()
    assert not recwarn


def test_no_name_is_that_of_a_room():
    assert not {path.name for path in ROOT.iterdir() if path.is_dir()} & set(fa.__all__)


def test_importing_it_loads_no_torch():
    code = "import sys, feature_alignment; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_of_a_checkout_is_that_of_its_project():
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"]
    assert own_version() == f"{project['version']}+checkout"


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'tangent_kernels'"):
        fa.__getattr__("tangent_kernels")


def test_a_missing_package_is_asked_for_by_its_extra(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn.base")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'feature-alignment\[solver\]'"):
        fa.__getattr__("AdaptiveTangentFeatures")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("LightningMonitor", "lightning.pytorch"),
        ("TrainerMonitor", "transformers.trainer_callback"),
    ],
)
def test_a_callback_without_its_package_asks_for_it(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "feature_alignment.instrument.callbacks", raising=False)
    with pytest.raises(ImportError, match=rf"{name} needs (\w+): pip install \1\."):
        fa.__getattr__(name)
    monkeypatch.undo()
    sys.modules.pop("feature_alignment.instrument.callbacks", None)


def test_products_with_j_are_in_the_models_precision_under_autocast():
    torch.manual_seed(0)
    model, x, u = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), *torch.randn(2, 5, 3)
    jacobian = fa.Jacobian(model, x)
    expected = jacobian.transpose_times(u[:, :2])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = jacobian.transpose_times(u[:, :2])
        products = jacobian.times(expected)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(products, jacobian.times(expected), rtol=1e-6, atol=1e-6)


def test_a_kernel_of_large_entries_is_not_taken_for_a_constant_one():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1, bias=False), torch.randn(6, 4)
    expected = fa.tangent_kernel(model, x).spectrum()
    found = fa.tangent_kernel(model, 1e10 * x).spectrum()  # its norm overflows float32
    np.testing.assert_allclose(found[:4], 1e20 * expected[:4], rtol=1e-4)


class TestTangentKernel:
    @pytest.fixture
    def kernel(self):
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
        self.model, self.x = nn.Sequential(block, nn.Linear(4, 2)).double(), torch.randn(5, 3)
        return fa.tangent_kernel(self.model, self.x.double())

    def test_centred_features_have_the_mean_zero_for_each_output(self, kernel):
        features = fa.tangent_features(self.model, self.x.double())
        features = (features - features.mean(0)).flatten(0, 1)
        torch.testing.assert_close(kernel.centred, features @ features.T)

    def test_spectrum_and_rank_are_those_of_the_centred_or_raw_kernel(self, kernel):
        for centred, matrix in ((True, kernel.centred), (False, kernel.total)):
            expected = torch.linalg.eigvalsh(matrix).flip(0).clamp(min=0)
            found = torch.from_numpy(kernel.spectrum(centred=centred).copy())
            torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
        shares = expected / expected.sum()
        rank = float(torch.special.entr(shares).sum().exp())
        assert kernel.effective_rank(centred=False) == pytest.approx(rank)

    @pytest.mark.parametrize("centred", [True, False])
    def test_a_kernel_that_is_not_finite_has_no_spectrum(self, centred):
        kernel = TangentKernel({"": torch.tensor([[torch.inf, 0.0], [0.0, 1.0]])}, 1)
        with pytest.raises(ValueError, match="holds values that are not finite"):
            kernel.spectrum(centred=centred)

    def test_layers_have_kernels_of_their_own(self, kernel):
        layer = kernel["0.2"]
        torch.testing.assert_close(layer.total, kernel.layers["0.2"])
        assert layer.effective_rank() < kernel.effective_rank()
        with pytest.raises(KeyError, match=r"0\.1"):
            _ = kernel["0.1"]
        with pytest.raises(ValueError, match=r"kernel: .*; give its `total` or `centred`"):
            fa.eigenfunctions(kernel, 2)

    def test_blocks_add_up(self, kernel):
        assert list(kernel.layers) == ["0.0", "0.2", "1"]
        blocks = kernel.by_block()
        assert list(blocks.layers) == ["0", "1"]
        torch.testing.assert_close(blocks.total, kernel.total)
        torch.testing.assert_close(blocks.layers["0"], kernel.layers["0.0"] + kernel.layers["0.2"])
        for depth in (0, 1.5):
            with pytest.raises(ValueError, match=f"depth: {depth}; it must be a whole number"):
                kernel.by_block(depth)

    def test_a_kernel_between_two_sets_has_no_spectrum(self, kernel):
        other = fa.tangent_kernel(self.model, self.x.double(), self.x.double().flip(0))
        with pytest.raises(ValueError, match="between two sets of samples"):
            other.spectrum()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_centred_kernel_of_mere_rounding_has_no_spectrum(self, dtype):
        torch.manual_seed(0)
        layers = [nn.Linear(8, 8), *[nn.Linear(8, 8) for _ in range(40)]]
        for layer in layers:  # so deep that the output hardly depends on the sample
            layer.weight.data *= 0.4
        model, x = nn.Sequential(*layers).to(dtype), torch.randn(6, 8, dtype=dtype)
        with pytest.raises(ValueError, match="features are the same for all samples"):
            fa.tangent_kernel(model, x).effective_rank()

    def test_it_tells_its_size(self, kernel):
        trace = float(kernel.total.trace())
        assert repr(kernel) == (
            f"TangentKernel(5 samples, 2 outputs; 10 × 10, float64; trace {trace:.4g}; 3 layers)"
        )
        two = fa.tangent_kernel(self.model, self.x.double(), self.x[:2].double())
        assert repr(two).startswith("TangentKernel(5 by 2 samples")


def cosine(a, b):
    return float((a * b).sum() / (a.norm() * b.norm()))


def test_features_are_in_all_centrings():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(6, 3)
    start = fa.copy_parameters(model)
    with torch.no_grad():
        model[0].weight += 0.3 * torch.randn(4, 3)
    model.train()
    found = fa.features(model, x, start)
    assert model.training
    layer = found["0"]
    torch.testing.assert_close(layer.nfm, model[0].weight.T @ model[0].weight)
    row = found.frame().loc["0"]
    assert row["nfc"] == pytest.approx(cosine(layer.nfm, layer.agop))
    assert row["centred_nfc"] == pytest.approx(cosine(layer.centred_nfm, layer.centred_agop))
    assert row[["double_centred_nfc", "ptk_centred_nfc"]].notna().all()
    assert found.frame().loc["2"].isna()["centred_nfc"]  # its weight has not moved
    assert repr(found).startswith("Features of 2 layers\n0: W 4 × 3, nfc ")


TOKENS = {"input_ids": torch.arange(20).reshape(4, 5) % 11}


def tiny(name):
    """A tiny model of transformers, and its entry that is the output."""
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "gpt2":
        config = hf.GPT2Config(
            n_layer=1, n_head=2, n_embd=8, vocab_size=11, bos_token_id=0, eos_token_id=0
        )
        return hf.GPT2LMHeadModel(config).eval(), lambda found: found.logits[:, -1]
    config = hf.BertConfig(
        num_hidden_layers=1,
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=11,
    )
    return hf.BertForSequenceClassification(config).eval(), "logits"


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_models_of_transformers_are_measured_as_they_are(name):
    model, output = tiny(name)
    kernel = fa.tangent_kernel(model, TOKENS, output=output)
    assert kernel.effective_rank() > 1
    assert len(kernel.by_block(2).layers) < len(kernel.layers)
    frame = fa.features(model, TOKENS, output=output).frame()
    assert frame["nfc"].between(0, 1 + 1e-9).all()
    assert len(frame) > 4
    monitor = fa.Monitor(model, TOKENS, torch.arange(4) % 2, output=output)
    assert {"label_alignment", "nfc"} <= set(monitor.frame()["metric"])


class LowRank(nn.Module):
    """A frozen layer with a trainable change of rank one, as in LoRA."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(3, 4).requires_grad_(False)
        self.down, self.up = nn.Linear(3, 1, bias=False), nn.Linear(1, 4, bias=False)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


def test_only_the_trainable_parameters_of_a_model_count():
    torch.manual_seed(0)
    model, x = nn.Sequential(LowRank(), nn.Tanh()).double(), torch.randn(5, 3).double()
    kernel = fa.tangent_kernel(model, x, only="trainable")
    assert list(kernel.layers) == ["0.down", "0.up"]
    whole = fa.tangent_kernel(model, x)
    torch.testing.assert_close(kernel.layers["0.up"], whole.layers["0.up"])
    monitor = fa.Monitor(model, x, measure=["kernel", "adapted"], only="trainable")
    found = monitor.frame().set_index("metric")["value"]
    assert found["adapted_kernel_change"] == pytest.approx(1)
    assert found["effective_rank"] == kernel.effective_rank()

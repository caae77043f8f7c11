"""What models take and return, and which parameters count."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.parameter_values import select_parameters
from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from zoo.layers import D, Own, T, parameter, sequences, vectors, words
from zoo.models import TEXT
from zoo.oracle import assert_grams, call, grams, jacobian, prepared


class Returns(nn.Module):
    """Two linear layers, whose results are handed over in some shape."""

    def __init__(self, shape):
        super().__init__()
        self.a, self.b, self.shape = nn.Linear(D, 3), nn.Linear(D, 2), shape

    def forward(self, x):
        return self.shape(torch.tanh(self.a(x)), self.b(x) ** 2)


@dataclass
class Output:
    """What a model returns."""

    main: torch.Tensor
    extra: torch.Tensor


SHAPES = {
    "dict by key": (lambda a, b: {"main": a, "extra": b}, "main"),
    "tuple by index": (lambda a, b: (b, a), 1),
    "list by negative index": (lambda a, b: [b, a], -1),
    "dataclass by attribute": (Output, "main"),
    "object by attribute": (lambda a, b: SimpleNamespace(main=a, extra=b), "main"),
    "nested by function": (lambda a, b: {"all": (b, a)}, lambda f: f["all"][1]),
    "function of two": (lambda a, b: (a, b), lambda f: torch.cat([f[0], f[1]], 1)),
    "a tensor by function": (lambda a, b: torch.cat([a, b], 1), lambda f: f[:, 1:3]),
}
PICKS = {
    "main": lambda f: f["main"] if isinstance(f, dict) else f.main,
    1: lambda f: f[1],
    -1: lambda f: f[-1],
}


@pytest.mark.parametrize("name", SHAPES)
def test_outputs_are_picked_out_of_what_the_model_returns(name):
    shape, output = SHAPES[name]
    x, x2 = vectors(3, 0), vectors(2, 1)
    pick = output if callable(output) else PICKS[output]
    rows, columns = (jacobian(prepared(lambda: Returns(shape)), data, pick) for data in (x, x2))
    model = prepared(lambda: Returns(shape))
    assert_grams(tangent_kernel(model, x, output=output), grams(rows))
    assert_grams(tangent_kernel(model, x, x2, output=output), grams(rows, columns))


@pytest.mark.parametrize(
    ("shape", "output", "word"),
    [
        (lambda a, b: {"main": a}, None, "main"),
        (lambda a, b: {"main": a}, "mian", "main"),
        (lambda a, b: (a, b), 2, "2"),
        (lambda a, b: (a, b), None, "tuple"),
        (Output, "mian", "main"),
        (Output, 0, "with 'main', 'extra', where output=0 is no tensor"),
        (lambda a, b: (a, b), "main", "with 0, 1, where output='main' is no tensor"),
        (lambda a, b: SimpleNamespace(main=a), None, "a SimpleNamespace; choose"),
    ],
)
def test_outputs_that_are_not_there_are_refused(shape, output, word):
    model = prepared(lambda: Returns(shape))
    with pytest.raises(ValueError, match="output") as error:
        tangent_kernel(model, vectors(3, 0), **({} if output is None else {"output": output}))
    assert word in str(error.value)
    assert "\n" not in str(error.value)


class Two(nn.Module):
    """A model of two inputs, and of a third that all samples share."""

    def __init__(self):
        super().__init__()
        self.table, self.f, self.head = nn.Embedding(7, D), nn.Linear(D, D), nn.Linear(D, 3)

    def forward(self, tokens, scale, shared=None):
        h = torch.tanh(self.f(self.table(tokens))) * scale[:, None, None]
        return self.head((h if shared is None else h @ shared).sum(1))


SHARED = torch.linspace(-1, 1, D * D, dtype=torch.float64).view(D, D)


def pairs(kind, n, seed):
    """Samples of `Two` as a collection, the scale as numbers of NumPy's where that is asked."""
    values = {"tokens": words(n, seed), "scale": vectors(n, seed)[:, 0]}
    return {
        "dict": values,
        "tuple": tuple(values.values()),
        "list": list(values.values()),
        "arrays": {name: value.numpy() for name, value in values.items()},
    }[kind]


def run(model, x):
    """Call a model on arrays, too."""
    if isinstance(x, dict):
        x = {k: torch.as_tensor(v) for k, v in x.items()}
    return call(model, x)


@pytest.mark.parametrize("kind", ["dict", "tuple", "list", "arrays"])
def test_several_inputs(kind):
    x, x2 = pairs(kind, 3, 0), pairs(kind, 2, 1)
    rows, columns = (jacobian(prepared(Two), data, run=run) for data in (x, x2))
    assert_grams(tangent_kernel(prepared(Two), x), grams(rows))
    assert_grams(tangent_kernel(prepared(Two), x, x2), grams(rows, columns))
    assert_grams(tangent_kernel(prepared(Two), x, x2, memory_budget=2**20), grams(rows, columns))


class OfDict(nn.Module):
    """`Two`, of one dict."""

    def __init__(self):
        super().__init__()
        self.two = Two()

    def forward(self, batch):
        return self.two(**batch)


class Unpacked(OfDict):
    """As docs/engine.md has it."""

    def forward(self, **batch):
        return super().forward(batch)


@pytest.mark.parametrize("measure", [tangent_kernel, Jacobian, layer_feature_matrices])
def test_other_arguments_than_the_models_are_told(measure):
    x = pairs("dict", 3, 0)
    for model, data, word in [
        (OfDict, x, "'batch'"),
        (Two, {"tokens": x["tokens"]}, "'scale'"),
        (Two, x["tokens"], "'scale'"),
    ]:
        with pytest.raises(ValueError, match=r"^x: the model's forward\(\) takes other") as error:
            measure(prepared(model), data)
        assert word in str(error.value)
        assert "\n" not in str(error.value)


def test_a_model_of_one_dict_is_measured_within_another():
    x = pairs("dict", 3, 0)
    expected = grams(jacobian(prepared(Unpacked), x, run=run))
    assert_grams(tangent_kernel(prepared(Unpacked), x), expected)


def test_an_error_of_the_models_own_stays_as_it_is():
    class Broken(nn.Linear):
        def forward(self, x):
            return len(3)

    with pytest.raises(TypeError, match="has no len"):
        tangent_kernel(Broken(D, 2), vectors(3, 0))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_nested_tensors_inside_are_refused(layout):
    class Nested(nn.Linear):
        def forward(self, x):
            parts = torch.nested.as_nested_tensor(list(x), layout=layout)
            return torch.stack([part.mean(0) for part in super().forward(parts).unbind()])

    x = torch.randn(3, 2, D, generator=torch_stream(0, "data"))
    with pytest.raises(ValueError, match="the model makes nested tensors"):
        tangent_kernel(Nested(D, 2), x)


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_inputs_that_all_samples_share(kind):
    def alone(model, data):
        return model(*data, SHARED) if kind == "tuple" else model(**data, shared=SHARED)

    x, x2 = pairs(kind, 3, 0), pairs(kind, 2, 1)
    rows, columns = (jacobian(prepared(Two), data, run=alone) for data in (x, x2))
    inputs = [0, 1] if kind == "tuple" else ["tokens", "scale"]
    given = [(*data, SHARED) if kind == "tuple" else data | {"shared": SHARED} for data in (x, x2)]
    found = tangent_kernel(prepared(Two), *given, inputs=inputs)
    assert_grams(found, grams(rows, columns))
    assert_grams(tangent_kernel(prepared(Two), given[0], inputs=inputs), grams(rows))


def test_options_that_are_no_tensors_are_handed_through():
    class Switch(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(D, 3)

        def forward(self, x, squared=False, mask=None):
            assert mask is None
            return self.f(x) ** 2 if squared else self.f(x)

    x = {"x": vectors(3, 0), "squared": True, "mask": None}
    expected = grams(jacobian(prepared(Switch), x))
    assert_grams(tangent_kernel(prepared(Switch), x), expected)


@pytest.mark.parametrize(
    ("x", "options", "word"),
    [
        ({"tokens": words(3, 0), "scale": torch.ones(2)}, {}, "scale"),
        ({"tokens": words(3, 0), "scale": torch.ones(3)}, {"inputs": ["tokens", "scal"]}, "scale"),
        ((words(3, 0), torch.ones(3)), {"inputs": [0, 2]}, "2"),
        ((words(3, 0), 2.0), {"inputs": [0, 1]}, "inputs: 1 is no tensor among x's entries 0, 1"),
        ((words(3, 0), torch.ones(3)), {"inputs": []}, "x: there is no tensor; the samples run"),
        (words(3, 0), {"inputs": ["tokens", "scale"]}, "'scale'. for a single tensor; give one"),
        (words(3, 0), {"inputs": ["no_such"]}, "takes other arguments"),
        (words(3, 0), {"inputs": [1]}, "inputs: 1 is no tensor among x's entries 0"),
        ({}, {}, "x"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(x, options, word):
    with pytest.raises(ValueError, match=word) as error:
        tangent_kernel(prepared(Two), x, **options)
    assert "\n" not in str(error.value)


def test_an_array_is_taken_as_a_tensor():
    model, x = prepared(lambda: nn.Linear(D, 3)), vectors(3, 0)
    expected = grams(jacobian(model, x))
    assert_grams(tangent_kernel(model, x.numpy()), expected)
    assert_grams(tangent_kernel(model, np.asarray(x), x.numpy()), expected)
    for kind in (">f8", np.longdouble):
        assert_grams(tangent_kernel(model, x.numpy().astype(kind)), expected)
    assert_grams(tangent_kernel(model, x.flip(0).numpy()[::-1]), expected)
    real = prepared(lambda: Own(lambda m, z: m.f(z.real + z.imag), f=model))
    ordered = Own(
        lambda m, z: m.f(z)[:, m.order],
        order=nn.Parameter(torch.arange(3), requires_grad=False),
        f=model,
    )
    torch.testing.assert_close(tangent_kernel(ordered, x.numpy()).total, sum(expected.values()))
    for kind in (bool, np.int8, np.uint8):
        whole = (4 * x.numpy().clip(0)).astype(kind)
        found = tangent_kernel(Own(lambda m, z: m.f(z.double()), f=model), whole)
        torch.testing.assert_close(found.total, tangent_kernel(model, whole.astype(float)).total)
    for kind in (complex, np.clongdouble):
        found = tangent_kernel(real, (0.25 + 0.75j) * x.numpy().astype(kind))
        torch.testing.assert_close(found.total, sum(expected.values()))


@pytest.mark.parametrize("inputs", ["pixels", ["pixels"], ("pixels",), {"pixels"}])
def test_a_tensor_may_be_passed_by_keyword(inputs):
    class Keyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(D, 3)

        def forward(self, words=None, pixels=None):
            return self.f(words * 2 if pixels is None else pixels)

    x = vectors(3, 0)
    expected = grams(jacobian(prepared(Keyword), x, run=lambda model, x: model(pixels=x)))
    assert_grams(tangent_kernel(prepared(Keyword), x, inputs=inputs), expected)


class Body(nn.Module):
    """A model whose body is frozen but for its scale."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D))
        self.scale, self.head = parameter(T, 1), nn.Linear(D, 3)
        self.body.requires_grad_(False)

    def forward(self, x):
        return self.head((self.body(x) * self.scale).sum(1))


ONLY = {
    "trainable": ("trainable", {"scale", "head.weight", "head.bias"}),
    "a module": (["head"], {"head.weight", "head.bias"}),
    "a parameter": (["head.weight"], {"head.weight"}),
    "a module of modules": (
        ("body",),
        {f"body.{k}.{p}" for k in (0, 2) for p in ("weight", "bias")},
    ),
    "a frozen layer and what is trainable": (
        ["body.0", "trainable"],
        {"body.0.weight", "body.0.bias", "scale", "head.weight", "head.bias"},
    ),
    "what is trainable and a frozen bias": (
        ["trainable", "body.0.bias"],
        {"body.0.bias", "scale", "head.weight", "head.bias"},
    ),
    "a frozen layer and a parameter": (
        ["body.0", "scale"],
        {"body.0.weight", "body.0.bias", "scale"},
    ),
}


@pytest.mark.parametrize("name", ONLY)
def test_only_some_parameters_count(name):
    only, names = ONLY[name]
    x, x2 = sequences(3, 0), sequences(2, 1)
    rows, columns = (
        {key: value for key, value in jacobian(prepared(Body), data).items() if key in names}
        for data in (x, x2)
    )
    model = prepared(Body)
    assert_grams(tangent_kernel(model, x, only=only), grams(rows))
    assert_grams(tangent_kernel(model, x, x2, only=only), grams(rows, columns))
    assert [p.requires_grad for p in model.body.parameters()] == [False] * 4


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["again"], ["layer.weight", "layer.bias"]),
        (["again.bias"], ["layer.bias"]),
        (["other.weight"], ["layer.weight"]),
        (["other"], ["layer.weight", "other.bias"]),
        (["other", ""], r"parameter 'phase' is torch\.complex64"),
        (["other.bias", "lay"], r"no 'lay'; did you mean 'layer'\? Allowed: again, again\.bias, "),
    ],
)
def test_parameters_may_be_named_by_their_other_names(only, names):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.other = nn.Linear(D, D), nn.Linear(D, D)
            self.again, self.other.weight = self.layer, self.layer.weight
            self.others = nn.Linear(D, D)
            self.phase = nn.Parameter(torch.ones(1, dtype=torch.complex64))

    if isinstance(names, str):
        with pytest.raises(ValueError, match=names):
            select_parameters(Shared(), only)
    else:
        assert select_parameters(Shared(), only) == names


@pytest.mark.parametrize(
    ("only", "word"), [(["hed"], "head"), ([], "only"), ("trainabel", "trainable")]
)
def test_parameters_that_do_not_exist_are_refused(only, word):
    with pytest.raises(ValueError, match=word) as error:
        tangent_kernel(prepared(Body), sequences(3, 0), only=only)
    assert "only" in str(error.value)


def test_nothing_trainable_is_refused():
    model = prepared(Body).requires_grad_(False)
    with pytest.raises(ValueError, match="trainable"):
        tangent_kernel(model, sequences(3, 0), only="trainable")


def bert():
    """BERT with a classifier."""
    return hf.BertForSequenceClassification(hf.BertConfig(**TEXT))


def test_a_transformers_model_as_it_is():
    x = {
        "input_ids": words(3, 0) + 3,
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]),
    }
    expected = grams(jacobian(prepared(bert), x, lambda f: f.logits))
    model = prepared(bert)
    for output in ("logits", 0, lambda f: f.logits):
        assert_grams(tangent_kernel(model, x, output=output), expected)
    hidden = {"output_hidden_states": True} | x
    pick = lambda f: f.hidden_states[1][:, 0, :2]  # noqa: E731
    expected = grams(jacobian(prepared(bert), hidden, pick))
    assert_grams(tangent_kernel(model, hidden, output=pick), expected)


def test_an_image_and_text_model_with_both_inputs():
    text = {name: value for name, value in TEXT.items() if name != "num_labels"}
    image = {"image_size": 8, "patch_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1}
    sizes = {"hidden_size": 8, "intermediate_size": 12}
    config = hf.CLIPConfig(
        text_config=text, vision_config=image | sizes, projection_dim=3, logit_scale_init_value=0.5
    )
    pixels = torch.randn(
        3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    x = {"input_ids": words(3, 0) + 3, "pixel_values": pixels}

    def pick(f):
        return f.text_embeds * f.image_embeds

    expected = grams(jacobian(prepared(lambda: hf.CLIPModel(config)), x, pick))
    assert_grams(tangent_kernel(prepared(lambda: hf.CLIPModel(config)), x, output=pick), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")  # of the compiler's own
@pytest.mark.parametrize("whole", [True, False])
def test_a_compiled_model_is_measured_as_the_one_it_was_made_from(whole):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3)
    expected = tangent_kernel(model, x)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True) if whole else model
    if not whole:
        model[1].compile(backend="aot_eager")
    compiled(x).sum().backward()
    found = tangent_kernel(compiled, x)
    for mine, theirs in zip(found.layers.values(), expected.layers.values(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert len(layer_feature_matrices(compiled, x)) == 2
    torch._dynamo.reset()

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.gradients.layer_inputs import VectorInputs
from feature_alignment.gradients.parameter_gradients import MatrixGradients
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace
from toys import Toy


def picture(layer, channels=4, dims=2, outputs=3):
    """A layer between two others, so that its inputs and δ depend on the sample."""
    convolution = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
    first, head = convolution(2, channels, 3, padding=1), nn.LazyLinear(outputs)

    def forward(m, x):
        return m.head(torch.tanh(torch.tanh(m.layer(torch.tanh(m.first(x))))).flatten(1))

    return Toy(forward, first=first, layer=layer, head=head)


def sequence(layer, padding_idx=None):
    """Tokens, embedded, through a layer, and pooled."""

    def forward(m, x):
        return m.head(torch.tanh(m.layer(m.embedding(x))).mean(1) ** 2)

    embedding = nn.Embedding(6, 4, padding_idx=padding_idx)
    return Toy(forward, embedding=embedding, layer=layer, head=nn.Linear(4, 3))


def images(n, dims=2, size=5, seed=0):
    shape = (n, 2, *[size + axis for axis in range(dims)])
    return torch.randn(shape, dtype=torch.float64, generator=torch_stream(seed, "data"))


def tokens(n, seed=0):
    return torch.randint(6, (n, 5), generator=torch_stream(seed, "tokens"))


def prepare(build, x):
    torch.manual_seed(0)
    model = build().double()
    with torch.no_grad():
        model(x)  # gives lazy layers their sizes
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.normal_()
    return model.eval()


PICTURES = {
    "convolution": lambda: picture(nn.Conv2d(4, 5, 3)),
    "no bias": lambda: picture(nn.Conv2d(4, 5, 3, bias=False)),
    "1x1": lambda: picture(nn.Conv2d(4, 5, 1)),
    "stride": lambda: picture(nn.Conv2d(4, 5, (3, 2), stride=(2, 3), padding=(0, 2))),
    "dilation": lambda: picture(nn.Conv2d(4, 5, (2, 3), dilation=(3, 2), padding=1)),
    "groups": lambda: picture(nn.Conv2d(4, 6, 3, groups=2, padding=1)),
    "depthwise": lambda: picture(nn.Conv2d(4, 8, 3, groups=4)),
    "same": lambda: picture(nn.Conv2d(4, 5, (2, 3), padding="same", dilation=(1, 2))),
    "valid": lambda: picture(nn.Conv2d(4, 5, 2, padding="valid")),
    "reflect": lambda: picture(nn.Conv2d(4, 5, 3, padding=(1, 2), padding_mode="reflect")),
    "replicate": lambda: picture(nn.Conv2d(4, 5, 3, padding=2, padding_mode="replicate")),
    "circular": lambda: picture(nn.Conv2d(4, 5, 3, padding=(2, 1), padding_mode="circular")),
    "batch norm": lambda: picture(nn.BatchNorm2d(4)),
    "group norm": lambda: picture(nn.GroupNorm(2, 4)),
    "layer norm on images": lambda: picture(nn.LayerNorm((5, 6))),
    "linear on the last axis": lambda: picture(nn.Linear(6, 3)),
}
SEQUENCES = {
    "linear": lambda: sequence(nn.Linear(4, 4)),
    "layer norm": lambda: sequence(nn.LayerNorm(4)),
    "layer norm without shift": lambda: sequence(nn.LayerNorm(4, bias=False)),
    "root mean square norm": lambda: sequence(nn.RMSNorm(4)),
    "padding token": lambda: sequence(nn.Identity(), padding_idx=2),
}


# PyTorch warns that an even window with "same" padding costs it a copy.
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        *(pytest.param(build, images, id=kind) for kind, build in PICTURES.items()),
        *(pytest.param(build, tokens, id=f"{kind}, tokens") for kind, build in SEQUENCES.items()),
        pytest.param(
            lambda: picture(nn.Conv1d(4, 6, 3, 2, padding=2, dilation=2, groups=2), dims=1),
            lambda n, seed=0: images(n, 1, 4, seed),
            id="one dimension",
        ),
        pytest.param(
            lambda: picture(nn.Conv3d(4, 5, (1, 2, 3), stride=(1, 2, 1), padding=1), dims=3),
            lambda n, seed=0: images(n, 3, 4, seed),
            id="three dimensions",
        ),
    ],
)
def test_layers_agree_with_the_explicit_jacobian(
    build, inputs, explicit_kernel, assert_same_kernel
):
    x, x2 = inputs(4), inputs(3, seed=1)
    model = prepare(build, x)
    assert plan_capture(model, x).generic == ()
    expected = explicit_kernel(model, x)
    assert_same_kernel(tangent_kernel(model, x), expected, 1e-10)
    assert_same_kernel(tangent_kernel(model, x, x2), explicit_kernel(model, x, x2), 1e-10)
    kernel = sum(expected.values())
    assert tangent_trace(model, x) == pytest.approx(kernel.trace().item(), rel=1e-10)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(
    seed=st.integers(0, 1000),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    outputs=st.integers(1, 3),
)
def test_convolutions_of_any_kind(
    explicit_kernel,
    assert_same_kernel,
    seed,
    window,
    stride,
    padding,
    dilation,
    groups,
    bias,
    outputs,
):
    x, x2 = images(3, seed=seed), images(2, seed=seed + 1)
    layer = nn.Conv2d(4, 4 * groups, window, stride, padding, dilation, groups, bias)
    model = prepare(lambda: picture(layer, outputs=outputs), x)
    kernel = tangent_kernel(model, x)
    assert_same_kernel(kernel, explicit_kernel(model, x), 1e-10)
    assert_same_kernel(tangent_kernel(model, x, x2), explicit_kernel(model, x, x2), 1e-10)
    assert tangent_trace(model, x) == pytest.approx(kernel.total.trace().item(), rel=1e-10)


def last_token():
    """Tokens mixed over the past, then a layer of each, of which only the last one counts."""

    def forward(m, x):
        h = torch.tanh(m.mix(m.embedding(x))).cumsum(1)
        return m.head(torch.tanh(m.layer(h)))[:, -1]

    parts = {"mix": nn.Linear(4, 4), "layer": nn.Linear(4, 5), "head": nn.Linear(5, 3)}
    return Toy(forward, embedding=nn.Embedding(6, 4), **parts)


def test_positions_that_do_not_count_are_left_out(explicit_kernel, assert_same_kernel):
    x, x2 = tokens(4), tokens(3, seed=1)
    model = prepare(last_token, x)
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    assert_same_kernel(tangent_kernel(model, x, x2), explicit_kernel(model, x, x2), 1e-10)
    deltas = torch.zeros(2, 3, 5, 4)
    deltas[1, 2, 3, 0] = 1
    found = MatrixGradients(VectorInputs(torch.ones(2, 5, 6)), deltas).without_silent_positions()
    assert found.inputs.positions == 2  # the first one always stays
    assert torch.equal(
        found.features(), MatrixGradients(VectorInputs(torch.ones(2, 5, 6)), deltas).features()
    )


@pytest.mark.parametrize(("n", "outputs"), [(1, 3), (3, 1), (3, 2), (3, 7)])
def test_any_number_of_samples_and_outputs(n, outputs, explicit_kernel, assert_same_kernel):
    x = images(n)
    model = prepare(lambda: picture(nn.Conv2d(4, 5, 3), outputs=outputs), x)
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


def test_a_bias_that_another_layers_product_has_is_not_the_bias_of_its_own_modules_weight(
    explicit_kernel, assert_same_kernel
):
    model = Toy(
        lambda m, x: F.linear(torch.tanh(x @ m.weight), m.child.weight, m.bias),
        child=nn.Linear(3, 4, bias=False),
    )
    model.weight, model.bias = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(4))
    model, x = model.double(), torch.arange(15.0).view(5, 3).double() / 15
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


def test_a_bias_that_is_added_once_more_is_not_only_that_of_its_modules_weight(
    explicit_kernel, assert_same_kernel
):
    model = Toy(lambda m, x: m.layer(x).tanh() - F.linear(x, m.w, m.layer.bias) ** 2)
    model.layer, model.w = nn.Linear(20, 20), nn.Parameter(torch.eye(20) + 1)
    model, x = model.double(), torch.arange(100.0).view(5, 20).double() / 100
    found = tangent_kernel(model, x)
    assert_same_kernel(found, explicit_kernel(model, x), 1e-10)


def test_features_of_convolutions_are_in_parameter_order(explicit_jacobian):
    x = images(2)
    model = prepare(PICTURES["groups"], x)
    features = tangent_features(model, x).flatten(0, 1)
    torch.testing.assert_close(features, explicit_jacobian(model, x))


def test_nothing_is_left_behind_and_the_inputs_stay():
    x = images(3)
    model = prepare(lambda: nn.Sequential(nn.ReLU(inplace=True), picture(nn.Identity())), x)
    before, state = x.clone(), {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        kernel = tangent_kernel(model, x)
    assert torch.equal(x, before)
    assert not kernel.total.requires_grad
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(kernel.total, tangent_kernel(model, x).total)

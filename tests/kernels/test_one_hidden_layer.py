import pytest
import torch
from torch import nn

from feature_alignment.kernels.tangent_trace import one_hidden_layer_trace, tangent_trace


@pytest.mark.parametrize("biases", [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_closed_form_is_the_general_trace(biases, dtype):
    torch.manual_seed(0)
    hidden = nn.Linear(12, 7, bias=biases[0], dtype=dtype)
    readout = nn.Linear(7, 5, bias=biases[1], dtype=dtype)
    model = nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), readout).eval()
    x = torch.randn(9, 3, 4, dtype=dtype)
    expected = tangent_trace(model, x)
    rel = 1e-12 if dtype is torch.float64 else 1e-5
    assert one_hidden_layer_trace(hidden, readout, x) == pytest.approx(expected, rel=rel)


def test_the_trace_is_a_sum_over_samples():
    hidden, readout = nn.Linear(4, 6).double(), nn.Linear(6, 3).double()
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts = [one_hidden_layer_trace(hidden, readout, sample[None]) for sample in x]
    assert one_hidden_layer_trace(hidden, readout, x) == pytest.approx(sum(parts), rel=1e-12)


def test_units_at_zero_are_not_active(explicit_kernel):
    hidden, readout = nn.Linear(4, 6).double(), nn.Linear(6, 3).double()
    with torch.no_grad():
        hidden.weight[:2], hidden.bias[:2] = 0, 0
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grams = explicit_kernel(nn.Sequential(hidden, nn.ReLU(), readout), x)
    expected = sum(gram.trace().item() for gram in grams.values())
    assert one_hidden_layer_trace(hidden, readout, x) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(0, 4), "there are no samples"),
        (torch.full((2, 4), torch.nan), "some inputs are not finite"),
        (torch.full((2, 4), -torch.inf), "some inputs are not finite"),
    ],
)
def test_what_has_no_trace_is_refused(x, message):
    hidden = nn.Linear(4, 6)
    nn.init.ones_(hidden.weight)
    with pytest.raises(ValueError, match=f"^x: {message}"):
        one_hidden_layer_trace(hidden, nn.Linear(6, 3), x)


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_squares_beyond_single_precision_count(scale):
    torch.manual_seed(0)
    layers = nn.Linear(4, 6, bias=False), nn.Linear(6, 3, bias=False)
    x = torch.randn(5, 4)
    expected = scale**2 * one_hidden_layer_trace(*layers, x)
    assert one_hidden_layer_trace(*layers, scale * x) == pytest.approx(expected, rel=1e-5, abs=0)

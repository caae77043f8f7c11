import pytest
import torch
from torch import nn

from feature_alignment.adaptive.parameter_matrices import combine, inner, matrix_layout


def test_splitting_undoes_joining():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(3, 4))
    layout = matrix_layout(model)
    values = dict(model.named_parameters())
    matrices = layout.join(values)
    shapes = {name: tuple(matrix.shape) for name, matrix in matrices.items()}
    assert shapes == {"0": (3, 19), "1.weight": (3, 1), "1.bias": (3, 1), "3": (4, 4)}
    for name, value in layout.split(matrices).items():
        assert torch.equal(value, values[name])


def test_a_linear_layer_acts_as_its_matrix_on_the_input_and_one():
    layer = nn.Linear(3, 2)
    matrix = matrix_layout(layer).join(dict(layer.named_parameters()))[""]
    a = torch.randn(5, 3)
    torch.testing.assert_close(layer(a), torch.cat([a, torch.ones(5, 1)], dim=1) @ matrix.T)


def test_inner_products_and_sums_run_over_all_layers():
    a, b = (
        {"x": torch.eye(2), "y": torch.ones(1, 2)},
        {"x": torch.ones(2, 2), "y": torch.ones(1, 2)},
    )
    assert inner(a, b) == 4
    assert combine(a, -1, b)["x"].tolist() == [[0, -1], [-1, 0]]


def test_models_without_matrices_are_refused():
    with pytest.raises(ValueError, match="the model has no parameters"):
        matrix_layout(nn.ReLU())
    scalar = nn.Module()
    scalar.gain = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(ValueError, match="parameter 'gain' is a scalar"):
        matrix_layout(scalar)


def test_a_layer_with_other_parameters_is_no_matrix():
    layer = nn.Linear(3, 2)
    layer.gain = nn.Parameter(torch.ones(2))
    assert list(matrix_layout(nn.Sequential(layer)).layers) == ["0.weight", "0.bias", "0.gain"]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_a_convolution_is_one_matrix_with_the_name_of_its_module(kind, bias):
    layer = kind(2, 3, 4, bias=bias)
    layout = matrix_layout(nn.Sequential(layer))
    assert list(layout.layers) == ["0"]
    matrix = layout.join(dict(nn.Sequential(layer).named_parameters()))["0"]
    parts = [layer.weight.flatten(1), *([layer.bias[:, None]] if bias else [])]
    assert torch.equal(matrix, torch.cat(parts, 1))

import math

import pytest
import torch

from feature_alignment.models.initialisation import SCHEMES, draw_normal, new_conv2d, new_linear


def draw(scheme, d=400, k=500, seed=0, bias=True, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return new_linear(d, k, bias=bias, scheme=scheme, generator=generator, dtype=dtype)


def test_pytorch_scheme_has_the_distribution_of_nn_linear():
    ours = draw("pytorch")
    torch.manual_seed(1)
    theirs = torch.nn.Linear(400, 500, dtype=torch.float64)
    bound = 1 / math.sqrt(400)
    for mine, reference in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        assert mine.abs().max() <= bound
        assert reference.abs().max() <= bound
        quantiles = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
        difference = mine.flatten().quantile(quantiles) - reference.flatten().quantile(quantiles)
        assert difference.abs().max() < 5 * bound / math.sqrt(mine.numel())


def test_kaiming_scheme_draws_gaussian_weights_and_uniform_biases():
    layer = draw("kaiming")
    weight = layer.weight.detach() / math.sqrt(2 / 400)
    assert weight.std().item() == pytest.approx(1, abs=0.01)
    assert (weight**4).mean().item() == pytest.approx(3, abs=0.1)
    assert layer.bias.abs().max() <= 1 / math.sqrt(400)
    assert layer.bias.std().item() == pytest.approx(1 / math.sqrt(3 * 400), rel=0.1)


def test_kaiming_without_biases_has_the_same_weights():
    layer = draw("kaiming_zero_bias")
    assert torch.equal(layer.weight, draw("kaiming").weight)
    assert not layer.bias.any()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_precision_starts_from_the_same_numbers_drawn_in_double(scheme):
    single, double = draw(scheme, dtype=torch.float32).weight, draw(scheme).weight
    assert torch.equal(single, double.to(torch.float32))
    assert not torch.equal(single.double(), double)


def test_unknown_scheme_is_named():
    with pytest.raises(ValueError, match=r"init: 'kaimin' is unknown; did you mean 'kaiming'"):
        draw("kaimin")


def draw_conv(scheme="pytorch", seed=0, size=3, **options):
    return new_conv2d(
        40,
        300,
        size,
        bias=True,
        scheme=scheme,
        dtype=torch.float64,
        **options,
        generator=torch.Generator().manual_seed(seed),
    )


def test_convolutions_count_the_whole_filter_as_fan_in():
    bound = 1 / math.sqrt(40 * 9)
    layer = draw_conv()
    for parameter in (layer.weight, layer.bias):
        assert 0.95 * bound < parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    weight = draw_conv("kaiming").weight.detach()
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (40 * 9)), rel=0.01)
    assert torch.equal(draw_conv().weight, layer.weight)


@pytest.mark.parametrize(("size", "stride", "side"), [(3, 1, 8), (1, 1, 8), (5, 2, 4)])
def test_convolutions_keep_the_image_but_for_the_stride(size, stride, side):
    layer = draw_conv(size=size, stride=stride)
    assert layer(torch.ones(1, 40, 8, 8, dtype=torch.float64)).shape == (1, 300, side, side)


def test_filters_of_even_size_are_refused():
    with pytest.raises(ValueError, match="size: 2 is even"):
        draw_conv(size=2)


def test_filters_have_a_size():
    with pytest.raises(ValueError, match="size: -1; it must be a whole number of at least 1"):
        draw_conv(size=-1)


def test_overwriting_by_normal_draws():
    layer = draw("pytorch")
    draw_normal(layer.weight, 0.3, torch.Generator().manual_seed(0))
    assert layer.weight.std().item() == pytest.approx(0.3, rel=0.01)
    assert layer.weight.requires_grad


def test_lecun_weights_are_cut_off_at_two_standard_deviations_of_the_normal():
    layer = draw("lecun", d=100, k=2000)
    assert layer.weight.std().item() == pytest.approx(0.1, rel=0.01)
    assert layer.weight.abs().max() <= 2 * 0.1 / 0.8796
    assert layer.weight.abs().max() > 1.95 * 0.1 / 0.8796
    assert not layer.bias.any()

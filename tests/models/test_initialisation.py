import math

import pytest
import torch

from feature_alignment.models.initialisation import new_linear


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


def test_every_precision_starts_from_the_same_numbers():
    assert torch.equal(
        draw("kaiming", dtype=torch.float32).weight, draw("kaiming").weight.to(torch.float32)
    )


def test_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    draw("pytorch")
    assert torch.equal(torch.get_rng_state(), before)


def test_without_bias_there_is_none():
    assert draw("pytorch", bias=False).bias is None


def test_unknown_scheme_is_named():
    with pytest.raises(ValueError, match=r"init: 'kaimin' is not a scheme; did you mean 'kaiming'"):
        draw("kaimin")

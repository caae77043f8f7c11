import copy
import pickle

import pytest
import torch

from feature_alignment.models.vgg import SeededDropout


def dropout(p=0.25, seed=0):
    return SeededDropout(p, torch.Generator().manual_seed(seed))


def test_it_thins_and_rescales_in_training_mode_only():
    layer, x = dropout(), torch.ones(20_000)
    thinned = layer(x)
    assert thinned.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert (thinned == 0).float().mean().item() == pytest.approx(0.25, abs=0.015)
    assert not torch.equal(thinned, layer(x))
    assert torch.equal(layer.eval()(x), x)


def test_masks_repeat_with_the_seed_and_ignore_the_global_generator():
    x = torch.ones(64)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = dropout()(x)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(dropout()(x), first)
    assert not torch.equal(dropout(seed=1)(x), first)


def test_copies_repeat_the_masks_from_the_first_on():
    layer, x = dropout(), torch.ones(64)
    first = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), first)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), first)


def test_masks_go_on_from_a_saved_state():
    layer, x = dropout(), torch.ones(64)
    first = layer(x)
    state, second = layer.state_dict(), layer(x)
    again = dropout()
    again.load_state_dict(state)
    assert torch.equal(again(x), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match=r"p: .* is not a probability"):
        dropout(p)

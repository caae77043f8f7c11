import pytest
import torch
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.layer_inputs import PatchInputs, TokenInputs, VectorInputs

EVERYTHING = slice(0, 3)


def images():
    return torch.randn(3, 4, 5, 6, dtype=torch.float64, generator=torch_stream(0, "data"))


def patches(**options):
    defaults = {
        "kernel": (2, 3),
        "stride": (1, 2),
        "dilation": (2, 1),
        "padding": (1, 2),
        "groups": 1,
    }
    return PatchInputs(**({"values": images()[:, None]} | defaults | options))


def test_patches_are_those_of_unfold_with_the_channels_last():
    inputs = patches()
    expected = F.unfold(images(), (2, 3), (2, 1), (1, 2), (1, 2)).transpose(1, 2)  # (n, P, d)
    loaded = inputs.load(0, EVERYTHING)
    assert inputs.positions == expected.shape[1]
    assert inputs.columns == expected.shape[2]
    torch.testing.assert_close(inputs.weight_order(loaded), expected)


def test_groups_have_their_own_channels():
    inputs = patches(groups=2)
    whole = patches()
    parts = [inputs.weight_order(inputs.load(group, EVERYTHING)) for group in (0, 1)]
    expected = whole.weight_order(whole.load(0, EVERYTHING))
    torch.testing.assert_close(torch.cat(parts, dim=2), expected)


def test_a_sample_may_consist_of_several_images():
    one, two = patches(), patches(values=images().view(1, 3, 4, 5, 6))
    assert two.positions == 3 * one.positions
    assert torch.equal(two.load(0, slice(0, 1))[0], one.load(0, EVERYTHING).flatten(0, 1))


def test_some_samples_can_be_loaded():
    inputs = patches()
    assert torch.equal(inputs.load(0, slice(1, 2)), inputs.load(0, EVERYTHING)[1:2])


INPUTS = {
    "vectors": VectorInputs(images().flatten(2)),
    "patches": patches(),
    "tokens": TokenInputs(torch.randint(4, (3, 5), generator=torch_stream(0, "t")), 4, 6),
}


def vectors(inputs):
    """What the inputs stand for: (n, P, d)."""
    loaded = inputs.load(0, EVERYTHING)
    return F.one_hot(loaded, 4).double() if isinstance(inputs, TokenInputs) else loaded


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_similarities_are_inner_products(inputs):
    loaded, a = inputs.load(0, EVERYTHING), vectors(inputs)
    flat = a.flatten(0, 1)
    torch.testing.assert_close(inputs.similarity(loaded, loaded).double(), flat @ flat.T)
    torch.testing.assert_close(inputs.own_similarity(loaded).double(), a @ a.transpose(1, 2))


@pytest.mark.parametrize("beta", [0, 1])
@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)])
@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_rows_of_gradients_are_sums_of_outer_products(inputs, layout, beta):
    tokens = isinstance(inputs, TokenInputs)
    a, k, rows = vectors(inputs), 6, slice(1, 3)
    delta = torch.randn(3, 2, inputs.positions, k, dtype=a.dtype, generator=torch_stream(1, "d"))
    # The same numbers, laid out otherwise in memory.
    inverse = sorted(range(4), key=layout.__getitem__)
    delta = delta.permute(layout).contiguous().permute(inverse)
    expected = torch.einsum("nctk,ntd->ncdk" if tokens else "nctk,ntd->nckd", delta, a)[:, :, rows]
    out = torch.full_like(
        expected, 1.0 if beta else torch.nan, memory_format=torch.contiguous_format
    )
    inputs.add_gradient_rows(out, inputs.load(0, EVERYTHING), delta, rows, beta)
    torch.testing.assert_close(out, expected + beta)

"""Gradients that are kept as their factors, against the sums of outer products that they are."""

import pytest
import torch
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.layer_inputs import PatchInputs, TokenInputs, VectorInputs
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    MatrixGradients,
    Part,
    VectorGradients,
    merged_uses,
    of_one_kind,
)
from toys import draw

N, C, P = 3, 2, 4


def vectors(groups=1, seed=0, positions=P):
    """Of a weight (6, 4) in all groups, or (6, 2) in each of two."""
    inputs = VectorInputs(draw(N, positions, 4, seed=seed), groups)
    return MatrixGradients(inputs, draw(N, C, positions, 6, seed=seed + 1))


def patches(groups=1, seed=0):
    """Of a weight (6, 4 / groups, 3)."""
    inputs = PatchInputs(draw(N, 1, 4, P + 2, seed=seed), (3,), (1,), (1,), (0,), groups)
    return MatrixGradients(inputs, draw(N, C, P, 6, seed=seed + 1))


def tokens(seed=0):
    """Of a table (6, 4)."""
    values = torch.randint(6, (N, P), generator=torch_stream(seed, "tokens"))
    return MatrixGradients(TokenInputs(values, 6, 4), draw(N, C, P, 4, seed=seed + 1))


USES = {
    "vectors": vectors(),
    "groups of vectors": vectors(2),
    "patches": patches(),
    "groups of patches": patches(2),
    "tokens": tokens(),
}


def sums_of_products(use):
    """Σ_t δ_t a_tᵀ, entries in the weight's order, by loops: (n, c, p)."""
    a, deltas = use.inputs.values, use.deltas
    if isinstance(use.inputs, TokenInputs):
        return torch.einsum("ntv,nctk->ncvk", F.one_hot(a, 6).double(), deltas).flatten(2)
    if isinstance(use.inputs, PatchInputs):
        a = a[:, 0].unfold(2, 3, 1).transpose(1, 2)  # (n, P, channels, window)
    else:
        a = a[..., None]
    groups = use.inputs.groups
    sides = zip(deltas.chunk(groups, 3), a.chunk(groups, 2), strict=True)
    found = [torch.einsum("nctk,ntdw->nckdw", delta, own) for delta, own in sides]
    return torch.cat(found, dim=2).flatten(2)


@pytest.mark.parametrize("block", [1, 10**6])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_gradients_are_sums_of_products_in_the_order_of_the_weight(use, block):
    expected = sums_of_products(use)
    torch.testing.assert_close(use.features(block), expected)
    assert use.inputs.groups * use.rows * use.inputs.columns == expected.shape[2]


@pytest.mark.parametrize("use", [vectors(2), patches(2)])
def test_gradients_of_groups_hold_a_block_of_both_factors_at_a_time(use, monkeypatch):
    of_sample = use.deltas[0].numel() + use.inputs.load_groups(slice(2), slice(1)).numel()
    held, einsum = [], torch.einsum

    def counted(equation, *factors):
        held.append(sum(factor.numel() for factor in factors))
        return einsum(equation, *factors)

    monkeypatch.setattr(torch, "einsum", counted)
    for block, samples in ((1, [1, 1, 1]), (2 * of_sample, [2, 1]), (3 * of_sample, [3])):
        held.clear()
        use.of_groups(slice(2), block)
        assert held == [of_sample * number for number in samples]


@pytest.mark.parametrize("block", [1, 10**6])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_gradients_are_added_in_place_of_their_entries(use, block):
    expected = sums_of_products(use)
    out = torch.ones_like(expected)
    Part([use, use]).add_features(out, block)
    torch.testing.assert_close(out, 1 + 2 * expected)
    entries = torch.arange(expected.shape[2]).flip(0) * 2
    wide = torch.ones(N, C, 2 * len(entries), dtype=torch.float64)
    Part([use], entries).add_features(wide, block)
    torch.testing.assert_close(wide[:, :, ::2], 1 + expected.flip(2))
    assert torch.equal(wide[:, :, 1::2], torch.ones_like(expected))
    whole = Part([use], entries).features(wide.shape[2], block)
    torch.testing.assert_close(whole, wide - 1)


def test_uses_of_vectors_become_one_and_others_stay():
    for groups in (1, 2):
        several = [vectors(groups, seed, positions) for seed, positions in ((0, 4), (5, 1))]
        (merged,) = merged_uses(several)
        torch.testing.assert_close(merged.features(), sum(map(sums_of_products, several)))
    mixed = [vectors(seed=3), tokens(), vectors(seed=8)]
    assert of_one_kind(mixed)
    found = merged_uses(mixed)
    assert len(found) == 2
    torch.testing.assert_close(
        sum(use.features() for use in found), sum(map(sums_of_products, mixed))
    )
    for alone in ([vectors(), tokens()], [patches(), patches()], [BiasGradients(draw(2, 2, 3, 1))]):
        assert merged_uses(alone) is alone


def test_uses_of_other_shapes_or_kinds_are_not_of_one_kind():
    sums = [VectorGradients(draw(N, C, 24)), BiasGradients(draw(N, C, P, 24))]
    assert of_one_kind(sums)
    assert not of_one_kind([vectors(), sums[0]])
    for other in (vectors(2), patches(), patches(2)):
        assert of_one_kind([other, other])
        assert not of_one_kind([vectors(), other])


def test_positions_without_signals_for_any_output_are_left_out():
    use = vectors()
    use.deltas[:, :, 1] = 0
    use.deltas[:, 0, 3] = 0  # but not of the other output
    use.deltas[0, :, 0] = 0  # but not of the other samples
    found = use.without_silent_positions()
    assert found.inputs.positions == found.deltas.shape[2] == P - 1
    torch.testing.assert_close(found.features(), sums_of_products(use))
    use.deltas.zero_()
    assert not use.without_silent_positions().features().any()
    assert (same := vectors()).without_silent_positions() is same


def test_a_precision_is_that_of_every_use():
    double, single = (
        VectorGradients(draw(N, C, 5).to(dtype)) for dtype in (torch.float64, torch.float32)
    )
    part = Part([double, single]).to(torch.float64)
    assert [use.values.dtype for use in part.uses] == [torch.float64] * 2
    (summed,) = Part([patches()]).to(torch.float32).uses
    torch.testing.assert_close(summed.values, sums_of_products(patches()).float())
    assert (same := Part([double])).to(torch.float64) is same

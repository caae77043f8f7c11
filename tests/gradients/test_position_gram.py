import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients import position_gram
from feature_alignment.gradients.layer_inputs import PatchInputs, TokenInputs, VectorInputs
from feature_alignment.gradients.parameter_gradients import MatrixGradients
from feature_alignment.gradients.position_gram import (
    FORMS,
    add_gradient_gram,
    add_position_gram,
    cheapest_form,
    form_costs,
    mirror_lower_triangle,
)
from toys import draw


def vectors(n=5, c=2, positions=3, k=4, d=6, seed=0, groups=1):
    inputs = VectorInputs(draw(n, positions, d, seed=seed), groups)
    return MatrixGradients(inputs, draw(n, c, positions, k, seed=seed + 1))


def tokens(n=5, c=2, positions=6, seed=0):
    values = torch.randint(4, (n, positions), generator=torch_stream(seed, "tokens"))
    return MatrixGradients(TokenInputs(values, 4, 3), draw(n, c, positions, 3, seed=seed + 1))


def contracted(first, second, form, bias=False, workspace=10**6):
    n, c = first.deltas.shape[:2]
    out = torch.zeros(n * c, second.deltas.shape[0] * c, dtype=first.deltas.dtype)
    symmetric = second is first
    add_position_gram(
        out, first, second, bias=bias, symmetric=symmetric, workspace=workspace, form=form
    )
    if symmetric:
        mirror_lower_triangle(out)
    return out


def expected(first, second, bias):
    def features(use):
        phi = use.features()
        return torch.cat([phi, use.deltas.sum(2)], 2).flatten(0, 1) if bias else phi.flatten(0, 1)

    return features(first) @ features(second).T


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("workspace", [1, 60, 500, 10**6])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_any_workspace_is_the_gram_matrix_of_the_features(
    form, groups, workspace, bias
):
    first, second = vectors(groups=groups), vectors(n=4, positions=2, seed=5, groups=groups)
    torch.testing.assert_close(
        contracted(first, second, form, bias, workspace), expected(first, second, bias)
    )
    torch.testing.assert_close(
        contracted(first, first, form, bias, workspace), expected(first, first, bias)
    )


@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_their_unit_vectors(form):
    first, second = tokens(), tokens(n=3, seed=2)
    one_hot = MatrixGradients(
        VectorInputs(F.one_hot(first.inputs.values, 4).double()), first.deltas
    ).features()
    swapped = one_hot.unflatten(2, (3, 4)).transpose(2, 3).flatten(2)  # rows are tokens
    torch.testing.assert_close(first.features(), swapped)
    torch.testing.assert_close(contracted(first, second, form), expected(first, second, False))


@st.composite
def convolutions(draw_value):
    """Settings of a convolution and the size of an image that it can see."""
    small = st.integers(1, 3)
    kernel, stride, dilation = (tuple(draw_value(st.tuples(small, small))) for _ in range(3))
    padding = draw_value(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    spans = [dilation[axis] * (kernel[axis] - 1) + 1 for axis in range(2)]
    least = [max(1, spans[axis] - 2 * padding[axis]) for axis in range(2)]
    size = tuple(side + draw_value(st.integers(0, 4)) for side in least)
    return kernel, stride, dilation, padding, draw_value(st.integers(1, 3)), size


@settings(deadline=None, derandomize=True, max_examples=25)
@given(convolutions(), st.integers(1, 2), st.booleans(), st.integers(0, 99))
def test_every_form_agrees_with_automatic_differentiation_for_any_convolution(
    setting, per_group, bias, seed
):
    kernel, stride, dilation, padding, groups, size = setting
    n, c = 3, 2
    x = draw(n, groups * per_group, *size, seed=seed)
    weight = draw(groups * 2, per_group, *kernel, seed=seed + 1).requires_grad_()
    shift = draw(groups * 2, seed=seed + 2).requires_grad_()
    h = F.conv2d(x, weight, shift, stride, padding, dilation, groups)
    deltas = draw(n, c, *h.shape[1:], seed=seed + 3)
    rows = []
    for i in range(n):
        for y in range(c):
            found = torch.autograd.grad(
                h[i], (weight, shift), grad_outputs=deltas[i, y], retain_graph=True
            )
            rows.append(torch.cat([part.flatten() for part in found[: 1 + bias]]))
    phi = torch.stack(rows)
    inputs = PatchInputs(x[:, None], kernel, stride, dilation, padding, groups)
    assert inputs.positions == h[0, 0].numel()
    use = MatrixGradients(inputs, deltas.flatten(3).transpose(2, 3))
    if not bias:
        torch.testing.assert_close(use.features().flatten(0, 1), phi)
    for form, workspace in itertools.product(FORMS, (50, 900, 10**6)):  # rows, groups, all at once
        found = contracted(use, use, form, bias, workspace)
        torch.testing.assert_close(found, phi @ phi.T)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("positions", [2, 6])
def test_what_inputs_have_in_common_does_not_hide_what_differs(form, positions, bias):
    """As after the mean over tokens is subtracted from a layer of inputs far from 0."""
    first, second = (vectors(n, positions=positions, seed=seed) for n, seed in ((5, 0), (4, 9)))
    uses = []
    for use, offset in ((first, 1000.0), (second, 0.0)):
        deltas = use.deltas - use.deltas.mean(2, keepdim=True)
        uses.append(MatrixGradients(VectorInputs(use.inputs.values + offset), deltas))
    rounded = [
        MatrixGradients(VectorInputs(use.inputs.values.float()), use.deltas.float()) for use in uses
    ]
    exact = [
        MatrixGradients(VectorInputs(use.inputs.values.double()), use.deltas.double())
        for use in rounded
    ]
    for rows, columns in ((0, 0), (0, 1), (1, 0)):
        found = contracted(rounded[rows], rounded[columns], form, bias).double()
        wanted = expected(exact[rows], exact[columns], bias)
        # δ in float32 add up to 0 only within their rounding errors, which inputs magnify.
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))


@pytest.mark.parametrize("form", FORMS)
def test_a_bias_counts_once_where_the_inputs_have_much_in_common(form):
    first, second = (vectors(n, positions=3, seed=seed) for n, seed in ((5, 0), (4, 9)))
    uses = [
        MatrixGradients(VectorInputs(use.inputs.values + 30), use.deltas) for use in (first, second)
    ]
    for rows, columns in ((0, 0), (0, 1)):
        found = contracted(uses[rows], uses[columns], form, True)
        torch.testing.assert_close(found, expected(uses[rows], uses[columns], True))


class Largest(TorchDispatchMode):
    """The numbers in the largest tensor that is made within this context."""

    def __init__(self, *known):
        super().__init__()
        self.known, self.numbers = {t.untyped_storage().data_ptr() for t in known}, 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        if isinstance(found, torch.Tensor):
            storage = found.untyped_storage()
            if storage.data_ptr() not in self.known:
                self.numbers = max(self.numbers, storage.nbytes() // found.element_size())
        return found


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("form", "c", "groups", "workspace"),
    [
        ("pairs", 10, 1, 800_000),
        ("carrying", 10, 1, 3000),
        ("gradients", 10, 1, 12_000),
        ("gradients", 2, 8, 1200),
    ],
)
def test_intermediate_results_fit_in_the_workspace(form, c, groups, workspace, symmetric):
    first, second = (vectors(n, c, 8, 16, 16, groups=groups) for n in (30, 60))
    second = first if symmetric else second
    out = torch.zeros(30 * c, len(second.deltas) * c, dtype=torch.float64)
    held = [t for use in (first, second) for t in (use.inputs.values, use.deltas)]
    with Largest(out, *held) as largest:
        add_position_gram(
            out, first, second, bias=False, symmetric=symmetric, workspace=workspace, form=form
        )
    assert largest.numbers <= workspace


def test_uses_of_one_weight_are_added_before_the_product():
    uses = [vectors(seed=seed, positions=positions) for seed, positions in ((0, 3), (7, 1))]
    out = torch.zeros(10, 10, dtype=torch.float64)
    add_gradient_gram(out, uses, uses, symmetric=True, workspace=50)
    mirror_lower_triangle(out)
    phi = sum(use.features() for use in uses).flatten(0, 1)
    torch.testing.assert_close(out, phi @ phi.T)


def test_the_form_follows_the_number_of_positions():
    chosen = [
        cheapest_form(use, use, True)
        for use in (
            vectors(8, 10, 1, 64, 64),
            vectors(8, 10, 16, 128, 128),
            vectors(8, 10, 400, 16, 16),
        )
    ]
    assert chosen == ["pairs", "carrying", "gradients"]


def test_depthwise_convolutions_are_not_worked_on_group_by_group():
    inputs = PatchInputs(draw(24, 1, 256, 4, 4), (7, 7), (1, 1), (1, 1), (3, 3), 256)
    use = MatrixGradients(inputs, draw(24, 10, 16, 256))
    assert cheapest_form(use, use, True) == "gradients"


def test_costs_are_halved_by_symmetry():
    whole = form_costs((6000, 6000), 2, (4, 4), (5, 7), symmetric=False)
    half = form_costs((6000, 6000), 2, (4, 4), (5, 7), symmetric=True)
    assert whole["pairs"] == pytest.approx(2 * half["pairs"], rel=1e-2)  # rounds cost the same
    assert whole["gradients"] == 2 * half["gradients"]


def test_costs_are_multiplications_where_sizes_are_large():
    n, n2, c, t, s, k, d = 1000, 2000, 10, 5000, 7000, 10**5, 10**6
    found = form_costs((n, n2), c, (t, s), (k, d), symmetric=False, groups=3)
    expected = {
        "pairs": n * n2 * t * s * (d + c**2 * k),
        "carrying": n * n2 * t * (s * d + s * c * k),
        "gradients": (n + n2) * c * t * k * d + n * n2 * c**2 * k * d,
    }
    for form, cost in expected.items():
        assert found[form] == pytest.approx(3 * cost, rel=0.02)


def test_costs_are_those_of_both_sides(monkeypatch):
    seen = []

    def noted(*sizes, **options):
        seen.append((*sizes, options))
        return dict.fromkeys(FORMS, 0.0)

    monkeypatch.setattr(position_gram, "form_costs", noted)
    first, second = (
        MatrixGradients(VectorInputs(draw(n, positions, 6), 2), draw(n, 3, positions, 8))
        for n, positions in ((5, 3), (4, 2))
    )
    cheapest_form(first, second, False)
    cheapest_form(tokens(), tokens(), True)
    assert seen == [
        ((5, 4), 3, (3, 2), (4, 3), {"symmetric": False, "groups": 2, "tokens": False}),
        ((5, 5), 2, (6, 6), (4, 3), {"symmetric": True, "groups": 1, "tokens": True}),
    ]


def test_the_cheapest_form_is_taken_unless_one_is_asked_for(monkeypatch):
    monkeypatch.setattr(position_gram, "cheapest_form", lambda *_: "cheapest")
    with pytest.raises(ValueError, match="form: 'cheapest'"):
        contracted(vectors(), vectors(), None)


def test_unknown_forms_are_refused():
    with pytest.raises(ValueError, match="form: 'pair'; it must be one of pairs, carrying"):
        contracted(vectors(), vectors(), "pair")


def test_the_lower_triangle_is_mirrored_in_blocks():
    matrix = draw(2100, 2100)
    expected_matrix = matrix.tril() + matrix.tril(-1).T
    mirror_lower_triangle(matrix)
    assert torch.equal(matrix, expected_matrix)

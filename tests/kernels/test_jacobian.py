import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from feature_alignment.determinism import stream, torch_stream
from feature_alignment.gradients import model_function
from feature_alignment.kernels.jacobian import Jacobian, top_singular_directions
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.models.gpt import GPT
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG
from toys import OldTanh, Quiet, Toy, draw, linear, unused

DOUBLE = torch.float64


def init():
    return torch_stream(0, "init")


def mlp(dtype=DOUBLE):
    return MLP(4, [6, 5], 3, "erf", True, init(), dtype=dtype)


def gpt():
    return GPT(5, 1, 2, 4, 6, init(), outputs="last_position", init="pytorch", dtype=DOUBLE)


CASES = {
    "mlp": lambda: (mlp(), draw(5, 4)),
    "vgg": lambda: (VGG(11, 1, 2, init(), init="kaiming", dtype=DOUBLE), draw(3, 3, 32, 32)),
    "resnet": lambda: (ResNet18(1, 2, init(), dtype=DOUBLE).eval(), draw(2, 3, 32, 32)),
    "gpt": lambda: (gpt(), torch.randint(5, (3, 6), generator=torch_stream(0, "tokens"))),
}


def split(model, vector):
    sizes = [parameter.numel() for parameter in model.parameters()]
    parts = vector.split(sizes)
    return {
        name: part.view_as(parameter)
        for part, (name, parameter) in zip(parts, model.named_parameters(), strict=True)
    }


def joined(direction):
    return torch.cat([part.flatten() for part in direction.values()])


@pytest.mark.parametrize("case", CASES)
def test_products_are_those_of_the_explicit_jacobian(case, explicit_jacobian):
    model, x = CASES[case]()
    jacobian = explicit_jacobian(model, x)
    c = len(jacobian) // len(x)
    v, u = draw(jacobian.shape[1], seed=1), draw(len(x), c, seed=2)
    close = {"rtol": 1e-9, "atol": 1e-11 * jacobian.norm().item()}
    torch.testing.assert_close(
        Jacobian(model, x).times(split(model, v)), (jacobian @ v).view(-1, c), **close
    )
    pulled = Jacobian(model, x).transpose_times(u)
    assert list(pulled) == [name for name, _ in model.named_parameters()]
    torch.testing.assert_close(joined(pulled), jacobian.T @ u.flatten(), **close)
    image = (jacobian @ (jacobian.T @ u.flatten())).view(-1, c)
    torch.testing.assert_close(
        Jacobian(model, x).times(pulled), image, rtol=1e-9, atol=1e-11 * image.norm().item()
    )


def test_kernel_products_between_two_sets_of_samples():
    model, x, x2 = mlp(), draw(5, 4), draw(7, 4, seed=1)
    u = draw(7, 3, seed=2)
    expected = tangent_kernel(model, x, x2).total @ u.flatten()
    pulled = Jacobian(model, x2).transpose_times(u)
    torch.testing.assert_close(Jacobian(model, x).times(pulled).flatten(), expected)


def test_products_stay_those_of_the_parameters_at_the_start(explicit_jacobian):
    model, x, u = mlp(), draw(5, 4), draw(5, 3, seed=2)
    rows, jacobian = explicit_jacobian(model, x), Jacobian(model, x)
    v = draw(rows.shape[1], seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    torch.testing.assert_close(jacobian.times(split(model, v)).flatten(), rows @ v)
    torch.testing.assert_close(joined(jacobian.transpose_times(u)), rows.T @ u.flatten())


def test_names_left_out_of_a_direction_stand_for_zero():
    model, x = mlp(), draw(5, 4)
    bias = {"layers.2.bias": torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE)}
    expected = bias["layers.2.bias"].expand(5, 3)
    torch.testing.assert_close(Jacobian(model, x).times(bias), expected)


def test_parameters_without_entries_may_be_in_a_direction():
    model = Toy(lambda m, x: m.layer(x), layer=linear())
    model.empty = nn.Parameter(torch.ones(0, 3))
    direction = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    x = draw(5, 3)
    torch.testing.assert_close(Jacobian(model, x).times(direction), (x.sum(1) + 1).expand(2, 5).T)


def test_parameters_that_the_outputs_do_not_depend_on_change_nothing():
    model, x = unused(), draw(5, 3)
    assert not Jacobian(model, x).times({"spare.bias": torch.ones(2).double()}).any()
    both = {"spare.bias": torch.ones(2).double(), "used.bias": torch.ones(2).double()}
    assert (Jacobian(model, x).times(both) == 1).all()
    assert not Jacobian(model, x).transpose_times(draw(5, 2))["spare.weight"].any()


@pytest.mark.parametrize("case", ["mlp", "vgg"])
def test_singular_directions_are_those_of_the_explicit_jacobian(case, explicit_jacobian):
    model, x = CASES[case]()
    jacobian = explicit_jacobian(model, x)
    _, values, right = torch.linalg.svd(jacobian, full_matrices=False)
    found = top_singular_directions(model, x, 3, stream(0, "lanczos"))
    np.testing.assert_allclose(found.values, values[:3], rtol=1e-8)
    directions = torch.cat([v.flatten(1) for v in found.directions.values()], dim=1)  # (m, p)
    torch.testing.assert_close(
        directions @ directions.T, torch.eye(3, dtype=DOUBLE), rtol=0, atol=1e-7
    )
    overlaps = (directions * right[:3]).sum(1).abs()
    torch.testing.assert_close(overlaps, torch.ones(3, dtype=DOUBLE), rtol=0, atol=1e-7)
    images = jacobian @ directions.T
    np.testing.assert_allclose(images, found.functions * found.values, atol=1e-7 * values[0].item())
    assert found.residuals.shape == (3,)
    assert found.residuals.max() < 1e-10


def test_the_result_repeats_and_its_sign_does_not_depend_on_the_first_vector():
    model, x = mlp(), draw(8, 4)
    first, again, other = (
        top_singular_directions(model, x, 3, stream(seed, "lanczos")) for seed in (0, 0, 1)
    )
    assert np.array_equal(first.functions, again.functions)
    largest = np.abs(first.functions).argmax(axis=0)
    assert (first.functions[largest, np.arange(3)] > 0).all()
    np.testing.assert_allclose(first.functions, other.functions, atol=1e-6)
    for name, v in first.directions.items():
        assert torch.equal(v, again.directions[name])
        torch.testing.assert_close(v, other.directions[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1, 1e4])
def test_residuals_of_many_samples_are_relative_to_the_largest_value(scale):
    model, x = mlp(), draw(100, 4)
    with torch.no_grad():
        model.layers[2].weight.mul_(scale)
    found = top_singular_directions(model, x, 4, stream(0, "lanczos"))
    exact = torch.linalg.eigvalsh(tangent_kernel(model, x).total).flip(0)[:4].numpy()
    np.testing.assert_allclose(found.values**2 / exact[0], exact / exact[0], atol=1e-10)


def test_single_precision_is_enough_for_the_leading_directions():
    exact = top_singular_directions(mlp(), draw(8, 4), 3, stream(0, "lanczos"))
    model = mlp(torch.float32)
    found = top_singular_directions(model, draw(8, 4).float(), 3, stream(0, "lanczos"))
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-4)
    assert found.directions["layers.0.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    ("model", "x", "number", "options", "message"),
    [
        (mlp(), draw(5, 4), 0, {}, "number: 0; .* n·c − 1 = 14"),
        (mlp(), draw(5, 4), 15, {}, "number: 15; .* n·c − 1 = 14"),
        (mlp(), draw(5, 4), 2.0, {}, "number: 2.0; .* whole number"),
        (nn.Linear(2, 1, False).double(), draw(6, 2), 4, {}, "number: 4; only 2 singular values"),
        (
            nn.Linear(3, 1, False).double(),
            torch.diag(torch.tensor([1, 1e-6, 1e-7], dtype=DOUBLE)),
            2,
            {},
            "number: 2; only 1 singular values are above √tolerance = 1e-05",
        ),
        (nn.Linear(2, 1, False), torch.zeros(6, 2), 1, {}, "the Jacobian is zero"),
        (
            mlp(torch.float32),
            draw(8, 4).float(),
            3,
            {"tolerance": 1e-12},
            "not to the tolerance 1.0e-12; use float64",
        ),
    ],
)
def test_directions_that_cannot_be_found_are_refused(model, x, number, options, message):
    with pytest.raises(ValueError, match=message):
        top_singular_directions(model, x, number, stream(0, "lanczos"), **options)


def test_products_are_as_precise_within_autocast():
    jacobian, u = Jacobian(mlp(torch.float32), draw(5, 4).float()), draw(5, 3).float()
    pulled = jacobian.transpose_times(u)
    image = jacobian.times(pulled)
    with torch.autocast("cpu"):
        torch.testing.assert_close(jacobian.transpose_times(u), pulled)
        torch.testing.assert_close(jacobian.times(pulled), image)


def test_products_take_arrays_in_any_precision():
    jacobian, u = Jacobian(mlp(), draw(5, 4)), draw(5, 3)
    pulled = jacobian.transpose_times(u)
    again = jacobian.transpose_times(u.double().numpy())
    torch.testing.assert_close(again, pulled, rtol=0, atol=0)
    arrays = {name: v.double().numpy() for name, v in pulled.items()}
    assert torch.equal(jacobian.times(arrays), jacobian.times(pulled))


def test_what_does_not_fit_is_refused():
    model, x = mlp(), draw(5, 4)
    with pytest.raises(ValueError, match=r"'bias' of shape .* is not a parameter"):
        Jacobian(model, x).times({"bias": torch.ones(3)})
    with pytest.raises(ValueError, match=r"'layers\.2\.bias' of shape \(1,\) is not a parameter"):
        Jacobian(model, x).times({"layers.2.bias": torch.ones(1)})
    with pytest.raises(ValueError, match=r"weights of shape \(3, 5\)"):
        Jacobian(model, x).transpose_times(torch.ones(3, 5))
    with pytest.raises(ValueError, match="in training mode"):
        Jacobian(nn.Sequential(nn.Linear(4, 4), nn.Dropout()), x)
    folded = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2))).double()
    assert Jacobian(folded, x).transpose_times(torch.ones(5, 4))["0.bias"].tolist() == [5.0] * 4


def test_operations_without_second_derivatives_take_a_pass_for_each_output(caplog):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    model = nn.Sequential(
        nn.Linear(4, 3), Toy(lambda m, x: Once.apply(x)), nn.Linear(3, 2)
    ).double()
    x, direction = draw(5, 4), {"0.weight": draw(3, 4, seed=1), "2.weight": draw(2, 3, seed=2)}
    found = Jacobian(model, x).times(direction)
    assert "slow" in caplog.text
    model[1].function = lambda m, x: x**2
    torch.testing.assert_close(found, Jacobian(model, x).times(direction))


def test_attention_in_checkpoints_is_differentiated_twice(explicit_jacobian):
    def forward(m, x):
        h = m.layer(x)[:, None]
        return F.scaled_dot_product_attention(h, h, h).mean((1, 2))

    def checkpointed(m, x):
        return checkpoint(forward, m, x, use_reentrant=False)

    x, direction = draw(3, 4, 4), {"layer.weight": draw(4, 4)}
    found = Jacobian(Toy(checkpointed, layer=linear(4, 4)), x).times(direction)
    rows = explicit_jacobian(Toy(forward, layer=linear(4, 4)), x)[:, :16]
    torch.testing.assert_close(found.flatten(), rows @ direction["layer.weight"].flatten())


def test_many_products_put_the_parameters_into_the_model_once(monkeypatch):
    def checkpointed(m, x):
        seen.append(m.layer.weight)  # also in backward passes, which run it again
        return checkpoint(m.layer, x, use_reentrant=False).square()

    seen, model = [], Toy(checkpointed, layer=linear(4, 3))
    own, jacobian = model.layer.weight, Jacobian(model, draw(5, 4))
    assert seen.pop(0) is not own
    seen.clear()  # the model itself was called once, too
    direction, u, before = {"layer.weight": draw(3, 4)}, draw(5, 3, seed=1), dict(vars(model.layer))
    alone = jacobian.times(direction), jacobian.transpose_times(u)["layer.weight"]
    put_back, times = model_function.put_back, []
    monkeypatch.setattr(model_function, "put_back", lambda m: times.append(m[0]) or put_back(m))
    with jacobian.many_products():
        together = jacobian.times(direction), jacobian.transpose_times(u)["layer.weight"]
        with Jacobian(nn.Linear(2, 1), torch.ones(1, 2)).many_products():
            again = jacobian.times(direction)  # another model's values are in place as well
    assert all(map(torch.equal, alone, together))
    assert torch.equal(again, alone[0])
    assert times.count(model) == 2
    assert all(weight is not own for weight in seen)
    assert vars(model.layer) == before
    assert model.layer.weight is own


def test_a_constant_second_derivative_is_noticed_among_many_parameters(caplog):
    torch.manual_seed(0)
    model = Toy(lambda m, x: m.last(Quiet.apply(m.first(x))))
    model.first, model.last = nn.Linear(2000, 2000), nn.Linear(2000, 2)
    Jacobian(model, torch.randn(2, 2000))
    assert "cannot be differentiated twice" in caplog.text


@pytest.mark.parametrize("strength", [0.1, 0.01])
def test_a_weak_branch_with_a_constant_second_derivative_beside_one_without(strength):
    def forward(m, x):
        h = m.first(x)
        return m.last(torch.tanh(h) + strength * OldTanh.apply(h))

    model, x = Toy(forward, first=linear(4, 4), last=linear(4, 2)), draw(8, 4)
    direction = {"first.bias": torch.ones(4, dtype=torch.float64)}
    expected = Jacobian(model, x).times(direction)
    found = Jacobian(model.float(), x.float()).times({"first.bias": torch.ones(4)})
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_gradient_of_rounding_errors_is_no_lack_of_a_second_derivative(caplog):
    def attention(m, x):
        scores = m.queries(x) @ m.keys(x).mT  # the bias of the keys changes nothing
        return (scores.softmax(-1) @ x).mean(1)

    model = Toy(attention, queries=linear(4, 4), keys=linear(4, 4)).float()
    Jacobian(model, draw(5, 3, 4).float())
    assert not caplog.text


@pytest.mark.parametrize(
    "twist",
    [lambda u: u[:, ::-1], lambda u: u.astype(">f8"), lambda u: u.astype(np.longdouble)],
)
def test_products_take_arrays_of_any_layout(twist):
    jacobian, u = Jacobian(mlp(), draw(5, 4)), draw(5, 3).double().numpy()
    plain = jacobian.transpose_times(np.ascontiguousarray(twist(u)).astype(float))
    torch.testing.assert_close(jacobian.transpose_times(twist(u)), plain, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (1j * torch.ones(5, 3), "weights: it is complex; give real numbers"),
        (np.full((5, 3), 1j), "weights: it is complex; give real numbers"),
        ([[1.0], [1.0, 2.0]], "weights: it is not an array of numbers; give real numbers"),
        (np.full((5, 3), "a"), "weights: it is not an array of numbers; give real numbers"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_told(weights, says):
    with pytest.raises(ValueError, match=says):
        Jacobian(mlp(), draw(5, 4)).transpose_times(weights)


def test_outputs_may_be_changed_without_harm():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double(), torch.randn(4, 3).double()
    jacobian, direction = (
        Jacobian(model, x),
        {n: torch.ones_like(p) for n, p in model.named_parameters()},
    )
    expected = jacobian.times(direction)
    jacobian.f.zero_()
    torch.testing.assert_close(jacobian.times(direction), expected)

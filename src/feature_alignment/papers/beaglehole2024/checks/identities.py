"""Exact identities, checked at every layer of a network, and the misprints among them.

Source: beaglehole2024, Propositions 2, 3 and 12, eq. 4, 7 and 11, Sections 4.1 and 5.1, Appendix A.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from feature_alignment.free_probability.centred_correlation import velocity_correlation
from feature_alignment.layer_features import feature_matrices as matrices
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import ACTIVATIONS, MLP
from feature_alignment.pipeline.checks import largest, largest_of_each

Loss = Callable[[Callable[..., torch.Tensor]], torch.Tensor]
"""L as a function of the network, which maps inputs to outputs."""
SCALARS = {"positive": (0.5, 3.0), "any": (0.5, -3.0)}  # values of a in f(Wx) = a⁻ᵖ f(aWx)
RELATIVE_STEP = 1e-4  # length of the finite-difference step, as a share of the weights' norm


def identity_errors(model: MLP, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Relative differences between the two sides of each statement, the largest over layers.

    The model has no biases, one output, and hidden layers as wide as the inputs; inputs are (n, d),
    labels (n, 1). The glossary's AGOP and the proof of Proposition 12 are also taken as printed,
    with gradients with respect to h_ℓ and with the inputs x_0.
    """
    errors: dict[str, float] = {}
    inputs = _inputs(model, x)
    input_gradients = torch.autograd.grad(model.layers[-1](inputs[-1]).sum(), inputs)
    tangents = preactivation_gradients(model, x)
    for (name, delta), a, gradients in zip(tangents.items(), inputs, input_gradients, strict=True):
        a = a.detach()
        weight = model.get_parameter(f"{name}.weight")
        covariance = matrices.preactivation_feature_covariance(delta)
        agop = matrices.average_gradient_outer_product(weight.detach(), covariance)
        kernel = matrices.preactivation_tangent_kernel(delta)
        weight_gradients = torch.stack(
            [torch.autograd.grad(model(row).sum(), weight)[0].flatten() for row in x.split(1)]
        )  # (n, k·d)
        by_h = delta[:, 0]  # (n, k)
        found = {
            "proposition_2": _relative(agop, gradients.T @ gradients / len(x)),
            "proposition_12": _relative(kernel * (a @ a.T), weight_gradients @ weight_gradients.T),
            "proposition_12_gradient": _relative(_outer(by_h, a), weight_gradients),
            "proposition_12_gradient_as_printed": _relative(_outer(by_h, x), weight_gradients),
            "equation_4": largest(
                _decomposition_error(weight.detach(), middle)
                for middle in (torch.eye(len(covariance)).to(covariance), covariance)
            ),
            **_second_derivative_errors(model, name, x, y, a, delta),
        }
        if covariance.shape == agop.shape:
            found["glossary_agop_as_printed"] = _relative(covariance, agop)
        errors |= largest_of_each(errors, found)
    return errors


def homogeneity_errors(h: torch.Tensor) -> dict[str, float]:
    """Relative difference between φ(h) and φ(ah)/a for ReLU, for positive a and for any a."""
    relu = ACTIVATIONS["relu"]
    return {
        f"homogeneity_{name}": largest(_relative(relu(a * h) / a, relu(h)) for a in scalars)
        for name, scalars in SCALARS.items()
    }


def quadratic_kernel_errors(
    x: torch.Tensor, width: int, generator: torch.Generator
) -> dict[str, float]:
    """Relative differences between the PTK 𝒦 of f(x) = aᵀ(Wx)² and its formula below eq. 11.

    The paper prints 𝒦 = XWᵀdiag(a)²WXᵀ; since ∂f/∂h = 2a∘h for the square, 𝒦 is four times that.
    """
    sizes = (x.shape[1], [width], 1)
    model = MLP(*sizes, "quadratic", bias=False, generator=generator, dtype=x.dtype).to(x.device)
    hidden, readout = (p.detach() for p in model.parameters())
    kernel = matrices.preactivation_tangent_kernel(preactivation_gradients(model, x)["layers.0"])
    scaled = x @ hidden.T * readout
    printed = scaled @ scaled.T
    return {
        "kernel_of_quadratic_as_printed": _relative(printed, kernel),
        "kernel_of_quadratic_corrected": _relative(4 * printed, kernel),
    }


def projection_error(x: torch.Tensor, y: torch.Tensor, generator: torch.Generator) -> float:
    """1 − ρ of the second derivatives if 𝒦 is a multiple of a random projection of rank n/2."""
    columns = torch.randn(len(x), len(x) // 2, generator=generator, dtype=x.dtype).to(x.device)
    basis = torch.linalg.qr(columns).Q
    return 1 - velocity_correlation(x, y, 3 * basis @ basis.T)


def _outer(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Outer products of the rows, flattened: (n, k·d)."""
    return (left[:, :, None] * right[:, None]).flatten(1)


def _decomposition_error(weight: torch.Tensor, middle: torch.Tensor) -> float:
    """Error of eq. 4's four parts of WᵀMW; the layer's rows in reverse order serve as W₀."""
    parts = torch.stack((weight - weight.flip(0), weight.flip(0)))
    products = torch.einsum("aki,kl,blj->ij", parts, middle, parts)
    return _relative(products, weight.T @ middle @ weight)


def _inputs(model: MLP, x: torch.Tensor) -> list[torch.Tensor]:
    """x_ℓ (n, d_ℓ) of every layer, with their autograd graph."""
    phi = ACTIVATIONS[model.activation]
    inputs = [x.clone().requires_grad_()]
    for layer in model.layers[:-1]:
        inputs.append(phi(layer(inputs[-1])))
    return inputs


def _second_derivative_errors(
    model: MLP, name: str, x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, delta: torch.Tensor
) -> dict[str, float]:
    """Proposition 3 at one layer, for the loss ½ Σ (f − y)²; K and 𝒦 without the factor 1/n."""

    def loss(network: Callable[..., torch.Tensor]) -> torch.Tensor:
        return torch.sum((network(x) - y) ** 2) / 2

    weight = model.get_parameter(f"{name}.weight").detach()
    kernel = matrices.preactivation_tangent_kernel(delta)
    weighted = (model(x) - y).detach() * a  # L̇X, (n, d)
    stated = {
        "nfm": weighted.T @ kernel @ weighted,
        "agop": weighted.T @ kernel @ kernel @ weighted,
    }
    gradient = delta[:, 0].T @ weighted  # of the loss; the flow goes against it
    covariance = matrices.preactivation_feature_covariance(delta)
    by_traces = velocity_correlation(a, (model(x) - y).detach()[:, 0], kernel)
    step = float(RELATIVE_STEP * weight.norm() / gradient.norm())
    before, after = (_centred(model, name, x, loss, time) for time in (-step, step))
    velocity = (after["change"] - before["change"]) / (2 * step)
    of_proof = _relative((after["nfm"] + before["nfm"]) / step**2, 2 * stated["agop"])
    errors = {
        "equation_7": abs(matrices.feature_pair(gradient, covariance).correlation() - by_traces),
        "proposition_3_velocity_as_printed": _relative(velocity, gradient),
        "proposition_3_velocity": _relative(velocity, -gradient),
        "proposition_3_proof_as_printed": of_proof,
    }
    first_derivatives = []
    for matrix, half in stated.items():
        second = (after[matrix] + before[matrix]) / step**2  # at time 0 both matrices vanish
        first = (after[matrix] - before[matrix]) / (2 * step)
        errors[f"proposition_3_{matrix}"] = _relative(second, 2 * half)
        # In units of the second derivative times the time in which weights move by their norm.
        scale = (2 * half).norm() * step / RELATIVE_STEP
        first_derivatives.append(float(first.norm() / scale))
    return {**errors, "proposition_3_first_derivatives": largest(first_derivatives)}


def _centred(
    model: MLP, name: str, x: torch.Tensor, loss: Loss, time: float
) -> dict[str, torch.Tensor]:
    """W̄, W̄ᵀW̄ and W̄ᵀKW̄ at a time of gradient flow, with K at that time."""
    parameters = flow(model, loss, time)
    change = parameters[f"{name}.weight"] - model.get_parameter(f"{name}.weight").detach()
    gradients = preactivation_gradients(model, x, [name], parameters)[name]
    covariance = matrices.preactivation_feature_covariance(gradients) * len(x)
    agop = change.T @ covariance @ change
    return {"change": change, "nfm": change.T @ change, "agop": agop}


def flow(model: nn.Module, loss: Loss, time: float) -> dict[str, torch.Tensor]:
    """The parameters, by name, after a short, possibly negative time of gradient flow dθ/dt = −∇L.

    Takes one step of the classic fourth-order Runge-Kutta method, with an error of O(time⁵). The
    model is not changed.

    Source: beaglehole2024, eq. 5 (the flow).

    Example:
        For L = θ²/2 the flow is θ(t) = θ(0) e^(−t).

        >>> model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        >>> _ = model.weight.data.fill_(1.0)
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> weight = flow(model, lambda f: (f(one) ** 2).sum() / 2, 0.01)["weight"]
        >>> bool(abs(weight - 0.99004983) < 1e-8)
        True
    """
    start = {name: value.detach() for name, value in model.named_parameters()}

    def velocity(at: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        at = {name: value.detach().requires_grad_() for name, value in at.items()}
        value = loss(partial(torch.func.functional_call, model, at))
        gradients = torch.autograd.grad(value, list(at.values()))
        return {name: -g for name, g in zip(at, gradients, strict=True)}

    def moved(by: dict[str, torch.Tensor], step: float) -> dict[str, torch.Tensor]:
        return {name: value + step * by[name] for name, value in start.items()}

    first = velocity(start)
    second = velocity(moved(first, time / 2))
    third = velocity(moved(second, time / 2))
    fourth = velocity(moved(third, time))
    return {
        name: value + time / 6 * (first[name] + 2 * (second[name] + third[name]) + fourth[name])
        for name, value in start.items()
    }


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())

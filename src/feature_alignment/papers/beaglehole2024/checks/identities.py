"""Propositions that hold exactly, checked at every layer of a network.

Source: beaglehole2024, Propositions 2, 3 and 12.
"""

from collections.abc import Callable

import torch

from feature_alignment.layer_features.feature_matrices import average_gradient_outer_product
from feature_alignment.layer_features.layer_signals import layer_signals
from feature_alignment.layer_features.preactivation import (
    preactivation_feature_covariance,
    preactivation_tangent_kernel,
)
from feature_alignment.models.mlp import ACTIVATIONS, MLP
from feature_alignment.papers.beaglehole2024.checks.gradient_flow import Loss, flow

RELATIVE_STEP = 1e-4
"""Length of the finite-difference step, as a share of the weights' norm."""


def identity_errors(model: MLP, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Relative differences of both sides of Propositions 2, 3 and 12, the largest over layers.

    Of a model without biases and with one output, for inputs (n, d) and labels (n, 1).
    """
    errors: dict[str, float] = {}
    input_gradients = _input_gradients(model, x)
    for (name, signal), gradients in zip(
        layer_signals(model, x).items(), input_gradients, strict=True
    ):
        weight = model.get_parameter(f"{name}.weight")
        covariance = preactivation_feature_covariance(signal.gradients)
        agop = average_gradient_outer_product(weight.detach(), covariance)
        kernel = preactivation_tangent_kernel(signal.gradients)
        weight_gradients = torch.stack(
            [torch.autograd.grad(model(row).sum(), weight)[0].flatten() for row in x.split(1)]
        )  # (n, k·d)
        found = {
            "proposition_2": _relative(agop, gradients.T @ gradients / len(x)),
            "proposition_12": _relative(
                kernel * (signal.inputs @ signal.inputs.T), weight_gradients @ weight_gradients.T
            ),
            **_second_derivative_errors(model, name, x, y),
        }
        errors = {key: max(value, errors.get(key, 0.0)) for key, value in found.items()}
    return errors


def _input_gradients(model: MLP, x: torch.Tensor) -> list[torch.Tensor]:
    """∂f/∂x_ℓ for every layer by automatic differentiation, (n, d_ℓ) each."""
    phi = ACTIVATIONS[model.activation]
    inputs = [x.clone().requires_grad_()]
    for layer in model.layers[:-1]:
        inputs.append(phi(layer(inputs[-1])))
    return list(torch.autograd.grad(model.layers[-1](inputs[-1]).sum(), inputs))


def _second_derivative_errors(
    model: MLP, name: str, x: torch.Tensor, y: torch.Tensor
) -> dict[str, float]:
    """Proposition 3 at one layer, for the loss ½ Σ (f − y)²; K and 𝒦 without the factor 1/n."""

    def loss(network: Callable[..., torch.Tensor]) -> torch.Tensor:
        return torch.sum((network(x) - y) ** 2) / 2

    weight = model.get_parameter(f"{name}.weight").detach()
    signal = layer_signals(model, x)[name]
    kernel = preactivation_tangent_kernel(signal.gradients)
    weighted = (model(x) - y).detach() * signal.inputs  # L̇X, (n, d)
    stated = {
        "nfm": weighted.T @ kernel @ weighted,
        "agop": weighted.T @ kernel @ kernel @ weighted,
    }
    gradient = signal.gradients[:, 0].T @ weighted
    step = float(RELATIVE_STEP * weight.norm() / gradient.norm())
    before, after = (_centred(model, name, x, loss, time) for time in (-step, step))
    errors, first_derivatives = {}, []
    for matrix, half in stated.items():
        second = (after[matrix] + before[matrix]) / step**2  # at time 0 both matrices vanish
        first = (after[matrix] - before[matrix]) / (2 * step)
        errors[f"proposition_3_{matrix}"] = _relative(second, 2 * half)
        # In units of the second derivative times the time in which the weights turn over.
        scale = (2 * half).norm() * step / RELATIVE_STEP
        first_derivatives.append(float(first.norm() / scale))
    return {**errors, "proposition_3_first_derivatives": max(first_derivatives)}


def _centred(
    model: MLP, name: str, x: torch.Tensor, loss: Loss, time: float
) -> dict[str, torch.Tensor]:
    """W̄ᵀW̄ and W̄ᵀKW̄ at a time of gradient flow, K that of the time."""
    parameters = flow(model, loss, time)
    change = parameters[f"{name}.weight"] - model.get_parameter(f"{name}.weight").detach()
    gradients = layer_signals(model, x, parameters)[name].gradients
    covariance = preactivation_feature_covariance(gradients) * len(x)
    return {"nfm": change.T @ change, "agop": change.T @ covariance @ change}


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())

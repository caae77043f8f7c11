"""Gradient descent on the chain-monomial task, and its first-layer feature matrices.

Source: beaglehole2024, Figure 1, Section 2.1-2.2 and Appendix J.
"""

from typing import Any

import numpy as np
import torch

from feature_alignment.data.synthetic import chain_monomial, chain_monomial_egop
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.errors import UserError
from feature_alignment.experiments.run import SeedResult, precision
from feature_alignment.kernels.feature_matrices import (
    average_gradient_outer_product,
    cosine_similarity,
    neural_feature_correlation,
    neural_feature_matrix,
    spectrum_preserving_rotation,
)
from feature_alignment.kernels.layer_signals import layer_signals
from feature_alignment.kernels.preactivation import preactivation_feature_covariance
from feature_alignment.models.mlp import MLP
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.evaluation import loss_value
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress

Parameters = dict[str, Any]


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Train one network and compare F = WᵀW, G = WᵀKW, WᵀQW and the EGOP at the first layer.

    Args:
        seed: the seed.
        parameters: the section `beaglehole2024_chain_monomial` of the config.
        device: where to train.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        The losses, the similarities, and the four matrices, each (d, d).

    Raises:
        UserError: if the task needs more coordinates than the inputs have.
        TrainingDivergedError: if training diverged or left every ReLU dead.
    """
    d, r = parameters["dimension"], parameters["rank"]
    if r > d:
        raise UserError(
            f"experiments.beaglehole2024_chain_monomial.rank: found {r}, above the dimension {d}; "
            "lower the rank or raise the dimension."
        )
    x, y, x_test, y_test = _data(seed, parameters, device)
    model = _train(seed, parameters, x, y, label)
    steps = parameters["steps"]
    result = SeedResult()
    result.add("loss", loss_value(model, x, y, mse), step=steps)
    result.add("loss", loss_value(model, x_test, y_test, mse), step=steps, split="test")
    _measure(model, x, r, seed, parameters["random_conjugates"], steps, result)
    return result


def _data(
    seed: int, parameters: Parameters, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = stream(seed, "data")
    x = rng.standard_normal((parameters["samples"], parameters["dimension"]))
    x_test = rng.standard_normal((parameters["test_samples"], parameters["dimension"]))
    y, y_test = (chain_monomial(inputs, parameters["rank"])[:, None] for inputs in (x, x_test))
    # Training and test labels share one scale, or the test loss would measure another task.
    scale = y.std()
    to = {"dtype": precision(parameters), "device": device}
    return tuple(torch.tensor(array, **to) for array in (x, y / scale, x_test, y_test / scale))


def _train(seed: int, parameters: Parameters, x: torch.Tensor, y: torch.Tensor, label: str) -> MLP:
    hidden = parameters["hidden_layers"]
    model = MLP(
        x.shape[1],
        [parameters["width"]] * hidden,
        1,
        "relu",
        bias=False,
        generator=torch_stream(seed, "init"),
        layer_scales=[parameters["first_layer_scale"]] + [1.0] * hidden,
        dtype=x.dtype,
    ).to(x.device)
    train(
        model,
        x,
        y,
        loss=mse,
        optimizer=make_optimizer(
            model.parameters(), {"name": "gd", "lr": parameters["learning_rate"]}
        ),
        steps=parameters["steps"],
        progress=Progress(parameters["steps"], label),
    )
    return model


def _measure(
    model: MLP,
    x: torch.Tensor,
    rank: int,
    seed: int,
    conjugates: int,
    step: int,
    result: SeedResult,
) -> None:
    name, signals = next(iter(layer_signals(model, x).items()))
    weight = model.layers[0].weight.detach()
    covariance = preactivation_feature_covariance(signals.gradients)  # (k, k)
    if not covariance.any():
        raise TrainingDivergedError(
            f"training killed the network: after step {step} no gradient reaches {name}; "
            "use a smaller learning rate."
        )
    nfm = neural_feature_matrix(weight)  # (d, d)
    agop = average_gradient_outer_product(weight, covariance)  # (d, d)
    egop = torch.as_tensor(chain_monomial_egop(x.shape[1], rank)).to(nfm)
    where = {"step": step, "layer": name}
    result.add("nfc", neural_feature_correlation(weight, covariance), **where)
    pearson = neural_feature_correlation(weight, covariance, subtract_mean=True)
    result.add("nfc_mean_subtracted", pearson, **where)
    result.add("nfm_egop", cosine_similarity(nfm, egop), **where)
    result.add("agop_egop", cosine_similarity(agop, egop), **where)
    spectrum = np.linalg.eigvalsh(covariance.double().cpu().numpy())
    result.add("ptk_spectrum_std_over_mean", spectrum.std() / spectrum.mean(), **where)
    rng = stream(seed, "probe/random_conjugates")
    for draw in range(conjugates):
        conjugate = spectrum_preserving_rotation(covariance, rng)
        value = neural_feature_correlation(weight, conjugate)
        result.add("nfc_random_conjugate", value, **where, draw=draw)
        if draw == 0:
            randomised = average_gradient_outer_product(weight, conjugate)
    _describe_egop(egop, result, where)
    matrices = {"egop": egop, "nfm": nfm, "agop": agop, "random_conjugate_agop": randomised}
    result.arrays.update({name: matrix.cpu().numpy() for name, matrix in matrices.items()})


def _describe_egop(egop: torch.Tensor, result: SeedResult, where: dict[str, Any]) -> None:
    """The entries of the EGOP that the paper states: its diagonal, off-diagonal and rank."""
    matrix = egop.cpu().numpy()
    support = matrix.diagonal() > 0
    inside = matrix[np.ix_(support, support)]
    off_diagonal = inside[~np.eye(len(inside), dtype=bool)]
    result.add("egop_diagonal", inside.diagonal().mean(), **where)
    result.add("egop_off_diagonal_min", off_diagonal.min(), **where)
    result.add("egop_off_diagonal_max", off_diagonal.max(), **where)
    result.add("egop_outside_max", np.abs(matrix[~support]).max(initial=0.0), **where)
    result.add("egop_rank", np.linalg.matrix_rank(matrix), **where)

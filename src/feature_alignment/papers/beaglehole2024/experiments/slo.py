"""Gradient descent and Speed Limited Optimization on the chain-monomial task.

Source: beaglehole2024, Figures 4 and 11, Section 5 and Appendix J.
"""

import torch

from feature_alignment.data.synthetic import chain_monomial_egop
from feature_alignment.papers.beaglehole2024.experiments.chain_task import (
    Parameters,
    chain_network,
    chain_task,
)
from feature_alignment.pipeline.run import SeedResult
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import measurement_schedule

FIRST_LAYER = "layers.0"


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Train one network for each initialisation scale, on the same samples.

    Args:
        seed: the seed.
        parameters: the section `beaglehole2024_slo` of the config.
        device: where to train.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        Losses and the measures of `FeatureProbe` in the first layer, with the column `scale`; the
        first layer's ‖W₀‖ / ‖W‖ (`initial_over_final_norm`), NFM and AGOP after the last step, the
        matrices as `scale<s>/nfm/step<t>`, each (d, d).

    Raises:
        UserError: if the task needs more coordinates than the inputs have, or the number of
            speeds is not that of the layers.
        TrainingDivergedError: if training diverged or left every ReLU dead.
    """
    task = chain_task(seed, parameters, device)
    steps, d = parameters["steps"], parameters["dimension"]
    references = {
        "egop": torch.as_tensor(chain_monomial_egop(d, parameters["rank"])).to(task.x),
        "identity": torch.eye(d).to(task.x),
    }
    result = SeedResult()
    for initialisation in parameters["initialisations"]:
        scale, rate = initialisation["first_layer_scale"], initialisation["learning_rate"]
        inner = [1.0] * (parameters["hidden_layers"] - 1)
        scales = [scale, *inner, parameters["readout_scale"]]
        model = chain_network(seed, parameters, scales, device)
        weight = model.get_submodule(FIRST_LAYER).weight
        initial_norm = weight.detach().norm()
        recorder = train(
            model,
            task.x,
            task.y,
            loss=mse,
            optimizer=_optimizer(model, parameters, rate),
            steps=steps,
            measure_at=measurement_schedule({"every": parameters["measure_every"]}, steps),
            evaluate_on=task.splits,
            probes=[
                FeatureProbe(
                    model,
                    task.x,
                    layers=[FIRST_LAYER],
                    references=references,
                    keep_matrices_at=[steps],
                ),
            ],
            progress=Progress(steps, f"{label}, scale {scale:g}"),
        )
        result.extend(recorder, prefix=f"scale{scale:g}/", scale=scale)
        share = float(initial_norm / weight.detach().norm())
        result.add("initial_over_final_norm", share, step=steps, layer=FIRST_LAYER, scale=scale)
    return result


def _optimizer(
    model: torch.nn.Module, parameters: Parameters, rate: float
) -> torch.optim.Optimizer:
    if parameters["optimizer"] == "gd":
        return make_optimizer(model.parameters(), {"name": "gd", "lr": rate})
    settings = {key: parameters[key] for key in ("speeds", "epsilon", "relaxation")}
    return make_optimizer(model.parameters(), {"name": "slo", "lr": rate, **settings})

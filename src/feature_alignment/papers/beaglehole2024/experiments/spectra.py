"""Feature correlations on the chain-monomial task for several initialisation scales and spectra.

Source: beaglehole2024, Figures 5, 6 and 8-10, Appendices D, H and J.
"""

import torch

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


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Train one network for each initialisation scale, on the same samples.

    Args:
        seed: the seed.
        parameters: the section `beaglehole2024_spectra` of the config.
        device: where to train.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        Losses and the measures of `FeatureProbe` in the hidden layers, with the column `scale`.

    Raises:
        UserError: if the task needs more coordinates than the inputs have.
        TrainingDivergedError: if training diverged or left every ReLU dead.
    """
    task = chain_task(seed, parameters, device, parameters["decay"])
    hidden, steps = parameters["hidden_layers"], parameters["steps"]
    result = SeedResult()
    for scale in parameters["first_layer_scales"]:
        model = chain_network(seed, parameters, [scale] + [1.0] * hidden, device)
        probe = FeatureProbe(
            model,
            task.x,
            layers=[f"layers.{number}" for number in range(hidden)],
            centre_tangents=True,
        )
        recorder = train(
            model,
            task.x,
            task.y,
            loss=mse,
            optimizer=make_optimizer(
                model.parameters(), {"name": "gd", "lr": parameters["learning_rate"]}
            ),
            steps=steps,
            measure_at=measurement_schedule({"every": parameters["measure_every"]}, steps),
            evaluate_on=task.splits,
            probes=[probe],
            progress=Progress(steps, f"{label}, scale {scale:g}"),
        )
        result.extend(recorder, prefix=f"scale{scale:g}/", scale=scale)
    return result

"""Gradient descent on a linear function of Gaussian inputs.

Source: example2030, Figure 2.
"""

import torch

from feature_alignment.papers.example2030.parameters import Descent
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse


def run_seed(run: SeedRun[Descent]) -> SeedResult:
    """Fit a linear model, from zero, to targets that a linear function makes.

    Returns:
        The training loss before the first and after every update.
    """
    p, generator = run.parameters, run.stream("data")
    x = generator.standard_normal((p.samples, p.dimension))
    y = x @ generator.standard_normal((p.dimension, 1))
    model = torch.nn.Linear(p.dimension, 1, bias=False, **run.to)
    torch.nn.init.zeros_(model.weight)
    record = train(
        model,
        torch.tensor(x, **run.to),
        torch.tensor(y, **run.to),
        loss=mse,
        optimizer=torch.optim.SGD(model.parameters(), lr=p.learning_rate),
        **run.training(p.steps),
        measure_at=range(p.steps + 1),
    )
    result = SeedResult()
    result.extend(record)
    return result

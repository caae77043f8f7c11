"""Feature correlations of fully connected networks on image datasets, epoch by epoch.

Source: beaglehole2024, Figures 2A, 2B, 13 and 14, Appendix J.
"""

from feature_alignment.papers.beaglehole2024.experiments.image_task import (
    image_task,
    train_on_images,
)
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import (
    hidden_layers,
    relu_network,
)
from feature_alignment.papers.beaglehole2024.parameters import ImageMLP
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[ImageMLP]) -> SeedResult:
    """Train one network from PyTorch's default initialisation, without biases.

    Returns:
        What `train_on_images` measures, in the hidden layers.
    """
    p = run.parameters
    task = image_task(run)
    x, y = task["train"]
    model = relu_network(run, [x[0].numel(), *[p.width] * p.hidden_layers, y.shape[1]])
    return train_on_images(run, model, task, hidden_layers(p.hidden_layers))

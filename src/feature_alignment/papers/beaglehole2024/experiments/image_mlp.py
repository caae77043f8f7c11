"""beaglehole2024, Figures 2A, 2B, 13 and 14, Appendix J: fully connected networks on images."""

from feature_alignment.papers.beaglehole2024.experiments import image_task, relu_networks
from feature_alignment.papers.beaglehole2024.parameters import ImageMLP
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[ImageMLP]) -> SeedResult:
    """Train one network from PyTorch's default initialisation, without biases; see `image_task`."""
    task = image_task.draw_samples(run)
    x, y = task["train"]
    model = relu_networks.new_network(run, x[0].numel(), y.shape[1])
    layers = relu_networks.hidden_layers(run.parameters.hidden_layers)
    return image_task.train_network(run, model, task, layers)

"""Feature correlations of a convolutional network on CIFAR-10, epoch by epoch.

Source: beaglehole2024, Figures 2C and 15A, Appendix J.
"""

from torch import nn

from feature_alignment.models.vgg import VGG
from feature_alignment.papers.beaglehole2024.experiments import image_task
from feature_alignment.papers.beaglehole2024.parameters import ImageVGG
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[ImageVGG]) -> SeedResult:
    """Train one VGG-11 without batch norm and biases, from PyTorch's default initialisation.

    Measured are the convolutions ("features.…") and the hidden linear layers ("head.…").
    """
    task = image_task.draw_samples(run)
    x, y = task["train"]
    model = VGG(
        11,
        run.parameters.base_width,
        y.shape[1],
        run.torch_stream("init"),
        bias=False,
        head="two_hidden",
        dropout=run.parameters.dropout,
        in_channels=x.shape[1],
        dtype=run.dtype,
    ).to(run.device)
    layers = [
        name for name, module in model.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))
    ]
    return image_task.train_network(run, model, task, layers[:-1])

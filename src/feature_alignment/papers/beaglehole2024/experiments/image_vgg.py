"""beaglehole2024, Figures 2C and 15A, Appendix J: a convolutional network on CIFAR-10."""

from torch import nn

from feature_alignment.papers.beaglehole2024.experiments import image_task
from feature_alignment.papers.beaglehole2024.parameters import ImageVGG
from feature_alignment.pipeline.labelled_images import image_classifier
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[ImageVGG]) -> SeedResult:
    """Train one VGG-11 without batch norm or biases, and measure all its layers but the last."""
    p, task = run.parameters, image_task.draw_samples(run)
    shape, options = task["train"][0][0].shape, {"head": "two_hidden", "dropout": p.dropout}
    model = image_classifier(run, "vgg11", shape, p.base_width, bias=False, **options)
    layers = [
        name for name, module in model.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))
    ]
    return image_task.train_network(run, model, task, layers[:-1])

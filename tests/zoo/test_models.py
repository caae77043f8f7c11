import pytest

from zoo.contract import Contract
from zoo.models import MODELS
from zoo.oracle import Case, prepared

FAST = {"torchvision ViT", "timm ResMLP", "timm gMLP", "GPT-2", "BERT", "T5 encoder"}


def marked(name):
    return pytest.param(name, marks=() if name in FAST else pytest.mark.slow)


@pytest.fixture(scope="module", params=map(marked, MODELS))
def case(request):
    """A published model and random inputs."""
    build, data, *tolerance = MODELS[request.param]
    x = data(3, 0)

    def make():
        model = prepared(build)
        if hasattr(model, "body"):  # transformers adds hooks in the first forward pass
            model(x)
        return model

    return Case(make, x, data(2, 1), *tolerance)


class TestModels(Contract):
    pass

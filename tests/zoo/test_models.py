import pytest

from zoo.contract import Contract
from zoo.models import MODELS
from zoo.oracle import Case, prepared

FAST = {"torchvision ViT", "timm ResMLP", "timm gMLP", "GPT-2", "BERT", "T5 encoder"}

# They take long, and others of the same parts do not.
EXHAUSTIVE = {
    "torchvision ResNet",
    "torchvision MobileNetV3",
    "torchvision EfficientNet",
    "torchvision RegNet",
    "torchvision DenseNet",
    "torchvision GoogLeNet",
    "torchvision ShuffleNetV2",
    "torchvision MNASNet",
    "torchvision Swin",
    "torchvision Swin V2",
    "torchvision MaxViT",
    "torchvision DenseNet with checkpoints",
    "timm Swin V2",
    "timm BEiT",
    "timm CaiT",
    "timm CoaT",
    "timm ConViT",
    "timm EVA",
    "timm Hiera",
    "timm NFNet",
    "timm PoolFormer",
    "timm Sequencer",
    "timm TNT",
    "timm XCiT",
    "timm PVT V2",
    "timm Twins",
    "timm GhostNet",
    "Mixtral",
    "ALBERT",
    "FNet",
    "RoBERTa",
    "DeBERTa",
    "DistilBERT",
    "OPT",
    "GPT-NeoX",
    "BLOOM",
    "Mamba",
    "transformers ViT",
    "CLIP",
    "SegFormer",
}
assert MODELS.keys() >= FAST | EXHAUSTIVE


def marked(name):
    mark = pytest.mark.exhaustive if name in EXHAUSTIVE else pytest.mark.slow
    return pytest.param(name, marks=() if name in FAST else mark)


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

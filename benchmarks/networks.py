"""The networks that the benchmarks of the tangent kernel run on, all on one tensor.

Our own networks by width, and published architectures of one size, from their configurations. The
latter need timm and transformers (`pip install -e .[zoo]`), imported when one is built.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from feature_alignment.models.gpt import GPT
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded

Draw = Callable[[int], torch.Tensor]


@dataclass(frozen=True)
class Network:
    """How to build a network and draw inputs for it.

    Attributes:
        build: the network of some width; published ones have one size.
        draw: n inputs.
        outputs: c.
        package: what it needs in addition to the project's own dependencies.
    """

    build: Callable[[int], nn.Module]
    draw: Draw
    outputs: int = 10
    package: str | None = None


def mlp(width: int, depth: int = 5, outputs: int = 10) -> MLP:
    """ReLU network with `depth` hidden layers on 784 inputs."""
    return MLP(784, [width] * depth, outputs, "relu", True, _seeded())


def vgg(width: int, depth: int = 19, outputs: int = 10) -> VGG:
    """VGG with `width` channels in its first convolution."""
    return VGG(depth, width, outputs, _seeded(), init="kaiming")


def gpt(width: int, depth: int = 4, outputs: int = 27, tokens: int = 64) -> GPT:
    """Transformer on characters; the outputs are the next one's logits."""
    untied = {"tie_weights": False, "outputs": "last_position"}
    return GPT(outputs, depth, 4, width, tokens, _seeded(), **untied)


def perturbed(model: nn.Module) -> nn.Module:
    """The model in evaluation mode with no parameter left at zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model.eval()


class Logits(nn.Module):
    """A model of transformers, with its logits as output."""

    def __init__(self, body: nn.Module, **options: Any) -> None:
        super().__init__()
        self.body, self.options = body, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, c) of tokens (n, T)."""
        return self.body(x, **self.options).logits


class Encoder(nn.Module):
    """`nn.TransformerEncoder` with a readout of the mean over its tokens."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (n, c) of sequences (n, T, 128)."""
        return self.head(self.body(x).mean(1))


class Recurrent(nn.Module):
    """`nn.LSTM` with a readout of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(32, 128, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (n, c) of sequences (n, T, 32)."""
        return self.head(self.body(x)[0][:, -1])


def _vit() -> nn.Module:
    from timm.models import VisionTransformer

    size = {"img_size": 64, "patch_size": 8, "embed_dim": 192, "depth": 6, "num_heads": 3}
    return VisionTransformer(**size, num_classes=10)


def _mixer() -> nn.Module:
    from timm.models import MlpMixer

    return MlpMixer(img_size=64, patch_size=8, embed_dim=128, num_blocks=6, num_classes=10)


def _convnext() -> nn.Module:
    from timm.models import ConvNeXt

    size = {"depths": (2, 2, 2, 2), "dims": (32, 64, 128, 256), "patch_size": 2}
    return ConvNeXt(**size, ls_init_value=0.1, num_classes=10)


def _timm(name: str) -> nn.Module:
    import timm

    return timm.create_model(name, num_classes=10)


def _gpt2() -> nn.Module:
    import transformers as hf

    size = {"vocab_size": 1000, "n_positions": 64, "n_embd": 128, "n_layer": 4, "n_head": 4}
    ends = {"bos_token_id": 1, "eos_token_id": 1}
    body = hf.GPT2ForSequenceClassification(
        hf.GPT2Config(**size, **ends, num_labels=10, pad_token_id=0)
    )
    # Without a padding token it does not look for one, which torch.func could not follow.
    body.transformer.config = hf.GPT2Config(**size, **ends)
    return Logits(body, use_cache=False)


_TEXT = {
    "vocab_size": 1000,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "num_labels": 10,
}


def _llama() -> nn.Module:
    import transformers as hf

    config = hf.LlamaConfig(**_TEXT, intermediate_size=344, pad_token_id=0, use_cache=False)
    return Logits(hf.LlamaForSequenceClassification(config))


def _bert() -> nn.Module:
    import transformers as hf

    config = hf.BertConfig(**_TEXT, intermediate_size=512)
    return Logits(hf.BertForSequenceClassification(config))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _normal(*shape: int) -> Draw:
    return lambda n: torch.randn(n, *shape)


def _published(build: Callable[[], nn.Module], draw: Draw, package: str | None = None) -> Network:
    return Network(lambda _: build(), draw, package=package)


def _tokens(n: int) -> torch.Tensor:
    return torch.randint(1, 1000, (n, 64))


_IMAGES = _normal(3, 64, 64)

MODELS: dict[str, Network] = {
    "MLP": Network(mlp, _normal(784)),
    "VGG19": Network(vgg, _normal(3, 32, 32)),
    "ResNet18": Network(lambda width: ResNet18(width, 10, _seeded()), _normal(3, 32, 32)),
    "GPT": Network(gpt, lambda n: torch.randint(27, (n, 64)), 27),
    "ViT": _published(_vit, _IMAGES, "timm"),
    "GPT-2": _published(_gpt2, _tokens, "transformers"),
    "LLaMA": _published(_llama, _tokens, "transformers"),
    "BERT": _published(_bert, _tokens, "transformers"),
    "Mixer": _published(_mixer, _IMAGES, "timm"),
    "ConvNeXt": _published(_convnext, _IMAGES, "timm"),
    "MobileNetV3": _published(lambda: _timm("mobilenetv3_small_050"), _IMAGES, "timm"),
    "timm-ResNet18": _published(lambda: _timm("resnet18"), _IMAGES, "timm"),
    "TransformerEncoder": _published(Encoder, _normal(64, 128)),
    "LSTM": _published(Recurrent, _normal(50, 32)),
}

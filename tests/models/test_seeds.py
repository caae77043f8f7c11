import pytest
import torch

from feature_alignment.models.gpt import GPT
from feature_alignment.models.initialisation import new_linear
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG

BUILDERS = {
    "MLP": lambda g: MLP(4, [6, 5], 2, "relu", True, g),
    "VGG": lambda g: VGG(11, 2, 3, g, head="two_hidden"),
    "ResNet": lambda g: ResNet18(2, 3, g),
    "GPT": lambda g: GPT(7, 2, 2, 8, 6, g, init="nanogpt"),
    "GPT, PyTorch": lambda g: GPT(7, 2, 2, 8, 6, g, init="pytorch"),
    "GPT, Kaiming": lambda g: GPT(7, 2, 2, 8, 6, g, init="kaiming"),
    "layer": lambda g: new_linear(
        4, 5, bias=True, scheme="pytorch", generator=g, dtype=torch.float64
    ),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_weights_repeat_with_the_seed_and_leave_the_global_generator_alone(name):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (
        list(BUILDERS[name](torch.Generator().manual_seed(seed)).parameters()) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])

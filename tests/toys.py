"""Small inputs and networks that several test files share."""

import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import stream, torch_stream
from feature_alignment.models.mlp import MLP


def draw(*shape, seed=0):
    """Standard normal numbers in double precision."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch_stream(seed, "draw"))


def gram(size=12, rank=12, seed=0):
    """A kernel of the given rank, as an array."""
    features = stream(seed, "features").standard_normal((size, rank))
    return features @ features.T


def linear(d=3, k=2):
    """A linear layer in double precision, the same one for the same sizes."""
    torch.manual_seed(0)
    return nn.Linear(d, k).double()


def mlp(widths=(5, 4), seed=0, **options):
    """A ReLU network of three inputs and two outputs, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    options = {"bias": True, "dtype": torch.float64} | options
    return MLP(3, list(widths), 2, "relu", generator=generator, **options)


class Toy(nn.Module):
    """Modules, and how outputs follow from them and the inputs: `function(model, x)`."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.function(self, x)


def unused():
    """A layer that counts and one that does not."""
    return Toy(lambda m, x: m.used(x), used=linear(), spare=linear())


def twice():
    """One layer called twice."""
    return Toy(lambda m, x: m.layer(m.layer(x)), layer=linear(3, 3))


def overwrites_its_input():
    """Zeroes what its second layer was given."""

    def forward(m, x):
        a = F.softplus(m.first(x))
        f = m.second(a)
        a.zero_()
        return f

    return Toy(forward, first=linear(3, 4), second=linear(4, 2))


def mlp_inputs(model, x):
    """Inputs (n, d) of each layer of an MLP."""
    found = []
    handles = [
        layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].detach()))
        for layer in model.layers
    ]
    model(x)
    for handle in handles:
        handle.remove()
    return found


class OldTanh(torch.autograd.Function):
    """As Functions were written before they could be differentiated twice."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient.data * (1 - x.data.tanh() ** 2)


class Quiet(torch.autograd.Function):
    """What passes gradients on, and hides that they depend on anything."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.detach() * 1.0

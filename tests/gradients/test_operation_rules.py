"""Every rule is applied to its operations, and gives the gradients that autograd does."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace
from toys import Toy, draw

N = 4


def model_of(function, *shapes):
    """A model with parameters p, q and r of these shapes, in the outputs of a function of them."""
    model = Toy(lambda m, x: torch.tanh(function(x, *m.parameters())).flatten(1))
    for seed, (name, shape) in enumerate(zip("pqr", shapes, strict=False)):
        setattr(model, name, nn.Parameter(draw(*shape, seed=seed + 1)))
    return model


def normalised(x, p, q):
    """By statistics of other images, without those of the batch."""
    return F.batch_norm(x, x.new_tensor([1.0, -2.0]), x.new_tensor([0.5, 3.0]), p, q)


def tokens(x):
    """Numbers from 0 to 4."""
    return (10 * x).long() % 5


def signs(x):
    """Positive numbers, whose powers are defined."""
    return torch.where(x > 0, 0.5, 2.0)


OPERATIONS = {
    # By axes of the inputs, then shapes of the parameters.
    "mm": (lambda x, p: x @ p, (3,), (3, 2)),
    "mm from the left": (lambda x, p: (p @ x.T).T, (3,), (2, 3)),
    "mm of several positions": (lambda x, p: F.linear(x, p), (5, 3), (2, 3)),
    "mm of samples second": (lambda x, p: (x.transpose(0, 1) @ p).transpose(0, 1), (5, 3), (3, 2)),
    "addmm": (lambda x, p, q: F.linear(x, p, q), (3,), (2, 3), (2,)),
    "addmm with a factor": (lambda x, p, q: torch.addmm(q, x, p, alpha=3), (3,), (3, 2), (2,)),
    "bmm": (lambda x, p: (x.transpose(0, 1) @ p).transpose(0, 1), (5, 3), (5, 3, 2)),
    "bmm of one matrix": (lambda x, p: torch.bmm(x[None], p)[0], (3,), (1, 3, 2)),
    "bmm from the left": (
        lambda x, p: torch.bmm(p, x.permute(1, 2, 0)).permute(2, 0, 1),
        (5, 3),
        (5, 2, 3),
    ),
    "convolution": (lambda x, p, q: F.conv1d(x, p, q, padding=1), (2, 5), (3, 2, 3), (3,)),
    "convolution of groups": (lambda x, p: F.conv1d(x, p, groups=2), (4, 5), (6, 2, 3)),
    "convolution of several images": (
        lambda x, p, q: F.conv2d(x.flatten(0, 1), p, q, (2,)).unflatten(0, (-1, 3)),
        (3, 2, 5, 4),
        (4, 2, 2, 3),
        (4,),
    ),
    "convolution of strides": (
        lambda x, p: F.conv2d(x, p, None, (1, 2), (2, 0), (1, 2)),
        (2, 4, 7),
        (3, 2, 3, 2),
    ),
    "transposed convolution": (
        lambda x, p, q: F.conv_transpose1d(x, p, q, stride=2),
        (4, 3),
        (4, 2, 3),
        (2,),
    ),
    "transposed convolution of groups": (
        lambda x, p, q: F.conv_transpose2d(x, p, q, padding=1, groups=2),
        (4, 3, 2),
        (4, 3, 2, 3),
        (6,),
    ),
    "bias of a transposed convolution": (
        lambda x, q: F.conv_transpose1d(x, torch.ones(4, 2, 3).double(), q),
        (4, 3),
        (2,),
    ),
    "embedding": (lambda x, p: F.embedding(tokens(x), p), (2, 3), (5, 4)),
    "embedding with padding": (
        lambda x, p: F.embedding(tokens(x), p, padding_idx=0),
        (2, 3),
        (5, 4),
    ),
    "lookup": (lambda x, p: p[tokens(x)], (2, 3), (5, 2, 3)),
    "lookup from the end": (lambda x, p: p[tokens(x) - 5], (2, 3), (5, 4)),
    "index_select": (lambda x, p: p.index_select(0, tokens(x)), (), (5, 2, 3)),
    "layer norm": (lambda x, p, q: F.layer_norm(x, (3,), p, q), (5, 3), (3,), (3,)),
    "layer norm of two axes": (
        lambda x, p, q: F.layer_norm(x, (5, 3), p, q),
        (5, 3),
        (5, 3),
        (5, 3),
    ),
    "group norm": (lambda x, p, q: F.group_norm(x, 2, p, q), (4, 5), (4,), (4,)),
    "batch norm": (normalised, (2, 5), (2,), (2,)),
    "gain of a norm": (lambda x, p: F.layer_norm(x, (3,), p), (5, 3), (3,)),
    "RMS norm": (lambda x, p: F.rms_norm(x, (3,), p), (5, 3), (3,)),
    "expand": (lambda x, p: torch.cat([x, p.expand(len(x), 3)], 1), (3,), (3,)),
    "repeat": (lambda x, p: torch.cat([x, p.repeat(len(x), 1)], 1), (3,), (3,)),
    "add": (lambda x, p: x + p, (5, 3), (3,)),
    "add to samples second": (lambda x, p: (x.transpose(0, 1) + p).transpose(0, 1), (5, 3), (3,)),
    "add of another axis": (lambda x, p: x + p, (5, 3), (5, 1)),
    "sub": (lambda x, p: p - x, (5, 3), (3,)),
    "mul": (lambda x, p: x * p, (5, 3), (3,)),
    "mul by one number": (lambda x, p: x * p, (5, 3), (1,)),
    "div": (lambda x, p: x / p, (5, 3), (3,)),
    "addcmul": (lambda x, p, q: torch.addcmul(x, p, q.exp(), value=2), (3,), (3,), (3,)),
    "addcdiv": (lambda x, p, q: torch.addcdiv(x, p, q.exp(), value=2), (3,), (3,), (3,)),
    "atan2": (lambda x, p: torch.atan2(x, p), (5, 3), (3,)),
    "maximum": (lambda x, p: torch.maximum(x, p), (5, 3), (3,)),
    "minimum": (lambda x, p: torch.minimum(x, p), (5, 3), (3,)),
    "prelu": (lambda x, p: F.prelu(x, p), (3, 5), (3,)),
    "where": (lambda x, p, q: torch.where(x > 0, p, q), (5, 3), (3,), (3,)),
    "lerp": (lambda x, p, q: torch.lerp(p, q, x.sigmoid()), (5, 3), (3,), (3,)),
    "power": (lambda x, p: signs(x) ** p, (5, 3), (3,)),
}


@pytest.mark.parametrize(
    ("function", "axes", "shapes"),
    [(function, axes, shapes) for function, axes, *shapes in OPERATIONS.values()],
    ids=OPERATIONS,
)
def test_rules_are_applied_and_right(function, axes, shapes, explicit_kernel, assert_same_kernel):
    model, x = model_of(function, *shapes), draw(N, *axes)
    assert plan_capture(model, x).generic == ()
    expected = explicit_kernel(model, x)
    assert_same_kernel(tangent_kernel(model, x), expected, 1e-10)
    trace = sum(float(gram.trace()) for gram in expected.values())
    assert tangent_trace(model, x) == pytest.approx(trace)

"""How different the outputs of one sample in two companies may be."""

import torch
from torch import nn

from feature_alignment.gradients import checks
from feature_alignment.gradients.model_function import ModelFunction
from feature_alignment.gradients.parameter_values import evaluation_point
from feature_alignment.gradients.samples import as_samples


def test_small_differences_of_large_terms_may_differ_by_the_terms_rounding():
    """Also where each layer's factor is one of the outputs, which says nothing of their terms."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, generator=generator, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(8, 64, bias=False), nn.ReLU(), nn.Linear(64, 1, bias=False))
    model.double()
    with torch.no_grad():
        hidden = model[:2](x)
        weight = 1000 * torch.randn(64, 1, generator=generator, dtype=torch.float64)
        weight -= torch.linalg.lstsq(hidden, hidden @ weight).solution
        model[2].weight.copy_(weight.T)
        f, terms = model(x), (hidden * weight.T).norm(dim=1).max()
    assert f.abs().max() < 1e-9 * terms
    relative = 1e-4
    change = checks._change(
        ModelFunction(model), evaluation_point(model), as_samples(x), f, relative
    )
    assert 0.1 < change / (relative / 100 * terms) < 10

import pytest
import torch

from feature_alignment.gradients.capture_plan import plan_capture
from zoo.contract import Contract, check_single_samples
from zoo.layers import LAYERS, USAGES
from zoo.oracle import Case, prepared

pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated:FutureWarning")

CASES = LAYERS | USAGES
SLOW = {
    "GRU, two ways",
    "LSTM across",
    "LSTM, projected, two ways",
    "decoder",
    "encoder and decoder",
    "packed sequences",
    "tangent of a network",
}
# Some parameter's gradients take a pass of their own for each sample, or for a batch by vmap.
WITHOUT_RULE = {
    "addmm and baddbmm",
    "bilinear",
    "complex arithmetic",
    "complex weights held as real ones",
    "distances to prototypes",
    "embedding bag",
    "embedding bag with a flat list",
    "ensemble by a batched product",
    "function with its own backward pass",
    "gather",
    "one sample at a time",
    "one sample at a time, without a batching rule",
    "packed sequences",
    "samples chosen by a mask and put back",
    "solution of equations",
    "transposed conv, padded by a stride",
    "two samples at a time",
    "view as complex",
    "weighted bag",
}


def marked(name):
    return pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())


def made(name):
    """A small model and random inputs."""
    build, data, *tolerance = CASES[name]
    x = data(3, 0)

    def make():
        torch.manual_seed(0)
        model = build()
        model.double()(x.clone())  # lazy layers take their sizes
        return prepared(lambda: model)

    return Case(make, x, data(2, 1), *tolerance)


@pytest.fixture(scope="module", params=map(marked, CASES))
def case(request):
    return made(request.param)


class TestLayers(Contract):
    def test_rules(self, case, request):
        name = request.node.callspec.params["case"]
        assert bool(plan_capture(case.model, case.x).generic) == (name in WITHOUT_RULE)


def test_the_batch_normalisation_of_one_sample():
    check_single_samples(made("batch norm before a transposition"))

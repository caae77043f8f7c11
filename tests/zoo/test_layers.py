import pytest
import torch

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
    pass


def test_the_batch_normalisation_of_one_sample():
    check_single_samples(made("batch norm before a transposition"))

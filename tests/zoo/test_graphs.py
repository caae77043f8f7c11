import pytest
import torch
from hypothesis import HealthCheck, given, settings

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace
from zoo.graphs import FIRST, graphs
from zoo.oracle import assert_grams, assert_unchanged, fingerprint, grams, jacobian

OPTIONS = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


def samples(n, seed):
    return torch.randn(n, *FIRST, generator=torch_stream(seed, "data"), dtype=torch.float64)


def check(graph, planned=lambda graph, x: None):
    x, x2 = samples(3, 0), samples(2, 1)
    rows, columns = jacobian(graph, x), jacobian(graph, x2)
    before, expected = fingerprint(graph), grams(rows)
    plan = planned(graph, x)
    assert_grams(tangent_kernel(graph, x, plan=plan), expected)
    assert_grams(tangent_kernel(graph, x, x2, plan=plan), grams(rows, columns))
    trace = sum(float(gram.trace()) for gram in expected.values())
    assert tangent_trace(graph, x, plan=plan) == pytest.approx(trace, rel=1e-9)
    assert_unchanged(before, graph)


@settings(max_examples=40, **OPTIONS)
@given(graphs())
def test_random_graphs_agree_with_the_explicit_jacobian(graph):
    check(graph)


@pytest.mark.exhaustive
def test_many_random_graphs_agree_with_the_explicit_jacobian():
    count = 0

    @settings(max_examples=2000, **OPTIONS)
    @given(graphs())
    def run(graph):
        nonlocal count
        check(graph, plan_capture)  # one plan, which halves the time
        count += 1

    run()
    print(f"{count} random graphs")
    assert count >= 2000

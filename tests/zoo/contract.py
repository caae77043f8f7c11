"""What every quantity of the library must be for every supported model."""

import contextlib
import re

import numpy as np
import pytest
import torch

from feature_alignment.determinism import stream, torch_stream
from feature_alignment.kernels.jacobian import (
    Jacobian,
    top_singular_directions,
)
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from zoo.oracle import assert_grams, assert_unchanged, copied, covariances, fingerprint, grams, take


def close(found, expected, tolerance):
    """Relative to the largest entry, as terms of that size are added."""
    assert found.shape == expected.shape
    scale = float(expected.abs().max())
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * scale)


def tightest(function):
    """What a function gives for the least memory budget, which it says when it is given less."""
    budget = 1
    while True:
        try:
            return function(memory_budget=budget)
        except ValueError as error:
            said = re.fullmatch(rf"memory_budget: {budget} bytes; .* need (\d+)\.", str(error))
            if said is None or int(said[1]) <= budget:
                raise
            budget = int(said[1])


@contextlib.contextmanager
def refused_or_right(*words):
    """What is done within is right, or it is refused with one of these words."""
    try:
        yield
    except ValueError as error:
        if not any(word in str(error) for word in words):
            raise


class Contract:
    """Tests that take a `case`; whoever inherits them says which."""

    def test_kernel(self, case, caplog):
        expected = grams(case.rows)
        before, x = fingerprint(case.model), copied(case.x)
        assert_grams(tangent_kernel(case.model, case.x), expected, case.tolerance)
        assert "one by one" not in caplog.text  # gradients are, where samples take other paths
        assert_unchanged(before, case.model)
        cross = tangent_kernel(case.model, case.x, case.x2)
        assert_grams(cross, grams(case.rows, case.columns), case.tolerance)
        torch.testing.assert_close(case.x, x, rtol=0, atol=0, equal_nan=True)

    def test_kernel_within_a_tight_memory_budget(self, case):
        found = tightest(lambda **budget: tangent_kernel(case.model, case.x, **budget))
        assert_grams(found, grams(case.rows), case.tolerance)
        found = tightest(lambda **budget: tangent_kernel(case.model, case.x, case.x2, **budget))
        assert_grams(found, grams(case.rows, case.columns), case.tolerance)

    def test_trace_and_norm(self, case):
        kernel = sum(grams(case.rows).values())
        tolerance, before = 10 * case.tolerance, fingerprint(case.model)
        trace = kernel.trace().item()
        assert tangent_trace(case.model, case.x) == pytest.approx(trace, rel=tolerance)
        tight = tightest(lambda **budget: tangent_trace(case.model, case.x, **budget))
        assert tight == pytest.approx(trace, rel=tolerance)
        assert_unchanged(before, case.model)

    def test_features(self, case):
        features = tangent_features(case.model, case.x)
        close(features, torch.cat(list(case.rows.values()), 2), case.tolerance)

    def test_products(self, case):
        rows, columns = case.rows, case.columns
        n, c = next(iter(rows.values())).shape[:2]
        before, generator = fingerprint(case.model), torch_stream(1, "zoo")

        def draw(*shape):
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        direction = {name: draw(p.shape).to(p) for name, p in case.model.named_parameters()}
        pushed = sum(rows[name] @ v.flatten().double() for name, v in direction.items())
        close(Jacobian(case.model, case.x).times(direction), pushed, case.tolerance)
        u, other = draw(n, c), draw(len(next(iter(columns.values()))), c)
        close_by_name(Jacobian(case.model, case.x).transpose_times(u), rows, u, case.tolerance)
        product = (sum(grams(rows, columns).values()) @ other.flatten()).view(n, c)
        pulled = Jacobian(case.model, case.x2).transpose_times(other)
        found = Jacobian(case.model, case.x).times(pulled)
        close(found, product, case.tolerance)
        jacobian = Jacobian(case.model, case.x)
        close(jacobian.times(jacobian.transpose_times(u)).flatten(), kernel_times(rows, u), 1e-6)
        assert_unchanged(before, case.model)

    @pytest.mark.slow
    def test_singular_directions(self, case):
        tolerance = max(1e-8, case.tolerance)
        start = stream(0, "zoo")
        found = top_singular_directions(case.model, case.x, 1, start, tolerance=tolerance)
        sigma = torch.linalg.matrix_norm(case.matrix, 2).item()
        assert found.values[0] == pytest.approx(sigma, rel=max(1e-6, case.tolerance))
        v = torch.cat([v[0].flatten().double() for v in found.directions.values()])
        np.testing.assert_allclose(
            case.matrix @ v, sigma * found.functions[:, 0], atol=1e-4 * sigma, rtol=0
        )

    def test_covariances(self, case):
        expected = covariances(case.build(), case.x)
        once = [name for name, (*_, once) in expected.items() if once]
        if once:
            found = layer_feature_matrices(case.model, case.x, layers=once)
        for name, (covariance, positions, *_) in expected.items():
            if name in once:
                assert found[name].positions == positions
                close(found[name].covariance, covariance, 10 * case.tolerance)
                continue
            with refused_or_right(f"layer '{name}' ", f"layers: '{name}' "):
                other = layer_feature_matrices(case.model, case.x, layers=[name])[name]
                close(other.covariance, covariance, 10 * case.tolerance)

    @pytest.mark.slow
    def test_one_sample_at_a_time(self, case):
        check_single_samples(case)


def check_single_samples(case):
    """Batches of one sample, for which some of PyTorch's operations go other ways."""
    x, rows = take(case.x, slice(0, 1)), {name: row[:1] for name, row in case.rows.items()}
    assert_grams(tangent_kernel(case.model, x), grams(rows), case.tolerance)
    u = torch.linspace(-1, 1, next(iter(rows.values())).shape[1], dtype=torch.float64)[None]
    close_by_name(Jacobian(case.model, x).transpose_times(u), rows, u, case.tolerance)
    plain = {
        name: covariance
        for name, (covariance, _, once) in covariances(case.build(), case.x).items()
        if once
    }
    if plain:
        found = layer_feature_matrices(case.model, case.x, layers=list(plain), chunk_size=1)
        for name, covariance in plain.items():
            close(found[name].covariance, covariance, 10 * case.tolerance)


def close_by_name(found, rows, u, tolerance):
    """Jᵀu, each parameter's part."""
    assert list(found) == list(rows)
    pulled = {name: torch.einsum("ny,nyp->p", u, row) for name, row in rows.items()}
    scale = max(float(value.abs().max()) for value in pulled.values())
    for name, value in pulled.items():
        torch.testing.assert_close(
            found[name].flatten().double(), value, rtol=tolerance, atol=tolerance * scale
        )


def kernel_times(rows, u):
    """K u."""
    return sum(grams(rows).values()) @ u.flatten()

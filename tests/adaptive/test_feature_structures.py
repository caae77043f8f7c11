import numpy as np
import pytest
import torch

from feature_alignment.adaptive.adaptive_scales import ABSOLUTE, SQUARE
from feature_alignment.adaptive.feature_structures import Diagonal, LayerStructure, Structureless
from feature_alignment.adaptive.parameter_matrices import inner
from feature_alignment.adaptive.penalties import effective_penalty, logarithmic_penalty


@pytest.fixture
def coefficients():
    generator = torch.Generator().manual_seed(0)
    shapes = {"first": (3, 5), "last": (2, 3)}
    return {
        name: 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


STRUCTURES = {
    "none": Structureless(SQUARE),
    "diagonal": Diagonal(ABSOLUTE),
    "layers": LayerStructure(SQUARE, logarithmic_penalty),
    "readout": LayerStructure(ABSOLUTE, SQUARE, readout="last"),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_powers_of_a_transformation_belong_together(name, coefficients):
    transformation = STRUCTURES[name].adapt(coefficients)
    for power in (1, 2):
        there = transformation.apply(coefficients, power)
        back = transformation.apply(there, -power)
        for layer, b in coefficients.items():
            torch.testing.assert_close(back[layer], b)
    twice = transformation.apply(transformation.apply(coefficients, 1), 1)
    for layer, b in transformation.apply(coefficients, 2).items():
        torch.testing.assert_close(twice[layer], b)


def test_the_penalty_is_that_of_transformation_and_coefficients_together(coefficients):
    structure = LayerStructure(SQUARE, logarithmic_penalty, readout="last")
    transformation = structure.adapt(coefficients)
    total = inner(transformation.apply(coefficients, -2), coefficients)  # ‖M⁻¹B‖²
    for layer in coefficients:
        on_inputs, on_outputs = transformation.dense(layer)
        total += float((torch.linalg.svdvals(on_inputs) - 1).square().sum())
        total += logarithmic_penalty(torch.linalg.svdvals(on_outputs).numpy()).sum()
    assert transformation.penalty == pytest.approx(total, rel=1e-12)
    torch.testing.assert_close(transformation.dense("last")[1], torch.eye(2, dtype=torch.float64))


def test_layers_are_transformed_by_their_dense_matrices(coefficients):
    transformation = STRUCTURES["layers"].adapt(coefficients)
    for layer, b in transformation.apply(coefficients, 1).items():
        on_inputs, on_outputs = transformation.dense(layer)
        torch.testing.assert_close(b, on_outputs @ coefficients[layer] @ on_inputs)


def test_no_structure_depends_on_the_norm_of_all_layers_together(coefficients):
    norm = np.sqrt(sum(float(b.square().sum()) for b in coefficients.values()))
    found = Structureless(ABSOLUTE).adapt(coefficients)
    assert found.penalty == pytest.approx(effective_penalty(ABSOLUTE)(np.array([norm]))[0])
    zero = {layer: 0 * b for layer, b in coefficients.items()}
    nothing = Structureless(SQUARE).adapt(zero)
    assert nothing.penalty == 0
    for layer, b in nothing.apply(coefficients, 1).items():
        torch.testing.assert_close(b, coefficients[layer])


def test_a_diagonal_transformation_of_the_squared_frobenius_norm_costs_twice_the_1_norm():
    """Appendix A.1: min over m of m² + β²/m² is 2|β|; Section 3.1 drops the 2."""
    beta = np.array([0.3, -2.0, 7.0])
    m = np.geomspace(1e-3, 1e3, 400_001)
    cost = [(m**2 + (b / m) ** 2).min() for b in beta]
    np.testing.assert_allclose(sum(cost), 2 * np.abs(beta).sum(), rtol=1e-9)

import numpy as np
import pytest
import torch

from feature_alignment.determinism import stream
from feature_alignment.kernels.eigenfunctions import eigenfunctions, label_energy
from toys import gram


@pytest.mark.parametrize("number", [2, 9, None])
def test_they_solve_the_eigenvalue_equation_in_order_unit_mean_square_and_sign(number):
    kernel = gram()
    found = eigenfunctions(kernel, number)
    m = number or 12
    assert found.functions.shape == (12, m)
    assert (np.diff(found.eigenvalues) <= 0).all()
    np.testing.assert_allclose(
        found.eigenvalues, np.sort(np.linalg.eigvals(kernel).real)[::-1][:m], rtol=1e-9
    )
    np.testing.assert_allclose(kernel @ found.functions, found.functions * found.eigenvalues)
    np.testing.assert_allclose(found.functions.T @ found.functions / 12, np.eye(m), atol=1e-12)
    largest = np.abs(found.functions).argmax(axis=0)
    assert (found.functions[largest, np.arange(m)] > 0).all()


def test_several_outputs_share_the_unit_mean_square():
    found = eigenfunctions(gram(), outputs=3)  # 4 samples
    per_sample = (found.functions.reshape(4, 3, -1) ** 2).sum(axis=1)
    np.testing.assert_allclose(per_sample.mean(axis=0), 1)


def test_the_kernel_is_rebuilt_from_all_of_them():
    kernel = gram(rank=4)
    found = eigenfunctions(kernel)
    rebuilt = (found.functions * found.eigenvalues / 12) @ found.functions.T
    np.testing.assert_allclose(rebuilt, kernel, atol=1e-12)


@pytest.mark.parametrize("excess", [0, 1e-9])
def test_of_entries_equally_large_up_to_rounding_the_first_decides(excess):
    mode = np.array([1.0, -1.0 - excess])
    found = eigenfunctions(np.outer(mode, mode), 1).functions[:, 0]
    np.testing.assert_allclose(found, [1, -1], rtol=1e-8)


def test_subset_and_full_solver_agree():
    kernel = gram(40, 40)
    few, all_of_them = eigenfunctions(kernel, 5), eigenfunctions(kernel)
    np.testing.assert_allclose(few.eigenvalues, all_of_them.eigenvalues[:5])
    np.testing.assert_allclose(few.functions, all_of_them.functions[:, :5], atol=1e-9)


def test_float32_tensors_are_accepted():
    found = eigenfunctions(torch.tensor(gram(), dtype=torch.float32), 3)
    assert found.functions.dtype == np.float64
    np.testing.assert_allclose(found.eigenvalues, eigenfunctions(gram(), 3).eigenvalues, rtol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        (np.ones((2, 3)), {}, r"kernel of shape \(2, 3\)"),
        (np.eye(3), {"outputs": 2}, "with 2 outputs"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), {}, "not finite"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), {}, "not symmetric"),
        (np.eye(3), {"number": 4}, "number: 4; it must be a whole number from 1 to 3"),
    ],
)
def test_what_has_no_eigenfunctions_is_refused(kernel, options, message):
    with pytest.raises(ValueError, match=message):
        eigenfunctions(kernel, **options)


def test_label_energy_is_the_share_in_the_leading_modes():
    functions = eigenfunctions(gram(), 4).functions
    functions = functions - functions.mean(axis=0)  # centred modes
    basis = np.linalg.qr(functions)[0]
    y = 5 + 3 * basis[:, 0] + 4 * basis[:, 2]
    assert label_energy(basis, y, 1) == pytest.approx(9 / 25)
    assert label_energy(basis, y, 2) == pytest.approx(9 / 25)
    assert label_energy(basis, y, 3) == pytest.approx(1)
    assert label_energy(7 * basis, y) == pytest.approx(1)


def test_label_energy_centres_each_output():
    y = stream(0, "y").standard_normal((6, 2))
    functions = eigenfunctions(gram(), 12, outputs=2).functions
    centred = (y - y.mean(axis=0)).ravel()
    expected = sum((u @ centred / np.linalg.norm(u)) ** 2 for u in functions[:, :5].T)
    assert label_energy(functions, y, 5) == pytest.approx(expected / (centred @ centred))
    shifted = torch.tensor(y + np.array([3.0, -8.0]))
    assert label_energy(functions, shifted, 5) == pytest.approx(label_energy(functions, y, 5))


@pytest.mark.parametrize(
    ("y", "k", "message"),
    [
        (np.full(12, 0.3), 2, "the labels are the same for all samples"),
        (np.full(12, 0.1), 2, "the labels are the same for all samples"),  # but for rounding
        (np.arange(11.0), 2, "11 label entries for functions of 12"),
        (np.array([]), 2, "y: there are no labels"),
        (np.arange(12.0), 5, "k: 5; it must be a whole number from 1 to 4"),
    ],
)
def test_label_energy_refuses_what_does_not_fit(y, k, message):
    with pytest.raises(ValueError, match=message):
        label_energy(eigenfunctions(gram(), 4).functions, y, k)


def test_a_kernel_is_symmetric_but_for_rounding():
    kernel = gram()
    kernel[0, 1] += 1e-3 * np.abs(kernel).max()
    with pytest.raises(ValueError, match="the kernel is not symmetric"):
        eigenfunctions(kernel)


def test_an_eigenfunction_of_zeros_has_no_direction():
    with pytest.raises(ValueError, match="is zero"):
        label_energy(np.array([[0.0], [0.0]]), np.array([1.0, -1.0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_has_no_label_energy(bad):
    functions, y = np.eye(3), np.arange(3.0)
    for given in ((functions, y + bad), (functions + bad, y)):
        with pytest.raises(ValueError, match=r"^functions and y: they must be finite"):
            label_energy(*given)

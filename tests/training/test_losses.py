import math

import pytest
import torch

from feature_alignment.training.losses import (
    accuracy,
    bce,
    cross_entropy,
    mse,
    sequence_cross_entropy,
)

F = torch.tensor([[0.5, -1.0], [2.0, 0.0], [-3.0, 1.5]], dtype=torch.float64)


def test_mse_averages_over_samples_and_outputs():
    y = torch.ones_like(F)
    expected = sum((float(f) - 1) ** 2 for f in F.flatten()) / 6
    assert mse(F, y).item() == pytest.approx(expected, rel=1e-12)


def test_bce_is_minus_the_log_likelihood_of_the_label():
    y = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    likelihoods = [
        1 / (1 + math.exp(-t * f)) for t, f in zip(y.flatten(), F.flatten(), strict=True)
    ]
    expected = -sum(math.log(p) for p in likelihoods) / 6
    assert bce(F, y).item() == pytest.approx(expected, rel=1e-12)


def test_bce_stays_finite_for_large_outputs():
    f = torch.tensor([[1e4]])
    assert bce(f, -torch.ones(1, 1)).item() == pytest.approx(1e4)
    with pytest.raises(ValueError, match="neither −1 nor 1"):
        bce(f, torch.zeros(1, 1))


def test_cross_entropy_is_minus_the_log_probability_of_the_class():
    y = torch.tensor([1, 0, 1])
    expected = 0.0
    for f, label in zip(F.tolist(), y.tolist(), strict=True):
        expected -= math.log(math.exp(f[label]) / sum(math.exp(v) for v in f)) / 3
    assert cross_entropy(F, y).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", [mse, bce])
def test_targets_that_would_broadcast_are_refused(loss):
    with pytest.raises(ValueError, match=r"outputs have shape \(3, 1\) and targets \(3,\)"):
        loss(torch.zeros(3, 1), torch.zeros(3))


WRONG = [torch.zeros(3), torch.zeros(2, dtype=torch.int64)]


@pytest.mark.parametrize("y", [*WRONG, torch.zeros(3, 2)])
def test_cross_entropy_wants_one_index_per_sample(y):
    with pytest.raises(ValueError, match="one int64 class index per sample"):
        cross_entropy(F, y)
    with pytest.raises(ValueError, match="one int64 class index per sample"):
        cross_entropy(F[:, 0], torch.zeros(3, dtype=torch.int64))


def test_sequence_cross_entropy_is_that_of_all_positions():
    f = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(12).reshape(3, 4) % 5
    parts = [cross_entropy(f[i], y[i]) for i in range(3)]
    assert float(sequence_cross_entropy(f, y)) == pytest.approx(float(sum(parts)) / 3)
    for outputs, wrong in ((f, y[:, 0]), (f, y.int()), (f[:, :, 0], y)):
        with pytest.raises(ValueError, match=r"^sequence_cross_entropy: .* class index per"):
            sequence_cross_entropy(outputs, wrong)


@pytest.mark.parametrize(
    "y", [torch.tensor([1, 0, 0]), torch.tensor([[0.1, 0.9], [0.9, 0.1], [0.9, 0.1]])]
)
def test_accuracy_counts_the_largest_outputs_at_the_class(y):
    f = torch.tensor([[-1.0, 2.0], [3.0, 1.0], [-5.0, -4.0]])
    assert float(accuracy(f, y)) == pytest.approx(2 / 3)


def test_accuracy_of_one_output_is_that_of_its_sign():
    f = torch.tensor([[2.0], [-1.0], [0.0], [-3.0]])
    assert float(accuracy(f, torch.tensor([[1.0], [1.0], [1.0], [-1.0]]))) == 0.5
    for y in (torch.tensor([1, 0, 1, 0]), torch.tensor([[1.0], [0.0], [1.0], [0.0]])):
        with pytest.raises(ValueError, match="give labels −1 and 1"):
            accuracy(f, y)


@pytest.mark.parametrize("y", [*WRONG, torch.zeros(3, 1)])
def test_accuracy_refuses_targets_that_do_not_fit(y):
    with pytest.raises(ValueError, match="one int64 class index per sample, or targets"):
        accuracy(torch.zeros(3, 2), y)


def test_outputs_that_are_no_numbers_are_never_right_and_classes_are_those_of_outputs():
    f = torch.tensor([[math.nan, 0.0], [2.0, 1.0]])
    assert accuracy(f, torch.tensor([0, 0])) == 0.5
    assert accuracy(f[:, :1], torch.tensor([[1.0], [1.0]])) == 0.5
    assert accuracy(f[1:], torch.tensor([[math.nan, 1.0]])) == 0
    for classes in ([0, 2], [-1, 0]):
        with pytest.raises(
            ValueError, match=r"accuracy: classes from -?[01] to [02] for 2 outputs"
        ):
            accuracy(f, torch.tensor(classes))


@pytest.mark.parametrize("label", [-100, 3])
def test_no_label_is_left_out_and_each_is_that_of_an_output(label):
    f, y = torch.zeros(2, 3), torch.tensor([label, 1])
    told = rf"cross_entropy: classes from {y.min()} to {y.max()} for 3 outputs; they count from 0"
    with pytest.raises(ValueError, match=f"^{told}"):
        cross_entropy(f, y)
    with pytest.raises(ValueError, match=f"^sequence_{told}"):
        sequence_cross_entropy(f[:, None], y[:, None])

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.kernels.alignment import centre_kernel, centre_labels


def features(n, c, p, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, c, p, dtype=torch.float64, generator=generator)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_centred_gram_is_the_gram_of_centred_features(n, c, p, seed):
    raw = features(n, c, p, seed)
    flat = raw.reshape(n * c, p)
    centred = (raw - raw.mean(0, keepdim=True)).reshape(n * c, p)
    once = centre_kernel(flat @ flat.T, c)
    torch.testing.assert_close(once, centred @ centred.T)
    torch.testing.assert_close(centre_kernel(once, c), once)


def test_for_one_output_it_is_the_textbook_formula():
    flat = features(5, 1, 3, 0).reshape(5, 3)
    gram = flat @ flat.T
    c = torch.eye(5, dtype=torch.float64) - 1 / 5
    torch.testing.assert_close(centre_kernel(gram), c @ gram @ c)


def test_labels_lose_the_mean_of_each_output():
    y = features(5, 3, 1, 0)[:, :, 0]
    torch.testing.assert_close(centre_labels(y).mean(0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(centre_labels(y + 7), centre_labels(y))


@pytest.mark.parametrize(("shape", "outputs"), [((4, 6), 2), ((5, 5), 2)])
def test_kernels_of_the_wrong_shape_are_refused(shape, outputs):
    with pytest.raises(ValueError, match=r"it must be \(n·c, n·c\)"):
        centre_kernel(torch.zeros(shape), outputs)

import hypothesis.extra.numpy as arrays
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from feature_alignment.determinism import torch_stream
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.experiments import fourier
from feature_alignment.papers.baratin2021.experiments.fourier import fourier_magnitudes, run_seed
from feature_alignment.papers.baratin2021.parameters import Fourier
from feature_alignment.pipeline.run import SeedRun


@settings(deadline=None)
@given(
    arrays.arrays(float, st.tuples(st.integers(2, 9), st.integers(1, 3)), elements=st.floats(-1, 1))
)
def test_magnitudes_are_the_energies_of_sine_and_cosine(functions):
    assume((np.abs(functions).max(axis=0) > 1e-3).all())
    n = len(functions)
    found = fourier_magnitudes(functions)
    assert (found**2).sum(axis=0) == pytest.approx(1)
    for k in range(n // 2 + 1):
        angles = 2 * np.pi * k * np.arange(n) / n
        waves = np.stack([np.cos(angles), np.sin(angles)])
        norms = (waves**2).sum(axis=1)
        waves = waves[norms > 1e-9] / np.sqrt(norms[norms > 1e-9])[:, None]
        share = ((waves @ functions) ** 2).sum(axis=0) / (functions**2).sum(axis=0)
        assert found[k] ** 2 == pytest.approx(share, abs=1e-9)


def test_a_network_with_known_seed():
    n = 24
    result = run_seed(SeedRun(0, Fourier(points=n, linear_layers=3), torch.device("cpu")))
    values = {(row["metric"], row["split"]): row["value"] for row in result.rows}
    eigenvalues, functions = result.arrays["eigenvalues"], result.arrays["functions"]
    assert eigenvalues.shape == (n - 1,)
    assert functions[:, :12].mean(axis=0) == pytest.approx(np.zeros(12), abs=1e-6)
    assert (functions**2).mean(axis=0) == pytest.approx(np.ones(n - 1))
    ratio = eigenvalues[9] / eigenvalues[0]
    assert values["eigenvalue_ratio_10", "grid"] == pytest.approx(ratio)
    assert values["eigenvalue_ratio_10_from_0", "grid"] < ratio
    # The paper's finding, already in a small network: frequency grows with the index.
    assert values["frequency_spearman", "first_half"] > 0.8
    i = np.arange(n)
    waves = np.cos(np.pi * np.outer(i, i + 0.5) / n)  # k by point
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    shares = ((waves @ functions) ** 2).max(axis=0) / n
    expected = shares[: n // 2].mean(), shares[n // 2 :].mean()
    found = [values["peak_share_cosine", split] for split in ("first_half", "second_half")]
    assert found == pytest.approx(expected)
    assert values["peak_share", "first_half"] > values["peak_share", "second_half"]
    peaks = (result.arrays["magnitudes"] ** 2).max(axis=0)  # of shares that sum to one
    found = [values["peak_share", split] for split in ("first_half", "second_half")]
    assert found == pytest.approx([peaks[: n // 2].mean(), peaks[n // 2 :].mean()])


def test_the_tenth_is_counted_from_the_first_index_with_or_without_centring():
    def found(**changes):
        parameters = Fourier(points=24, linear_layers=3, width=16, **changes)
        rows = run_seed(SeedRun(0, parameters, torch.device("cpu"))).rows
        return {row["metric"]: row["value"] for row in rows}

    from_0 = found(first_index=0)
    assert from_0["eigenvalue_ratio_10"] == from_0["eigenvalue_ratio_10_from_0"]
    assert found()["eigenvalue_ratio_10"] > from_0["eigenvalue_ratio_10"]
    raw = found(centred=False)
    assert raw["eigenvalue_ratio_10"] == pytest.approx(raw["eigenvalue_ratio_10_uncentred"])
    assert raw["eigenvalue_ratio_10"] != pytest.approx(found()["eigenvalue_ratio_10"])
    uncentred = found()["eigenvalue_ratio_10_uncentred"]
    assert uncentred == pytest.approx(raw["eigenvalue_ratio_10_uncentred"])


def test_points_are_equally_spaced_on_the_unit_interval(monkeypatch):
    seen = []
    monkeypatch.setattr(fourier, "tangent_kernel", lambda _, x: seen.append(x) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_seed(SeedRun(0, Fourier(points=24, linear_layers=3), torch.device("cpu")))
    assert seen[0][:, 0].numpy() == pytest.approx(np.arange(24) / 23)


def test_the_network_is_the_seeds_and_has_the_layers_asked_for(monkeypatch):
    seen = []
    monkeypatch.setattr(fourier, "tangent_kernel", lambda model, _: seen.append(model) or 1 / 0)
    parameters = Fourier(points=24, linear_layers=3, width=7)
    for seed in (0, 1):
        with pytest.raises(ZeroDivisionError):
            run_seed(SeedRun(seed, parameters, torch.device("cpu")))
    for seed, model in enumerate(seen):
        assert [layer.out_features for layer in model.layers] == [7, 7, 1]
        generator, init = torch_stream(seed, "init"), Fourier().init
        own = MLP(1, [7, 7], 1, "relu", True, generator, init, dtype=torch.float64)
        assert torch.equal(model.layers[0].weight, own.layers[0].weight)


def test_the_agreement_is_the_rank_correlation_of_index_and_dominant_frequency():
    result = run_seed(SeedRun(0, Fourier(points=24, linear_layers=3), torch.device("cpu")))
    dominant = pd.Series(result.arrays["magnitudes"].argmax(axis=0)[:12])
    (found,) = [row["value"] for row in result.rows if row["metric"] == "frequency_spearman"]
    expected = dominant.corr(pd.Series(range(12)), method="spearman")
    assert found == pytest.approx(expected)

"""baratin2021, Figure 5, Section 4.1.2: SuperNat and gradient descent on linear regression."""

from collections.abc import Callable
from functools import partial

import numpy as np

from feature_alignment.data.synthetic import NoisyRegression, expected_loss, noisy_regression
from feature_alignment.papers.baratin2021.checks.supernat import Flow, supernat
from feature_alignment.papers.baratin2021.parameters import Supernat
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.schedule import geometric

Add = Callable[..., None]  # adds a row of one method at one learning rate to the result
NOTHING_LEFT = 1e-3  # with less than this share of the noise unfitted, nothing is left to learn


def run_seed(run: SeedRun[Supernat]) -> SeedResult:
    """Draw one problem and train on it by every method at every learning rate, in NumPy."""
    p = run.parameters
    sizes = p.samples, p.noise_features, p.noise_variance
    problem = noisy_regression(*sizes, run.stream("data"), p.projection)
    result = SeedResult()
    for learning_rate in p.learning_rates:
        train = partial(supernat, problem.features, problem.y, steps=p.steps, factor=p.loss_factor)
        flows = {"gd": train(learning_rate, kappa=None)}
        flows |= {kappa: train(learning_rate, kappa=kappa) for kappa in p.kappas}
        for kappa in p.kappas:
            # The control: SuperNat if it rescaled all features by the same factor.
            trace = np.exp(flows[kappa].log_eigenvalues).sum(axis=1)
            control = "gd_decayed" if kappa == p.kappas[0] else f"gd_decayed_{kappa}"
            flows[control] = train(learning_rate * trace[:-1] / trace[0], kappa=None)
        plain_loss = float(expected_loss(flows["gd"].weights[-1]))
        for method, flow in flows.items():
            add = partial(result.add, learning_rate=learning_rate, method=method)
            if learning_rate == p.learning_rates[0] and not method.startswith("gd_decayed_"):
                _add_curves(add, flow, problem)
            _add_summary(add, flow, problem)
            if method != "gd":
                difference = float(expected_loss(flow.weights[-1])) - plain_loss
                add("loss_minus_gd", difference, step=p.steps, split="test")
    return result


def _add_curves(add: Add, flow: Flow, problem: NoisyRegression) -> None:
    """Add losses and eigenvalues at the measured steps."""
    test = expected_loss(flow.weights)  # (t + 1,)
    train = np.mean((flow.weights @ problem.features.T - problem.y) ** 2, axis=1)
    spectrum = _log10_eigenvalues(flow)
    for step in geometric(len(test) - 1, first=1, ratio=1.25):
        add("loss", test[step], step=step, split="test")
        add("loss", train[step], step=step)
        for name, values in spectrum.items():
            add(f"log10_eigenvalue_{name}", values[step], step=step)


def _add_summary(add: Add, flow: Flow, problem: NoisyRegression) -> None:
    """Add losses, the spectrum's stretch, and how far the noise is fitted.

    The stretch is that at the smallest loss, and that of the first update.
    """
    test = expected_loss(flow.weights)
    spectrum = _log10_eigenvalues(flow)
    noise, target = flow.weights[:, 1:], problem.interpolator[1:]
    last, best = len(test) - 1, int(test.argmin())
    add("final_loss", test[last], step=last, split="test")
    add("smallest_loss", test[best], step=best, split="test")
    add("smallest_loss_step", best, step=best, split="test")
    for name in ("noise_mean", "noise_max"):
        ratio = spectrum["signal"] - spectrum[name]
        add(f"log10_stretch_{name}", ratio[best] - ratio[0], step=best)
        add(f"log10_stretch_{name}_first_update", ratio[1] - ratio[0], step=1)
    fit = noise @ target / (target @ target)  # (t + 1,)
    add("noise_fit", fit[last], step=last)
    left = 1 - fit[last // 2]
    if left > NOTHING_LEFT:
        add("late_noise_share", abs(fit[last] - fit[last // 2]) / left, step=last)


def _log10_eigenvalues(flow: Flow) -> dict[str, np.ndarray]:
    """log₁₀ λ over time: of the signal's mode, and mean and largest of the others."""
    signal = int(np.argmax(np.abs(flow.directions[0])))  # with the largest share of that feature
    log10 = flow.log_eigenvalues / np.log(10)
    noise = np.delete(log10, signal, axis=1)
    return {
        "signal": log10[:, signal],
        "noise_mean": noise.mean(axis=1),
        "noise_max": noise.max(axis=1),
    }

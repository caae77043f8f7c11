"""What is derived from the runs' curves: what moves first, what goes together, what disagrees."""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pandas as pd

QUANTITIES = {
    "effective_rank": "effective rank",
    "label_alignment": "label CKA",
    "adapted_kernel_alignment": "adapted-kernel CKA",
    "mean_nfc": "NFC",
    "mean_centred_nfc": "C-NFC",
    "path_complexity": "complexity C",
    "loss_gap": "generalisation gap",
}
"""The quantities that are compared, with their names in the figure."""
RUN = ["point", "network", "optimizer", "random_label_share", "seed"]
"""The columns that tell runs apart."""
LEAST_STEPS = 4
"""Measurements, or runs, that a rank correlation needs."""


def half_change_step(curve: pd.Series) -> float:
    """When a quantity has made half of its change: the first step at half its largest distance.

    The distance is that from its first measured value; between measurements it is taken to be
    linear in the step. Infinity for a quantity that does not move.

    Args:
        curve: values by step.

    Example:
        >>> half_change_step(pd.Series({0: 1.0, 10: 2.0, 20: 5.0}))
        13.333333333333334
    """
    distance = (curve - curve.iloc[0]).abs()
    half = distance.max() / 2
    if not half > 0:
        return math.inf
    place = int((distance >= half).argmax())
    (step, late), (before, early) = (
        (distance.index[i], distance.iloc[i]) for i in (place, place - 1)
    )
    return float(before + (step - before) * (half - early) / (late - early))


def derived_rows(metrics: pd.DataFrame) -> pd.DataFrame:
    """All derived rows, as tidy rows at the runs' last steps; metrics.yaml describes them.

    Args:
        metrics: the rows of all runs, with the columns `RUN`.
    """
    whole = metrics[metrics["layer"] == "all"]
    runs = [
        (dict(zip(RUN, names, strict=True)), _Curves(rows))
        for names, rows in whole.groupby(RUN, sort=False)
    ]
    found = [row for about, curves in runs for row in _of_run(about, curves)]
    found += _across(runs)
    found += _of_pairs(runs)
    last = int(whole["step"].max())
    return pd.DataFrame(found).assign(step=last, layer="all", split="train")


class _Curves:
    """One run's values by step: `quantities` by column, losses by split."""

    def __init__(self, rows: pd.DataFrame) -> None:
        chosen = rows[rows["metric"].isin(QUANTITIES)]
        self.quantities = chosen.pivot_table(index="step", columns="metric", values="value")
        self.loss = rows[rows["metric"] == "loss"].pivot_table(
            index="step", columns="split", values="value"
        )

    def __getitem__(self, quantity: str) -> pd.Series:
        return self.quantities[quantity].dropna()

    def half(self, quantity: str) -> float:
        return half_change_step(self[quantity])

    def change(self, quantity: str) -> float:
        return self[quantity].iloc[-1] - self[quantity].iloc[0]

    def nfc_moved_at(self, loss: float) -> float:
        """|NFC − NFC₀| at the first measurement with so low a training loss."""
        reached = self.loss.index[self.loss["train"] <= loss][0]
        return abs(self["mean_nfc"][reached] - self["mean_nfc"].iloc[0])


_Runs = list[tuple[dict[str, Any], _Curves]]


def _of_run(about: dict[str, Any], curves: _Curves) -> Iterator[dict[str, Any]]:
    for quantity in QUANTITIES:
        half = curves.half(quantity)
        if math.isfinite(half):
            yield {**about, "metric": "half_change_step", "quantity": quantity, "value": half}
    for metric, table in {
        "spearman": curves.quantities,
        "spearman_of_changes": curves.quantities.diff(),
    }.items():
        yield from ({**about, "metric": metric, **pair} for pair in _spearman(table))
    label, gap = curves.half("label_alignment"), curves.half("loss_gap")
    test = curves.loss["test"]
    best = test.index[test.to_numpy().argmin()]
    events = {
        "label_alignment_before_best_loss": label < best,
        "label_alignment_before_gap": label < gap,
        "centred_nfc_before_nfc": curves.half("mean_centred_nfc") < curves.half("mean_nfc"),
        "rank_falls_gap_grows": curves.change("effective_rank") < 0 < curves.change("loss_gap"),
    }
    yield from ({**about, "metric": metric, "value": float(e)} for metric, e in events.items())


def _spearman(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rank correlations of columns over rows that have both; none where a column is constant."""
    for quantity, other in combinations(QUANTITIES, 2):
        both = table[[quantity, other]].dropna().rank()
        if len(both) >= LEAST_STEPS and (both.nunique() > 1).all():
            value = both[quantity].corr(both[other])
            yield {"quantity": quantity, "other": other, "value": value}


def _across(runs: _Runs) -> list[dict[str, Any]]:
    """Correlations over the runs' final values, of each network's runs and of all."""
    finals = pd.DataFrame([{**about, **curves.quantities.iloc[-1]} for about, curves in runs])
    groups = {"all": finals, **dict(list(finals.groupby("network", sort=False)))}
    return [
        {"point": "across", "network": network, "seed": 0, "metric": "spearman_across", **pair}
        for network, group in groups.items()
        for pair in _spearman(group)
    ]


def _of_pairs(runs: _Runs) -> list[dict[str, Any]]:
    """Comparisons of runs that differ in one thing: in their labels, or in their optimizer."""
    found = []
    by_name = {tuple(about[column] for column in RUN[1:]): curves for about, curves in runs}
    for (network, optimizer, share, seed), curves in by_name.items():
        about = {"point": "comparison", "network": network, "seed": seed}
        clean = by_name[network, optimizer, 0, seed]
        descent = by_name[network, "gd", share, seed]
        if curves is not clean:
            differences = {
                "random_lower_label_alignment": clean["label_alignment"].iloc[-1]
                - curves["label_alignment"].iloc[-1],
                "random_larger_complexity": curves["path_complexity"].iloc[-1]
                - clean["path_complexity"].iloc[-1],
            }
            about_pair = {**about, "optimizer": optimizer, "pair": f"{network}-{optimizer}"}
            found += [
                {**about_pair, "metric": metric, "value": float(difference > 0)}
                for metric, difference in differences.items()
            ]
        if curves is not descent:
            loss = max(run.loss["train"].min() for run in (curves, descent))
            more = curves.nfc_moved_at(loss) > descent.nfc_moved_at(loss)
            pair = {"random_label_share": share, "pair": f"{network}-random{100 * share:.0f}"}
            found.append({**about, **pair, "metric": "slo_moves_nfc_more", "value": float(more)})
    return found

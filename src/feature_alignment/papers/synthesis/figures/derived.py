"""Quantities derived from the runs' curves: what moves first, what moves together, what differs."""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pandas as pd

QUANTITIES = {  # the quantities that are compared, with their names in the figure
    "effective_rank": "effective rank",
    "label_alignment": "label CKA",
    "adapted_kernel_alignment": "adapted-kernel CKA",
    "mean_nfc": "UC-NFC",
    "mean_centred_nfc": "C-NFC",
    "path_complexity": "complexity C",
    "loss_gap": "test − training loss",
}
RUN = ["point", "network", "optimizer", "random_label_share", "seed"]
"""The columns that identify a run."""
LEAST = 4  # values (of measurements, changes or runs) that a rank correlation needs

Row = dict[str, Any]


def half_change_step(curve: pd.Series) -> float:
    """The step at which a quantity first reaches half of its largest distance from its start.

    The distance from its first measured value is taken to be linear between measurements. The step
    is infinite for a quantity that does not move. `curve` has values by step.
    """
    distance = (curve - curve.iloc[0]).abs()
    half = distance.max() / 2
    if not half > 0:
        return math.inf
    place = int((distance >= half).argmax())
    (before, early), (step, late) = distance.iloc[place - 1 : place + 1].items()
    return float(before + (step - before) * (half - early) / (late - early))  # pyright: ignore


def derived_rows(metrics: pd.DataFrame) -> pd.DataFrame:
    """All rows derived from those of all runs, tidy and at the last step (see metrics.yaml)."""
    whole = metrics[metrics["layer"] == "all"]
    wide = whole.pivot_table(index=[*RUN, "step"], columns=["metric", "split"], values="value")
    runs = {names: run.droplevel([*RUN]) for names, run in wide.groupby(RUN, sort=False)}
    quantities = {names: _quantities(run) for names, run in runs.items()}
    found = [row for names, run in runs.items() for row in _of_run(names, run)]
    last = {names: run.iloc[-1] for names, run in quantities.items()}
    finals = pd.DataFrame(last.values(), index=pd.MultiIndex.from_tuples(last, names=RUN))
    for network, group in {"all": finals, **dict(list(finals.groupby("network")))}.items():
        about = {"point": "across", "network": network, "seed": 0, "metric": "spearman_across"}
        found += [about | pair for pair in _spearman(group)]
    found += _comparisons({names[1:]: run for names, run in runs.items()})
    return pd.DataFrame(found).assign(step=metrics["step"].max(), layer="all", split="train")


def _quantities(run: pd.DataFrame) -> pd.DataFrame:
    """The compared quantities by step, whatever their split."""
    return run.droplevel("split", axis=1)[list(QUANTITIES)]


def _of_run(names: tuple[Any, ...], run: pd.DataFrame) -> Iterator[Row]:
    about, curves = dict(zip(RUN, names, strict=True)), _quantities(run)
    half = {name: half_change_step(curves[name].dropna()) for name in QUANTITIES}
    for quantity, step in half.items():
        if math.isfinite(step):
            yield {**about, "metric": "half_change_step", "quantity": quantity, "value": step}
    for metric, table in {"spearman": curves, "spearman_of_changes": curves.diff()}.items():
        yield from ({**about, "metric": metric, **pair} for pair in _spearman(table))
    test = run["loss", "test"]
    change = curves.iloc[-1] - curves.iloc[0]
    events = {
        "label_alignment_before_best_loss": half["label_alignment"]
        < test.index[int(test.argmin())],
        "label_alignment_before_gap": half["label_alignment"] < half["loss_gap"],
        "centred_nfc_before_nfc": half["mean_centred_nfc"] < half["mean_nfc"],
        "rank_falls_gap_grows": change["effective_rank"] < 0 < change["loss_gap"],
    }
    yield from ({**about, "metric": metric, "value": float(e)} for metric, e in events.items())


def _spearman(table: pd.DataFrame) -> Iterator[Row]:
    """Rank correlations of columns over rows that have both; none if a column is constant."""
    for quantity, other in combinations(QUANTITIES, 2):
        both = table[[quantity, other]].dropna().rank()
        if len(both) >= LEAST and (both.nunique() > 1).all():
            value = both[quantity].corr(both[other])
            yield {"quantity": quantity, "other": other, "value": value}


def _comparisons(runs: dict[tuple[Any, ...], pd.DataFrame]) -> Iterator[Row]:
    """Comparisons of runs that differ in one respect: their labels or their optimizer."""
    for (network, optimizer, share, seed), run in runs.items():
        about = {"point": "comparison", "network": network, "seed": seed}
        clean, descent = runs[network, optimizer, 0, seed], runs[network, "gd", share, seed]
        if run is not clean:
            more = _quantities(run).iloc[-1] - _quantities(clean).iloc[-1]
            for metric, event in {
                "random_lower_label_alignment": more["label_alignment"] < 0,
                "random_larger_complexity": more["path_complexity"] > 0,
            }.items():
                pair = {"pair": f"{network}-{optimizer}", "value": float(event)}
                yield {**about, "metric": metric, **pair}
        if run is not descent:
            loss = max(r["loss", "train"].min() for r in (run, descent))
            event = _nfc_moved(run, loss) > _nfc_moved(descent, loss)
            pair = {"pair": f"{network}-random{100 * share:.0f}", "value": float(event)}
            yield {**about, "metric": "slo_moves_nfc_more", **pair}


def _nfc_moved(run: pd.DataFrame, loss: float) -> float:
    """|NFC − NFC₀| at the first measurement whose training loss is at most the given one."""
    nfc = run["mean_nfc", "train"]
    return abs(nfc[run["loss", "train"] <= loss].iloc[0] - nfc.iloc[0])

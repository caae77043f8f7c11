"""Judge the claims of a workflow's figures: files in, one file of verdicts out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from feature_alignment.pipeline.claims.evaluate import evaluate_all, write_verdicts
from feature_alignment.pipeline.claims.ledger import load_ledger

EMBEDDED = "embedded"


def judge_claims(
    preset: str,
    datasets: Mapping[str, Sequence[Sequence[str]]],
    table_files: Sequence[str | Path],
    ledgers: Sequence[Path],
    verdicts_file: Path,
) -> pd.DataFrame:
    """Judge every claim about the given figures and write the verdicts.

    Args:
        preset: the preset that the tables were made with.
        datasets: for each figure, the (name, source) pairs of the data it shows; an empty list
            for synthetic data.
        table_files: one tidy table for each figure, `<figure>.csv`.
        ledgers: the papers' `claims.yaml`.
        verdicts_file: the CSV to write.

    Raises:
        UserError: if a ledger is malformed, or a table lacks a column that a claim names.
    """
    tables = {path.stem: pd.read_csv(path) for path in map(Path, table_files)}
    real_data = {
        figure: all(source != EMBEDDED for _, source in datasets[figure]) for figure in tables
    }
    verdicts = evaluate_all(load_ledger(ledgers), tables, preset, real_data)
    write_verdicts(verdicts, verdicts_file)
    return verdicts

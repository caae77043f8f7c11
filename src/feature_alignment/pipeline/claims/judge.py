"""Judge the claims of a workflow's figures: files in, one file of verdicts out."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from feature_alignment.pipeline.claims.evaluate import evaluate_all, write_verdicts
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.dictionary import check_claims
from feature_alignment.pipeline.spec import Spec


def judge_claims(
    spec: Spec, table_files: Sequence[str | Path], ledgers: Sequence[Path], verdicts_file: Path
) -> pd.DataFrame:
    """Judge every claim about the given figures and write the verdicts.

    Args:
        spec: what `Plan.selection_spec` tells of the figures.
        table_files: one tidy table for each figure, `<figure>.csv`.
        ledgers: the papers' `claims.yaml`.
        verdicts_file: the CSV to write.

    Raises:
        UserError: if a ledger is malformed, a claim selects a metric that is not described, or a
            table lacks a column that a claim names.
    """
    tables = {path.stem: pd.read_csv(path) for path in map(Path, table_files)}
    claims = load_ledger(ledgers)
    check_claims(claims)
    verdicts = evaluate_all(claims, tables, spec)
    write_verdicts(verdicts, verdicts_file)
    return verdicts

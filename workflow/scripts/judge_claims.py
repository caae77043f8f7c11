"""Judge every claim about the selected figures."""

from pathlib import Path

from feature_alignment.pipeline.claims.judge import judge_claims
from feature_alignment.pipeline.job import open_job

with open_job(snakemake, "feature_alignment.pipeline.claims.judge") as job:
    judge_claims(
        job.spec["preset"],
        job.spec["figures"],
        job.input.tables,
        [Path(file) for file in job.input.ledgers],
        job.output("claims"),
    )

"""Judge every claim about the selected figures."""

from pathlib import Path

from feature_alignment.pipeline.claims.judge import judge_claims
from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.papers import ledgers
from feature_alignment.pipeline.proof import check_proof

with open_job(snakemake, "feature_alignment.pipeline.claims.judge") as job:
    for provenance in job.input.made:
        check_proof(Path(provenance))
    judge_claims(job.spec, job.input.tables, ledgers(), job.output("claims"))

"""Judge every claim about the selected figures, and describe their tables."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.proof import check_proof

modules = ("feature_alignment.pipeline.claims.evaluate", "feature_alignment.pipeline.dictionary")
with open_job(snakemake, *modules) as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.claims.evaluate import judge_claims
    from feature_alignment.pipeline.dictionary import write_package
    from feature_alignment.pipeline.papers import ledgers

    for provenance in job.input.made:
        check_proof(Path(provenance))
    judge_claims(job.spec, job.input.tables, ledgers(), job.output("claims"))
    if snakemake.output.get("package"):  # of all figures, beside their tables
        write_package(job.spec["name"], job.input.tables, job.output("package"))

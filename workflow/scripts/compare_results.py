"""Compare the configured result with another one."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.proof import check_proof, verdicts_file

with open_job(snakemake, "feature_alignment.pipeline.report.compare") as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.report.compare import compare_results

    other = verdicts_file(job.spec["with"], job.spec["figures"])
    for verdicts in (Path(job.input.claims), other):
        check_proof(verdicts.with_name("claims.provenance.json"))
    page, table = job.output("page"), job.output("table")
    compare_results(job.spec, Path(job.input.claims), page, table)

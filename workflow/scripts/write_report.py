"""Write the report about the selected figures."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.proof import check_proof

with open_job(snakemake, *snakemake.params.modules) as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.papers import ledgers
    from feature_alignment.pipeline.report.make import make_report

    proofs = [*job.input.made, Path(job.input.claims).with_name("claims.provenance.json")]
    proofs += [Path(f).with_name("multiverse.provenance.json") for f in job.input.robustness]
    for provenance in proofs:
        check_proof(Path(provenance))
    files, folder = dict(job.input.items()), Path(snakemake.output.page).parent
    make_report(job.spec, files, job.input.claims, ledgers(), job.output("page"), folder)

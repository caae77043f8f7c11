"""Write the report about the selected figures."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job

with open_job(snakemake, "feature_alignment.pipeline.report.make") as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.papers import ledgers
    from feature_alignment.pipeline.report.make import make_report

    make_report(
        job.spec,
        pngs=job.input.pngs,
        pdfs=job.input.pdfs,
        tables=job.input.tables,
        made=job.input.made,
        provenances=job.input.provenances,
        data=job.input.data,
        verdicts=job.input.claims,
        robustness=next(iter(job.input.robustness), None),
        ledgers=ledgers(),
        page=job.output("page"),
        folder=Path(snakemake.output.page).parent,
    )

"""Gather the runs of one figure into its tidy table and arrays, and draw it."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.proof import check_proof

with open_job(snakemake, *snakemake.params.modules) as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.figures.make import draw_figure, make_table

    folders = {path.parent.name: path.parent for path in map(Path, job.input.runs)}
    for folder in folders.values():
        check_proof(folder / "provenance.json")
    table, arrays = job.output("table"), job.output("arrays")
    make_table(job.spec, folders, table, arrays)
    draw_figure(job.spec, table, arrays, [job.output("pdf"), job.output("png")])

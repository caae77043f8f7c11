"""Draw one figure from its table and arrays."""

from feature_alignment.figures.make import draw_figure
from feature_alignment.job import open_job

module = f"feature_alignment.figures.{snakemake.wildcards.figure}"
with open_job(snakemake, "feature_alignment.figures.make", module) as job:
    pictures = [job.output("pdf"), job.output("png")]
    draw_figure(job.spec, job.input.table, job.input.arrays, pictures)

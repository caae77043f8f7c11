"""Draw one figure from its table and arrays."""

from feature_alignment.pipeline.figures.make import draw_figure
from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.papers import module_name

module = module_name("figures", snakemake.wildcards.figure)
with open_job(snakemake, "feature_alignment.pipeline.figures.make", module) as job:
    pictures = [job.output("pdf"), job.output("png")]
    draw_figure(job.spec, job.input.table, job.input.arrays, pictures)

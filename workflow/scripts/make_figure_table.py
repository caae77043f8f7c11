"""Gather the runs of one figure into its tidy table and arrays."""

from feature_alignment.pipeline.figures.make import make_table
from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.papers import module_name

module = module_name("figures", snakemake.wildcards.figure)
with open_job(snakemake, "feature_alignment.pipeline.figures.make", module) as job:
    make_table(job.spec, job.input.runs, job.output("table"), job.output("arrays"))

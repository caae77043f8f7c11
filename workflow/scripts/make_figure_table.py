"""Gather the runs of one figure into its tidy table and arrays."""

from feature_alignment.figures.make import make_table
from feature_alignment.job import open_job

module = f"feature_alignment.figures.{snakemake.wildcards.figure}"
with open_job(snakemake, "feature_alignment.figures.make", module) as job:
    make_table(job.spec, job.input.runs, job.output("table"), job.output("arrays"))

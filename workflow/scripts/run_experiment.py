"""Run one experiment point, all its seeds, and write its metrics and arrays."""

from feature_alignment.experiments.run import run_experiment, write_result
from feature_alignment.job import open_job

module = f"feature_alignment.experiments.{snakemake.wildcards.experiment}"
with open_job(snakemake, "feature_alignment.experiments.run", module) as job:
    result = run_experiment(job.spec, module, *job.input.data, scratch=job.scratch)
    write_result(result, job.output("metrics"), job.output("arrays"))
    job.write_spec()
    job.seconds_by_part = result.seconds

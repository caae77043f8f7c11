"""Run some universes of a group of figures, all seeds, and archive their runs."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.spec import canonical_json

with open_job(snakemake, *snakemake.params.modules) as job:
    from feature_alignment.pipeline.multiverse.blocks import run_block

    data = {path.name.partition(".")[0]: path for path in map(Path, job.input.data)}
    identity = {key: value for key, value in job.identity().items() if key != "spec_sha256"}
    run_block(job.spec, data, job.scratch, canonical_json(identity), job.output("runs"))

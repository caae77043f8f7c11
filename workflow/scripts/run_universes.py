"""Run some universes of a group of figures, all seeds, and archive their runs."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.papers import experiment_module
from feature_alignment.pipeline.spec import canonical_json

runs = [name for universe in snakemake.params.spec["universes"] for name in universe["runs"]]
own = sorted({experiment_module(name.partition("/")[0]) for name in runs})
with open_job(snakemake, "feature_alignment.pipeline.multiverse.blocks", *own) as job:
    from feature_alignment.pipeline.multiverse.blocks import run_block

    data = {path.name.partition(".")[0]: path for path in map(Path, job.input.data)}
    identity = {key: value for key, value in job.identity().items() if key != "spec_sha256"}
    run_block(job.spec, data, job.scratch, canonical_json(identity), job.output("runs"))

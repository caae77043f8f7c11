"""Run one experiment point, all its seeds, and write its metrics and arrays.

Told to end (SIGTERM: a scheduler's time limit, a time budget), it saves its state first.
"""

import signal

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.spec import canonical_json

with open_job(snakemake, *snakemake.params.modules) as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.provenance import machine_name
    from feature_alignment.pipeline.run import run_experiment, write_run
    from feature_alignment.training.checkpoint import Checkpoints

    if not job.adopt():
        identity = canonical_json(job.identity())
        checkpoints = Checkpoints(job.scratch, identity, machine=machine_name())
        signal.signal(signal.SIGTERM, lambda *_: checkpoints.end_soon())
        result = run_experiment(job.spec, *job.input.data, checkpoints=checkpoints)
        write_run(job.spec, result, *map(job.output, ("spec", "metrics", "arrays")))
        job.seconds_by_part = result.seconds
        job.earlier_seconds = checkpoints.earlier
        job.earlier_machines = checkpoints.machines

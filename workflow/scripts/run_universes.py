"""Run some universes of a group of figures, all seeds, and archive their runs.

Told to end, it saves its state first, as run_experiment.py does.
"""

import signal
import threading
from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.spec import canonical_json

with open_job(snakemake, *snakemake.params.modules) as job:
    from feature_alignment.pipeline.multiverse.blocks import run_block

    data = {path.name.partition(".")[0]: path for path in map(Path, job.input.data)}
    identity = {key: value for key, value in job.identity().items() if key != "spec_sha256"}
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    run_block(job.spec, data, job.scratch, canonical_json(identity), job.output("runs"), ending)

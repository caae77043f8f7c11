"""Judge the claims about a group of figures in all of its universes, and draw them."""

from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.proof import check_proof

with open_job(snakemake, *snakemake.params.modules) as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.multiverse.make import judge_group
    from feature_alignment.pipeline.papers import ledgers

    for provenance in job.input.made:
        check_proof(Path(provenance))
    names = ("universes", "claims", "effects", "matrix", "curves")
    files = {name: job.output(name) for name in names}
    judge_group(job.spec, [Path(file) for file in job.input.runs], ledgers(), files)

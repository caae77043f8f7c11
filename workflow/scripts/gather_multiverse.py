"""Combine the verdicts of all groups' universes, and write the page about them."""

import os
from pathlib import Path

from feature_alignment.pipeline.job import open_job
from feature_alignment.pipeline.proof import check_proof

with open_job(snakemake, "feature_alignment.pipeline.multiverse.make") as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.pipeline.multiverse.make import gather

    folders = [Path(file).parent for file in job.input.claims]
    for folder in folders:
        check_proof(folder / "claims.provenance.json")
    name, home = job.spec["name"], Path(snakemake.output.page).parent
    pictures = {
        f"{folder.name}_{kind}": os.path.relpath(
            f"figures/{name}/multiverse/{folder.name}_{kind}.png", home
        )
        for folder in folders
        for kind in ("matrix", "curves")
    }
    files = {name: job.output(name) for name in ("universes", "claims", "page")}
    gather(job.spec, folders, pictures, files)

"""Prepare one dataset into its canonical file."""

from feature_alignment.pipeline.job import log, open_job

with open_job(snakemake, "feature_alignment.data.prepare") as job:
    # Here, since they take seconds, in which an interrupt is to leave no traceback.
    from feature_alignment.data.canonical import save
    from feature_alignment.data.prepare import prepare_dataset

    if not job.adopt():
        options = {key: value for key, value in job.spec.items() if key != "name"}
        arrays, info = prepare_dataset(job.spec["name"], options, progress=log.info)
        log.info("prepared: %s", info)
        job.facts = {"data": info}
        save(job.output("data"), arrays, info)

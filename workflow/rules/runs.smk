# Runs: training and measurement, one job for each experiment point, all its seeds in one process.


def spec_of(wildcards):
    """The spec of a run."""
    return plan_of(wildcards.preset).specs[wildcards.experiment, wildcards.point]


def data_of(wildcards):
    """The canonical data file that a run needs, if it needs one."""
    spec = spec_of(wildcards)
    return [prepared(spec["dataset"])] if "dataset" in spec else []


def run_library(wildcards):
    """The library files that a run is made with."""
    own = f"feature_alignment.experiments.{wildcards.experiment}"
    return library("feature_alignment.experiments.run", own)


rule run:
    input:
        data=data_of,
        library=run_library,
    output:
        spec="results/{preset}/runs/{experiment}/{point}/spec.json",
        metrics="results/{preset}/runs/{experiment}/{point}/metrics.csv",
        arrays="results/{preset}/runs/{experiment}/{point}/arrays.npz",
        provenance="results/{preset}/runs/{experiment}/{point}/provenance.json",
    log:
        "results/{preset}/logs/runs/{experiment}/{point}.log",
    benchmark:
        "results/{preset}/benchmarks/{experiment}/{point}.tsv"
    params:
        spec=spec_of,
    threads: PLAN.config["threads"]
    resources:
        mem_mb=PLAN.config["resources"]["mem_mb"],
        runtime=PLAN.config["resources"]["runtime"],
        gpu=1 if PLAN.config["device"] == "cuda" else 0,
    conda:
        "../../envs/compute.yaml"
    script:
        "../scripts/run_experiment.py"

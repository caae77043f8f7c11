# Runs: training and measurement, one job for each experiment point, all its seeds in one process.


rule run:
    input:
        data=data_of,
    output:
        spec="results/{preset}/runs/{experiment}/{point}/spec.json",
        metrics="results/{preset}/runs/{experiment}/{point}/metrics.csv",
        arrays="results/{preset}/runs/{experiment}/{point}/arrays.npz",
        provenance="results/{preset}/runs/{experiment}/{point}/provenance.json",
    log:
        "results/{preset}/logs/runs/{experiment}/{point}.log",
    benchmark:
        "results/{preset}/benchmarks/{experiment}/{point}.tsv"
    conda:
        "../../envs/compute.yaml"
    threads: PLAN.config.threads
    resources:
        mem_mb=PLAN.config.resources.mem_mb,
        runtime=PLAN.config.resources.runtime,
        gpu=int(may_use_gpu(PLAN.config.device)),
    params:
        spec=spec_of,
        library=run_library,
    message:
        "Running {wildcards.experiment}/{wildcards.point} ({wildcards.preset}); progress in {log}"
    script:
        "../scripts/run_experiment.py"

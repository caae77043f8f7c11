# Runs: training and measurement, one job for each experiment point, all its seeds in one process.


rule run:
    input:
        data=data_of,
    output:
        spec="results/{name}/runs/{experiment}/{point}/spec.json",
        metrics="results/{name}/runs/{experiment}/{point}/metrics.csv",
        arrays="results/{name}/runs/{experiment}/{point}/arrays.npz",
        provenance="results/{name}/runs/{experiment}/{point}/provenance.json",
    log:
        "results/{name}/logs/runs/{experiment}/{point}.log",
    priority: run_priority
    group:
        submission_of
    conda:
        "../../envs/compute.yaml"
    threads: CONFIG.threads
    resources:
        mem_mb=memory_of,
        runtime=minutes_of,
        runs=1,
        gpu=int(may_use_gpu(CONFIG.device)),
    params:
        spec=spec_of,
        modules=run_modules,
        library=library_of("run_experiment.py", run_modules),
    message:
        "Running {wildcards.experiment}/{wildcards.point} ({wildcards.name}); progress in {log}"
    script:
        "../scripts/run_experiment.py"

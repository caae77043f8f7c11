# Datasets, each prepared once into one canonical file, whatever its source.


rule dataset:
    output:
        data="results/{name}/data/{dataset}.{source}.npz",
        provenance="results/{name}/data/{dataset}.{source}.provenance.json",
    log:
        "results/{name}/logs/data/{dataset}.{source}.log",
    # First of all, so that faults in the data show in the first minutes.
    priority: 200
    localrule: True
    conda:
        "../../envs/compute.yaml"
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        spec=source_of,
        library=library("prepare_dataset.py", "feature_alignment.data.prepare"),
    message:
        "Preparing dataset {wildcards.dataset} ({wildcards.source})"
    script:
        "../scripts/prepare_dataset.py"

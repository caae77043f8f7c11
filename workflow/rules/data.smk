# Datasets, each prepared once into one canonical file, whatever its source.


rule dataset:
    output:
        data="results/data/{dataset}.{source}.npz",
        provenance="results/data/{dataset}.{source}.provenance.json",
    log:
        "results/logs/data/{dataset}.{source}.log",
    conda:
        "../../envs/compute.yaml"
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        spec=source_of,
        library=library("feature_alignment.data.prepare"),
    message:
        "Preparing dataset {wildcards.dataset} ({wildcards.source})"
    script:
        "../scripts/prepare_dataset.py"

# Datasets, each prepared once into one canonical file, whatever its source.


def prepared(dataset):
    """The canonical file of a dataset, given the dataset's spec."""
    return f"results/data/{dataset['name']}.{dataset['source']}.npz"


def source_of(wildcards):
    """The spec of the dataset of a canonical file."""
    spec = dataset_spec(wildcards.dataset, PLAN.config)
    return {**spec, "source": wildcards.source}


rule dataset:
    input:
        library=library("feature_alignment.data.prepare"),
    output:
        data="results/data/{dataset}.{source}.npz",
        provenance="results/data/{dataset}.{source}.provenance.json",
    log:
        "results/logs/data/{dataset}.{source}.log",
    params:
        spec=source_of,
    resources:
        mem_mb=8000,
        runtime=120,
    conda:
        "../../envs/compute.yaml"
    script:
        "../scripts/prepare_dataset.py"

# Finished results: are they what their jobs wrote, and what differs between two of them?

OTHER = getattr(CONFIG, "with")


rule verify:
    log:
        f"results/{PLAN.name}/logs/verify.log",
    localrule: True
    conda:
        "../../envs/figures.yaml"
    params:
        name=PLAN.name,
    message:
        "Checking the files of {params.name}"
    script:
        "../scripts/verify_results.py"


rule compare:
    input:
        f"results/{PLAN.name}/compare/{OTHER}.html" if OTHER else no_other,


rule comparison:
    input:
        summaries()[0],
        pictures_of(PLAN.figures),
    output:
        page="results/{name}/compare/{other}.html",
        table="results/{name}/compare/{other}.csv",
        provenance="results/{name}/compare/{other}.provenance.json",
    log:
        "results/{name}/logs/compare/{other}.log",
    localrule: True
    conda:
        "../../envs/figures.yaml"
    params:
        spec=lambda wildcards: {"name": wildcards.name, "with": wildcards.other},
        library=library(
            "compare_results.py", "feature_alignment.pipeline.report.compare"
        ),
        texts=content(*PAGE_PARTS),
        other=verdicts_of_other,
    message:
        "Setting {wildcards.name} beside {wildcards.other}"
    script:
        "../scripts/compare_results.py"

# Finished results: are they what their jobs wrote, do they come out the same when made again, and
# what differs between two of them?

OTHER = getattr(CONFIG, "with")
REPLAY = f"results/.replay/{PLAN.name}"


rule verify:
    input:
        a_result,
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
        (
            no_other
            if OTHER in (None, "", PLAN.name)
            else f"results/{PLAN.name}/compare/{OTHER}.html"
        ),
        summaries(),


rule comparison:
    input:
        claims=summaries()[0],
        pictures=pictures_of(PLAN.figures),
        runs=runs_behind(PLAN.name, PLAN.figures),
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
        spec=lambda wildcards: {
            "name": wildcards.name,
            "with": wildcards.other,
            "figures": list(PLAN.figures),
        },
        library=library(
            "compare_results.py", "feature_alignment.pipeline.report.compare"
        ),
        texts=content(*PAGE_PARTS),
        other=shown_of_other,
    message:
        "Comparing {wildcards.name} with {wildcards.other}"
    script:
        "../scripts/compare_results.py"


rule replay:
    input:
        lambda wildcards: [
            f"{REPLAY}/{run}/{file}"
            for run in replayed_runs()
            for file in ("spec.json", "metrics.csv", "arrays.npz", "provenance.json")
        ],
    log:
        f"results/{PLAN.name}/logs/replay.log",
    localrule: True
    conda:
        "../../envs/figures.yaml"
    params:
        name=PLAN.name,
        again=REPLAY,
        runs=lambda wildcards: replayed_runs(),
    message:
        "Comparing the repeated runs with the originals"
    script:
        "../scripts/gather_replay.py"


# In a folder where no job looks for runs to take over, and with another number of cores.
use rule run as replayed with:
    input:
        data=kept_data,
    output:
        spec="results/.replay/{name}/{experiment}/{point}/spec.json",
        metrics="results/.replay/{name}/{experiment}/{point}/metrics.csv",
        arrays="results/.replay/{name}/{experiment}/{point}/arrays.npz",
        provenance="results/.replay/{name}/{experiment}/{point}/provenance.json",
    log:
        "results/{name}/logs/replay/{experiment}/{point}.log",
    threads: CONFIG.threads + 1
    message:
        "Running {wildcards.experiment}/{wildcards.point} ({wildcards.name}) again; progress in {log}"

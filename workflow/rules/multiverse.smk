# The multiverse: every claim judged in all universes of the papers' open settings.


rule universes:
    input:
        data=block_data,
    output:
        runs="results/{name}/multiverse/{group}/{block}.zip",
        provenance="results/{name}/multiverse/{group}/{block}.provenance.json",
    log:
        "results/{name}/logs/multiverse/{group}/{block}.log",
    conda:
        "../../envs/compute.yaml"
    threads: CONFIG.threads
    resources:
        mem_mb=memory_of,
        runtime=lambda wildcards, attempt: CONFIG.resources.runtime * attempt,
        gpu=int(may_use_gpu(CONFIG.device)),
    params:
        spec=block_spec,
        modules=block_modules,
        library=library_of("run_universes.py", block_modules),
    message:
        "Running universes {wildcards.group}/{wildcards.block} ({wildcards.name}); progress in {log}"
    script:
        "../scripts/run_universes.py"


rule universes_judged:
    input:
        runs=partial(group_files, suffix="zip"),
        made=partial(group_files, suffix="provenance.json"),
    output:
        universes="results/{name}/multiverse/{group}/universes.csv",
        claims="results/{name}/multiverse/{group}/claims.csv",
        effects="results/{name}/multiverse/{group}/effects.csv",
        matrix="figures/{name}/multiverse/{group}_matrix.png",
        curves="figures/{name}/multiverse/{group}_curves.png",
        provenance="results/{name}/multiverse/{group}/claims.provenance.json",
    log:
        "results/{name}/logs/multiverse/{group}/judged.log",
    conda:
        "../../envs/figures.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        spec=group_spec,
        modules=group_modules,
        library=library_of("judge_universes.py", group_modules),
        said=lambda wildcards: open_settings(wildcards.group),
    message:
        "Judging the universes of {wildcards.group} ({wildcards.name})"
    script:
        "../scripts/judge_universes.py"


rule multiverse_gathered:
    input:
        claims=group_claims,
    output:
        universes="results/{name}/multiverse.csv",
        claims="results/{name}/robustness.csv",
        page="results/{name}/multiverse.html",
        provenance="results/{name}/multiverse.provenance.json",
    log:
        "results/{name}/logs/multiverse.log",
    localrule: True
    conda:
        "../../envs/figures.yaml"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        spec=gathered_spec,
        library=library(
            "gather_multiverse.py", "feature_alignment.pipeline.multiverse.make"
        ),
        said=open_settings(*MULTIVERSES),
        texts=content(
            ROOT / "src/feature_alignment/pipeline/multiverse/multiverse.html.jinja",
            *PAGE_PARTS,
        ),
    message:
        "Writing the page of the multiverse ({wildcards.name})"
    script:
        "../scripts/gather_multiverse.py"


rule multiverse:
    input:
        f"results/{PLAN.name}/robustness.csv",

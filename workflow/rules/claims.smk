# Claims: every number and statement of the papers, judged on the figure tables.


rule claims:
    input:
        tables=selected("results/{preset}/tables/{figure}.csv"),
        ledgers=LEDGERS,
    output:
        claims="results/{preset}/claims.csv",
        provenance="results/{preset}/claims.provenance.json",
    log:
        "results/{preset}/logs/claims.log",
    conda:
        "../../envs/figures.yaml"
    params:
        spec=selected_spec,
        library=library("feature_alignment.pipeline.claims.judge"),
    message:
        "Judging the claims ({wildcards.preset})"
    script:
        "../scripts/judge_claims.py"

# Claims: every number and statement of the papers, judged on the figure tables; and the tables'
# description. A data package must not refer outside its folder, so selected figures have none.


rule claims:
    input:
        tables=chosen_files("results/{name}/tables/{figure}.csv"),
        arrays=chosen_files("results/{name}/tables/{figure}.npz"),
        made=chosen_files("figures/{name}/{figure}.provenance.json"),
    output:
        claims=report("results/{name}/claims.csv", category="Verdicts"),
        package="results/{name}/tables/datapackage.json",
        provenance="results/{name}/claims.provenance.json",
    log:
        "results/{name}/logs/claims.log",
    localrule: True
    conda:
        "../../envs/figures.yaml"
    params:
        spec=chosen_spec,
        library=library(
            "judge_claims.py",
            "feature_alignment.pipeline.claims.evaluate",
            "feature_alignment.pipeline.dictionary",
        ),
        ledgers=content(*ledgers(), *dictionaries(), *paper_files("paper.py")),
    message:
        "Judging the claims ({wildcards.name})"
    script:
        "../scripts/judge_claims.py"


use rule claims as selected_claims with:
    output:
        claims=report("results/{name}/{scope}claims.csv", category="Verdicts"),
        provenance="results/{name}/{scope}claims.provenance.json",
    log:
        "results/{name}/logs/{scope}claims.log",
    localrule: True

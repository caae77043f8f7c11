# Claims: every number and statement of the papers, judged on the figure tables.

LEDGER = sorted(os.path.relpath(path) for path in (ROOT / "claims").glob("*.yaml"))
CLAIMS_SCHEMA = os.path.relpath(ROOT / "workflow/schemas/claims.schema.yaml")


def selected_spec(wildcards):
    """The selected figures, their papers and the data they show."""
    plan = plan_of(wildcards.preset)
    return {
        "preset": wildcards.preset,
        "figures": {f: [list(pair) for pair in plan.datasets_of(f)] for f in plan.figures},
    }


def selected_tables(wildcards):
    """The tables of the selected figures."""
    return [f"results/{wildcards.preset}/tables/{f}.csv" for f in plan_of(wildcards.preset).figures]


rule claims:
    input:
        tables=selected_tables,
        ledger=LEDGER,
        schema=CLAIMS_SCHEMA,
        library=library("feature_alignment.claims.judge"),
    output:
        claims="results/{preset}/claims.csv",
        provenance="results/{preset}/claims.provenance.json",
    log:
        "results/{preset}/logs/claims.log",
    params:
        spec=selected_spec,
    conda:
        "../../envs/figures.yaml"
    script:
        "../scripts/judge_claims.py"

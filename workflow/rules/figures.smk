# Figures: a tidy table (and arrays, for images) from the runs, then the picture from the table.


def figure_spec(wildcards):
    """What a figure is made from: its runs, and what its stamp says."""
    plan = plan_of(wildcards.preset)
    return {
        "figure": wildcards.figure,
        "preset": wildcards.preset,
        "points": [list(point) for point in plan.points[wildcards.figure]],
        "datasets": [list(pair) for pair in plan.datasets_of(wildcards.figure)],
    }


def figure_runs(wildcards):
    """The run files of a figure."""
    points = plan_of(wildcards.preset).points[wildcards.figure]
    return [
        f"results/{wildcards.preset}/runs/{experiment}/{point}/{file}"
        for experiment, point in points
        for file in ("spec.json", "metrics.csv", "arrays.npz")
    ]


def figure_library(wildcards):
    """The library files that a figure is made with."""
    own = f"feature_alignment.figures.{wildcards.figure}"
    return library("feature_alignment.figures.make", own)


rule figure_table:
    input:
        runs=figure_runs,
        library=figure_library,
    output:
        table="results/{preset}/tables/{figure}.csv",
        arrays="results/{preset}/tables/{figure}.npz",
        provenance="results/{preset}/tables/{figure}.provenance.json",
    log:
        "results/{preset}/logs/tables/{figure}.log",
    params:
        spec=figure_spec,
    resources:
        mem_mb=4000,
        runtime=30,
    conda:
        "../../envs/figures.yaml"
    script:
        "../scripts/make_figure_table.py"


rule figure:
    input:
        table="results/{preset}/tables/{figure}.csv",
        arrays="results/{preset}/tables/{figure}.npz",
        library=figure_library,
    output:
        pdf="figures/{preset}/{figure}.pdf",
        png="figures/{preset}/{figure}.png",
        provenance="results/{preset}/provenance/{figure}.json",
    log:
        "results/{preset}/logs/figures/{figure}.log",
    params:
        spec=figure_spec,
    resources:
        mem_mb=4000,
        runtime=30,
    conda:
        "../../envs/figures.yaml"
    script:
        "../scripts/draw_figure.py"

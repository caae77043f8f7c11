# Figures: a tidy table (and arrays, for images) from the runs, then the picture from the table.


rule figure_table:
    input:
        runs=figure_runs,
    output:
        table="results/{preset}/tables/{figure}.csv",
        arrays="results/{preset}/tables/{figure}.npz",
        provenance="results/{preset}/tables/{figure}.provenance.json",
    log:
        "results/{preset}/logs/tables/{figure}.log",
    conda:
        "../../envs/figures.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        spec=figure_spec,
        library=figure_library,
    message:
        "Gathering the table of {wildcards.figure} ({wildcards.preset})"
    script:
        "../scripts/make_figure_table.py"


rule figure:
    input:
        table="results/{preset}/tables/{figure}.csv",
        arrays="results/{preset}/tables/{figure}.npz",
    output:
        pdf="figures/{preset}/{figure}.pdf",
        png="figures/{preset}/{figure}.png",
        provenance="figures/{preset}/{figure}.provenance.json",
    log:
        "results/{preset}/logs/figures/{figure}.log",
    conda:
        "../../envs/figures.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        spec=figure_spec,
        library=figure_library,
    message:
        "Drawing {wildcards.figure} ({wildcards.preset})"
    script:
        "../scripts/draw_figure.py"

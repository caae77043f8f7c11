# Figures: from the runs to a tidy table (and arrays, for images), from the table to the picture.


rule figure:
    input:
        runs=figure_runs,
    output:
        table="results/{preset}/tables/{figure}.csv",
        arrays="results/{preset}/tables/{figure}.npz",
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
        "Making {wildcards.figure} ({wildcards.preset})"
    script:
        "../scripts/make_figure.py"

# Figures: from the runs to a tidy table (and arrays, for images), from the table to the picture.


rule figure:
    input:
        runs=figure_runs,
    output:
        table="results/{name}/tables/{figure}.csv",
        arrays="results/{name}/tables/{figure}.npz",
        pdf="figures/{name}/{figure}.pdf",
        png=report(
            "figures/{name}/{figure}.png", category=paper_title, labels=figure_title
        ),
        provenance="figures/{name}/{figure}.provenance.json",
    log:
        "results/{name}/logs/figures/{figure}.log",
    priority: 100
    localrule: True
    conda:
        "../../envs/figures.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        spec=figure_spec,
        modules=figure_modules,
        library=library_of("make_figure.py", figure_modules),
    message:
        "Making {wildcards.figure} ({wildcards.name})"
    script:
        "../scripts/make_figure.py"

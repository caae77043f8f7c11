# The report: one page with the figures, the verdicts, and what made them.


rule report:
    input:
        pngs=chosen_files("figures/{name}/{figure}.png"),
        pdfs=chosen_files("figures/{name}/{figure}.pdf"),
        tables=chosen_files("results/{name}/tables/{figure}.csv"),
        made=chosen_files("figures/{name}/{figure}.provenance.json"),
        provenances=lambda wildcards: runs_behind(wildcards.name, chosen(wildcards)),
        data=chosen_data,
        robustness=robustness_of,
        claims=chosen_verdicts,
    output:
        page=report("results/{name}/report.html", category="Verdicts"),
        provenance="results/{name}/report.provenance.json",
    log:
        "results/{name}/logs/report.log",
    localrule: True
    conda:
        "../../envs/figures.yaml"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        spec=chosen_spec,
        modules=report_modules,
        library=library_of("write_report.py", report_modules),
        texts=content(
            *PAGE_PARTS,
            *ledgers(),
            *dictionaries(),
            *paper_files("deviations.md"),
            *paper_files("paper.py"),
        ),
    message:
        "Writing the report ({wildcards.name})"
    script:
        "../scripts/write_report.py"


use rule report as selected_report with:
    output:
        page=report("results/{name}/{scope}report.html", category="Verdicts"),
        provenance="results/{name}/{scope}report.provenance.json",
    log:
        "results/{name}/logs/{scope}report.log",
    localrule: True

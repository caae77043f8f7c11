# The report: one page with the selected figures, the verdicts, and what made them.


rule report:
    input:
        pngs=selected("figures/{preset}/{figure}.png"),
        pdfs=selected("figures/{preset}/{figure}.pdf"),
        tables=selected("results/{preset}/tables/{figure}.csv"),
        provenances=selected_provenances,
        claims="results/{preset}/claims.csv",
        ledgers=LEDGERS,
        template=os.path.relpath(
            ROOT / "src/feature_alignment/pipeline/report/page.html.jinja"
        ),
    output:
        page="results/{preset}/report.html",
        provenance="results/{preset}/report.provenance.json",
    log:
        "results/{preset}/logs/report.log",
    conda:
        "../../envs/figures.yaml"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        spec=selected_spec,
        library=selected_library,
    message:
        "Writing the report ({wildcards.preset})"
    script:
        "../scripts/write_report.py"

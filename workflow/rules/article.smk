# The article about the packed evidence; the rule fails if a sentence of it has become untrue.


rule article:
    log:
        f"results/{PLAN.name}/logs/article.log",
    localrule: True
    params:
        python=sys.executable,
        tool=ROOT / "tools" / "article.py",
    message:
        "Typesetting article/article.pdf"
    shell:
        "{params.python:q} {params.tool:q} 2>&1 | tee {log:q}"

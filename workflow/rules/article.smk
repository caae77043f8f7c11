# The article about the packed evidence; the rule fails if a sentence of it has become untrue.


# A run block, since the rule has no environment: Typst is an extra. It has no output, because what
# it is made from is committed, and a request is meant to check that again.
rule article:
    log:
        f"results/{PLAN.name}/logs/article.log",
    localrule: True
    params:
        tool=ROOT / "tools" / "article.py",
    message:
        "Typesetting article/article.pdf"
    run:
        shell("{sys.executable:q} {params.tool:q} 2>&1 | tee {log:q}")

# The pipeline: data -> runs -> figure tables -> figures, and tables -> claims -> report.
# Configuration is checked before any job is planned; see config.yaml.

import os
from pathlib import Path

from snakemake.utils import min_version

min_version("9.19")


# The file in the working directory (`-d`), or else in this checkout, even if another workflow uses
# this one as a module.
FOUND = [
    p
    for p in ("config.yaml", Path(str(workflow.current_basedir), "config.yaml"))
    if os.path.lexists(p)
]
if FOUND:

    configfile: str(FOUND[0])


include: "workflow/rules/common.smk"
include: "workflow/rules/command_line.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/submissions.smk"
include: "workflow/rules/runs.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/claims.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/multiverse_plan.smk"
include: "workflow/rules/multiverse.smk"
include: "workflow/rules/checks.smk"
include: "workflow/rules/article.smk"


rule all:
    default_target: True
    input:
        pictures_of(PLAN.figures),
        summaries(),


# Each paper's key is the target of its figures.
for paper in papers():
    if workflow.is_rule(paper):
        refuse(
            f"{paper_folder(paper)}: {paper} is the name of a rule; rename the folder."
        )

    rule:
        name:
            paper
        input:
            pictures_of([f for f in all_figures() if paper_of(f) == paper]),


# A figure's name is a target, too, if it is requested.
for figure in all_figures():
    if figure in TARGETS:

        rule:
            name:
                figure
            input:
                pictures_of([figure]),


check_targets()

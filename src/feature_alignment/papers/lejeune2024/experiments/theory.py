"""The paper's statements checked on a small random problem against a generic optimiser.

Source: lejeune2024, Theorems 1 and 2, Lemma 5, Propositions 3 and 4, Appendix A.1.
"""

from feature_alignment.papers.lejeune2024.checks import theorems
from feature_alignment.papers.lejeune2024.parameters import Theory
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[Theory]) -> SeedResult:
    """Check every statement on one random problem; what does not depend on the seed, for seed 0."""
    p = run.parameters
    problem = theorems.random_problem(run.seed, p)
    checks = [
        *theorems.theorem_1(problem, p.starts),
        *theorems.theorem_2(problem, p.starts),
        *theorems.gradient_flow(problem, p.flow_time),
        *theorems.path_average(problem),
        *theorems.lemma_5(problem.seed, p.starts),
    ]
    if run.seed == 0:  # nothing random in these
        checks += [
            *theorems.propositions(),
            *theorems.proposition_3_counterexamples(),
            *theorems.lemma_5_counterexamples(),
        ]
    result = SeedResult()
    for check in checks:
        result.add(check.metric, check.value, step=0, split="all", **check.columns)
    return result

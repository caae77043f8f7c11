# On a cluster: how much a run requests, and which small points of an experiment share a submission.
# A profile enables sharing with `group-components: points=<the most in one>`.

from feature_alignment.pipeline.submissions import (
    key_of,
    limit_minutes,
    read_measured,
    shared_submissions,
)


resource_scopes:
    # One run after the other within a submission; the profile has the constraint `runs=1`.
    runs="local",


MEASURED = one_sentence(read_measured, ROOT / "workflow" / "measured.csv")


@cache
def submissions(name):
    """The submission that each small point of a result belongs to."""
    return shared_submissions(name, plan_of(name).specs, MEASURED)


def submission_of(wildcards):
    """The submission of a run; None, its own, if it is not small or the profile shares none."""
    if "points" not in workflow.group_settings.group_components:
        return None
    found = submissions(wildcards.name).get((wildcards.experiment, wildcards.point))
    workflow.parent_groupids[found] = "points"
    return found


def memory_of(wildcards, attempt):
    """The memory of a run, more at each attempt."""
    return CONFIG.resources.mem_mb * attempt


def minutes_of(wildcards, attempt):
    """The time limit of a run, longer at each attempt; a run resumes from its checkpoint."""
    most = CONFIG.resources.runtime
    return limit_minutes(spec_of(wildcards), MEASURED, most) * attempt

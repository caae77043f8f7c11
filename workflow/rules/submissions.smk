# On a cluster: how much a run requests, and which small points of an experiment share a submission.
# A profile enables sharing with `group-components: points=<the most in one>`.

import csv
import math


resource_scopes:
    # One run after the other within a submission; the profile has the constraint `runs=1`.
    runs="local",


FILLED = 10 * 60
"""Measured seconds that fill a submission; a run of more than half of them has its own."""
START = 30
"""Seconds to start a run of a submission: Snakemake and PyTorch, from a shared disk."""
MARGIN, LEAST = 3, 5
"""How many times its measured seconds a small point may take, and its least limit in minutes."""


@cache
def measured():
    """Seconds that runs have taken, by experiment and hash of their parameters."""
    with (ROOT / "workflow" / "measured.csv").open(encoding="utf-8") as file:
        return {
            (row["experiment"], row["parameters"]): float(row["seconds"])
            for row in csv.DictReader(file)
        }


def measured_seconds(spec):
    """The measured seconds of a run with these parameters; None if there are none."""
    return measured().get((spec["experiment"], spec_hash(spec["parameters"])[:12]))


def small_seconds(spec):
    """The measured seconds of a small point, including its start; None for any other."""
    seconds = measured_seconds(spec)
    return START + seconds if seconds is not None and seconds <= FILLED / 2 else None


@cache
def submissions(name):
    """The submission that each small point of a result belongs to: `<result>-<experiment>-<number>`."""
    found, number, filled = {}, {}, {}
    for (experiment, point), spec in sorted(plan_of(name).specs.items()):
        seconds = small_seconds(spec)
        if seconds is not None:
            filled[experiment] = filled.get(experiment, 0) + seconds
            if filled[experiment] > FILLED:
                number[experiment] = number.get(experiment, 0) + 1
                filled[experiment] = seconds
            found[experiment, point] = (
                f"{name}-{experiment}-{number.get(experiment, 0)}"
            )
    return found


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
    seconds = small_seconds(spec_of(wildcards))
    if seconds is None:
        return CONFIG.resources.runtime * attempt
    small = max(LEAST, math.ceil(MARGIN * seconds / 60))
    return min(small, CONFIG.resources.runtime) * attempt

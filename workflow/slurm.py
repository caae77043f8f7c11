"""How to ask a Slurm cluster for the states of jobs, with or without a database of them."""

import re
import subprocess

LONGEST_WAIT = 180
"""Seconds between two questions of Snakemake's Slurm executor, at most."""


def answer(*command: str) -> str | None:
    """What a command prints; None if it fails, or is not there."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def status_command() -> str | None:
    """`squeue` where it remembers ended jobs for long enough, else `sacct` where that works.

    `sacct` is there, and fails, where the cluster keeps no accounts. Where it works it tells of a
    cancelled job as "CANCELLED by 1000", which the executor takes for one that still runs.

    Returns:
        The command's name; None where there is no Slurm.
    """
    settings = answer("scontrol", "show", "config")
    if settings is None:
        return None
    remembered = re.search(r"^MinJobAge\s*=\s*(\d+)", settings, re.MULTILINE)
    if remembered and int(remembered[1]) > LONGEST_WAIT:
        return "squeue"
    return "sacct" if answer("sacct", "--noheader", "--name", "none") is not None else "squeue"

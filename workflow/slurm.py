"""The command that asks a Slurm cluster for the states of jobs, with or without accounting."""

import re
import subprocess

LONGEST_WAIT = 180
"""The longest time, in seconds, between two status checks of Snakemake's Slurm executor."""


def answer(*command: str) -> str | None:
    """The output of a command; None if it fails or does not exist."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def status_command() -> str | None:
    """`squeue` if it remembers ended jobs for long enough or `sacct` fails, else `sacct`.

    Without accounting, `sacct` exists but fails. If it works, it reports a cancelled job as
    "CANCELLED by 1000", which the executor takes for one that still runs.

    Returns:
        The command's name; None if there is no Slurm.
    """
    settings = answer("scontrol", "show", "config")
    if settings is None:
        return None
    remembered = re.search(r"^MinJobAge\s*=\s*(\d+)", settings, re.MULTILINE)
    if remembered and int(remembered[1]) > LONGEST_WAIT:
        return "squeue"
    return "sacct" if answer("sacct", "--noheader", "--name", "none") is not None else "squeue"

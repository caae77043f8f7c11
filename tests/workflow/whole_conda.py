"""Makes the whole smoke preset through --use-conda, and compares its bytes with those made without.

    python -m tests.workflow.whole_conda

The tests do this with some figures: here each job imports PyTorch for itself.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.workflow import stand_in_conda
from tests.workflow.conftest import Pipeline

COMMAND = ("--cores", "2", "--config", "preset=smoke")


def main() -> int:
    """Make it both ways; returns 1 if a table, an array file or a picture differs."""
    with tempfile.TemporaryDirectory() as folder:
        plain, conda = (Pipeline(Path(folder) / name) for name in ("plain", "conda"))
        plain.by_itself = conda.by_itself = True
        command = stand_in_conda.install(Path(folder) / "prefix")
        conda.variables = {"PATH": os.pathsep.join([str(command), os.environ["PATH"]])}
        for pipeline, options in ((plain, ()), (conda, ("--use-conda",))):
            begun = time.monotonic()
            pipeline.succeed(*COMMAND, *options)
            seconds = time.monotonic() - begun
            print(f"{pipeline.folder.name}: {seconds:.0f} s, {len(pipeline.results())} files")
        expected, made = plain.results(), conda.results()
        names = sorted(expected.keys() | made.keys())
        other = [name for name in names if expected.get(name) != made.get(name)]
        print(f"other bytes: {', '.join(other)}" if other else "the same bytes")
    return int(bool(other))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    sys.exit(main())

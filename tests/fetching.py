"""uv, which fetches packages."""

import subprocess
import sys

import pytest

UNREACHABLE = "client error (Connect)"


def uv(*arguments):
    """Run uv; without a network the test is skipped, unless uv has what it needs."""
    command = [sys.executable, "-m", "uv", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if UNREACHABLE in done.stderr:
        pytest.skip("packages cannot be fetched: their index is not reached from here")
    assert done.returncode == 0, done.stderr

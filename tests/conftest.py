"""What several test files share: the checkout, and small complete configurations."""

from pathlib import Path

import pytest

from feature_alignment.config import resolve_config
from feature_alignment.determinism import configure

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root():
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def smoke_config():
    """The complete smoke configuration."""
    return resolve_config({}, ROOT / "workflow", preset="smoke")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One thread for the session: tiny operations on two cost more than they gain."""
    configure(1)

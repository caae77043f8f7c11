"""The page of licences names every locked package in its version, and what it declares."""

import email.message
import importlib.metadata
import re

import pytest


def test_the_page_is_complete_and_true(tool, root):
    locked = tool.locked((root / "requirements.lock").read_text())
    rows = re.findall(r"^\| (\S+) \| (.+) \| (.+) \|$", tool.PAGE.read_text(), re.MULTILINE)
    listed = {name: versions.split(", ") for name, versions, _ in rows[1:]}
    assert listed == locked, "run `python tools/licences.py`"
    for name, versions, licence in rows[1:]:
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if installed == versions.split(", ")[0]:  # that of the oldest Python, which the page tells
            assert licence == tool.licence(name)


def test_every_way_to_declare_a_licence_is_read(tool):
    assert tool.licence("torch").startswith("Apache-2.0 AND")  # an expression
    assert tool.licence("babel") == "BSD License"  # a classifier
    assert tool.licence("snakemake-interface-common") == "MIT License"  # a file
    assert tool.licence("no-such-package") == tool.ELSEWHERE
    assert tool.locked("a==1 ; x \\\n    --hash=sha256:00\na==2\nb-c==3.0+cpu\n") == {
        "a": ["1", "2"],
        "b-c": ["3.0+cpu"],
    }


def test_a_package_without_any_licence_is_refused(tool, monkeypatch):
    monkeypatch.setattr(tool, "UNDECLARED", {})
    monkeypatch.setattr(tool.importlib.metadata, "distribution", lambda name: Bare())
    with pytest.raises(ValueError, match="bare: declares no licence; look it up"):
        tool.licence("bare")


class Bare:
    """An installed package that declares nothing."""

    metadata = email.message.Message()
    files = ()

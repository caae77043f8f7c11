"""Stands in for conda in tests: answers what Snakemake asks, and builds what an env file lists.

Not conda: packages come from PyPI through uv, those that the file lists in its versions and what
they bring along in those of requirements.lock; Python is this machine's of the same minor version.
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTIVATE = 'export CONDA_PREFIX="$1" PATH="$1/bin:$PATH"\n'


def install(prefix: Path) -> Path:
    """Put the stand-in into a folder; returns the folder that belongs on the path."""
    folder = prefix / "bin"
    folder.mkdir(parents=True)
    (folder / "activate").write_text(ACTIVATE)
    command = folder / "conda"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "{prefix}" "$@"\n')
    command.chmod(0o755)
    return folder


def answer(prefix: str, question: list[str]) -> None:
    """Answer one call of conda; what is not known here ends with a message."""
    match question:
        case ["--version"]:
            print("conda 25.9.0")
        case ["info", "--json"]:
            print(json.dumps({"conda_prefix": prefix, "platform": "linux-64"}))
        case ["config", "--get", "channel_priority", "--json"]:
            print(json.dumps({"get": {"channel_priority": "strict"}}))
        case ["env", "create", *options]:
            create(options)
        case ["clean", "-y", "--tarballs"]:
            pass  # nothing was packed
        case _:
            sys.exit(f"the stand-in for conda does not know: {' '.join(question)}")


def create(options: list[str]) -> None:
    """Build the environment of `conda env create`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--no-default-packages", action="store_true")
    given = parser.parse_args(options)
    python, packages = listed(yaml.safe_load(given.file.read_text(encoding="utf-8")))
    if python != platform.python_version_tuple()[:2]:
        sys.exit(f"the stand-in for conda has no Python {'.'.join(python)}")
    uv("venv", "--python", sys.executable, given.prefix)
    where = ("--python", f"{given.prefix}/bin/python", "--constraint", f"{ROOT}/requirements.lock")
    uv("pip", "install", *where, *packages)


def listed(file: dict) -> tuple[tuple[str, ...], list[str]]:
    """Python's major and minor version, and the packages of an env file, as pip writes them."""
    *conda, section = file["dependencies"]
    versions = dict(package.split("=") for package in conda)
    python = tuple(versions.pop("python").split(".")[:2])
    return python, [*(f"{name}=={v}" for name, v in versions.items()), *section["pip"]]


def uv(*arguments: str) -> None:
    """Run uv, and end with its message if it fails."""
    done = subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    answer(sys.argv[1], sys.argv[2:])

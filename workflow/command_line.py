"""Check the command line before Snakemake opens its config files.

Snakemake takes everything after `--configfile` or `--config` for their values, so a target there
would end in a traceback, and so would much that is not YAML; the profiles run this file first. If
the home is not writable, caches of Snakemake and of what its jobs import go to the working
directory; a user whom the system does not know gets a name.
"""

import argparse
import getpass
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from snakemake.cli import get_argument_parser


def repeated(words: list[str]) -> Iterator[str]:
    """One sentence for each repeated option, of which Snakemake would take only the last."""
    words = words[: words.index("--")] if "--" in words else words
    for names in (("--config", "-C"), ("--configfile", "--configfiles")):
        if sum(word.partition("=")[0] in names for word in words) > 1:
            yield (
                f"{names[0]}: is given more than once, of which Snakemake takes the last alone; "
                f"write all that belongs to it after one {names[0]}."
            )


def swallowed(configfiles: list[Path], entries: list[str]) -> Iterator[str]:
    """One sentence for each word that cannot be what Snakemake takes it for."""
    for file in configfiles:
        in_results = file.parts[:1] in (("figures",), ("results",))
        if in_results or not (file.exists() or file.suffix in (".yaml", ".yml", ".json")):
            yield (
                f"{file}: is taken for a config file, since it follows --configfile; if it is a "
                "target, put `--` between the config file and the targets."
            )
        elif file.is_symlink() and not file.exists():
            yield f"{file}: is a link that leads nowhere; remove it, or make it lead to a file."
        elif not file.exists():
            yield f"{file}: there is no such config file; --configfile takes one that exists."
    for entry in entries:
        if "=" not in entry:
            yield (
                f"{entry}: is taken for a setting, since it follows --config; if it is a target, "
                "put `--` between the settings and the targets, else write key=value."
            )
        elif not re.fullmatch(r"[a-zA-Z_]\w*", entry.partition("=")[0]):
            yield (
                f"{entry}: --config takes keys of the first level; write what is in a section as "
                "experiments='{key2024_disk: {width: 8}}'."
            )


def unreadable(configfiles: list[Path], entries: list[str]) -> Iterator[str]:
    """A sentence if a config file or setting is not YAML, or JSON, with keys."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    from feature_alignment.errors import UserError
    from feature_alignment.pipeline.yaml_files import read_entries, read_mapping

    try:
        for file in configfiles:
            if not is_json_with_keys(file) and not read_mapping(file):
                yield (
                    f"{file}: holds no keys, which Snakemake takes for no config file; write one "
                    "at least, as preset: quick, or do without the file."
                )
        read_entries(entries)
    except UserError as error:
        yield str(error)


def is_json_with_keys(file: Path) -> bool:
    """Whether a .json file is JSON with keys, which may have tabs; else it may still be YAML."""
    try:
        found = file.suffix == ".json" and json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and bool(found)


def without_slurm(arguments: argparse.Namespace) -> Iterator[str]:
    """A sentence if runs are to be submitted without Slurm: Snakemake would wait."""
    if Path(arguments.workflow_profile or "").name != "slurm" or arguments.dryrun:
        return
    if shutil.which("sbatch") is None:
        yield (
            "--workflow-profile slurm: sbatch is not found; give the command on the cluster's "
            "login node, with its module loaded if it has one, or leave the profile out."
        )
    elif shutil.which("sinfo") is not None:
        try:
            subprocess.run(
                ["sinfo", "--noheader"], check=True, capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = (str(getattr(error, "stderr", None) or "").strip() or str(error)).splitlines()[0]
            yield (
                f"--workflow-profile slurm: the cluster does not answer sinfo ({said}); give the "
                "command on the cluster's login node, or leave the profile out."
            )


def cramped(working: Path) -> Iterator[str]:
    """One sentence for each of the working, temporary and cache folders that cannot be written."""
    for place in (working, *working.parents):
        if os.path.lexists(place) and not place.is_dir():
            yield f"-d {working}: {place} is no folder; name one, or what does not exist yet."
    top = next(place for place in (working, *working.parents) if place.exists())
    if top.is_dir() and not os.access(top, os.W_OK | os.X_OK):
        yield f"{top.resolve()}: is not writable; work elsewhere, by -d <folder>."
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    caches = next(folder for folder in (home, *home.parents) if folder.exists())
    # If TMPDIR is full, Python uses another folder, but programs that Snakemake calls do not.
    temporary = os.environ.get("TMPDIR") or "/tmp"
    for place, name in ((temporary, "TMPDIR"), (caches, "XDG_CACHE_HOME")):
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(65536))
        except OSError as error:
            what = f"no file can be written there ({error.strerror})"
            yield f"{place}: {what}; make room, or name another folder by {name}."


def idle(arguments: argparse.Namespace) -> Iterator[str]:
    """A sentence for `--cores 0`, or jobs, or less, with which Snakemake would wait for ever."""
    for option, most in (("cores", "all"), ("jobs", "unlimited")):
        given = str(getattr(arguments, option))
        if re.fullmatch(r"[+-]?\d+", given) and int(given) < 1:
            yield f"--{option}: found {given}; at least 1 is needed, or {most}."


def find_room_for_caches(working: Path) -> None:
    """Put caches into the working directory if they cannot be in the home."""
    for name, usual in (("XDG_CACHE_HOME", ".cache"), ("XDG_CONFIG_HOME", ".config")):
        place = Path(os.environ.get(name) or Path.home() / usual).absolute()
        top = next(folder for folder in (place, *place.parents) if folder.exists())
        if not os.access(top, os.W_OK | os.X_OK):
            os.environ[name] = str(Path(working, ".snakemake", "home", usual).absolute())


def find_name() -> None:
    """Give a user without a name its number as one: Snakemake and PyTorch would fail without."""
    try:
        getpass.getuser()
    except (KeyError, OSError):  # containers often run as a user that the system does not know
        os.environ["LOGNAME"] = str(os.getuid())


if __name__ == "__main__":
    arguments, _ = get_argument_parser().parse_known_args()
    find_room_for_caches(Path(arguments.directory or "."))
    find_name()
    entries, places = arguments.config or [], (arguments.directory or "", "")
    own = [file for place in places if os.path.lexists(file := Path(place, "config.yaml"))]
    files = [*own[:1], *arguments.configfile]
    mistakes = (
        repeated(sys.argv[1:]),
        without_slurm(arguments),
        cramped(Path(arguments.directory or ".")),
        idle(arguments),
        swallowed(files, entries),
        unreadable(files, entries),
    )
    for sentence in itertools.chain(*mistakes):
        sys.exit(sentence)

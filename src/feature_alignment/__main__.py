"""`feature-alignment`, or `python -m feature_alignment`: see `--help`."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from feature_alignment import _EXTRAS
from feature_alignment.errors import UserError
from feature_alignment.instrument.command_line import add_commands
from feature_alignment.version import own_version


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake, or a missing package, ends it with one sentence.

    Raises:
        OSError: if it does not concern a file.
    """
    parser = argparse.ArgumentParser(
        prog="feature-alignment",
        allow_abbrev=False,
        description="Measure trainings of your own; in a checkout, single experiments and figures "
        "of the papers without Snakemake; help on the configuration.",
    )
    parser.add_argument("--version", action="version", version=own_version())
    commands = parser.add_subparsers(required=True, metavar="command")
    add_commands(commands)
    try:
        from feature_alignment.pipeline import command_line
    except ModuleNotFoundError as error:
        parser.epilog = (
            f"The papers' commands need {error.name}: pip install 'feature-alignment[pipeline]'."
        )
        words = sys.argv[1:] if arguments is None else arguments
        if words and not words[0].startswith("-") and words[0] not in commands.choices:
            sys.exit(parser.epilog)
    else:
        command_line.add_commands(commands)
    options, left = parser.parse_known_args(arguments)
    if left and "checkpoints" in options and not left[0].startswith("-"):
        sys.exit(f"--checkpoints: takes one pattern, not {left[0]} too; quote it, as 'ckpt/*.pt'.")
    if left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("feature_alignment").setLevel(logging.INFO)  # others report every font
    try:
        options.command(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except UserError as error:
        sys.stderr.write(error.traceback)
        sys.exit(f"{error}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        named = f"'feature-alignment[{_EXTRAS[package]}]'" if package in _EXTRAS else package
        sys.exit(f"the package {package} is not installed; pip install {named}.")
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.filename is None:
            raise
        sys.exit(f"{error.filename}: {error.strerror}; give one that can be read or written.")


if __name__ == "__main__":
    main()

"""`feature-alignment measure` and `report`: the record of a training, from its checkpoints."""

import argparse
import re
from pathlib import Path
from typing import Any

from feature_alignment.errors import UserError
from feature_alignment.files import write_whole
from feature_alignment.instrument import MEASURES, METRICS


def add_commands(commands: Any) -> None:
    """Add `measure` and `report` to the commands of a parser."""
    about = "Measure a model of your own at each checkpoint of its training."
    measure = commands.add_parser("measure", help=about, description=about)
    measure.add_argument("model", help="function that builds the model, as my_module:build")
    measure.add_argument(
        "--data",
        required=True,
        help="function that gives the samples, as my_module:batch: x, (x, y) or a mapping",
    )
    about = "files by step, as 'ckpt/*.pt'; the first is the start, W₀"
    measure.add_argument("--checkpoints", required=True, help=about)
    measure.add_argument("--out", required=True, type=Path, help="folder for the record")
    kinds = [kind for kind in MEASURES if kind != "path"]  # which needs every update
    measure.add_argument("--measure", nargs="+", default=["kernel", "features"], choices=kinds)
    about = "the entry of what the model returns, as logits, or its position, as 0"
    measure.add_argument("--output", type=_key_or_position, help=about)
    measure.add_argument("--only", nargs="+", help="trainable, or names of parameters and modules")
    about = "arguments that hold samples along their first axis, if not all do"
    measure.add_argument("--inputs", nargs="+", type=_key_or_position, help=about)
    about = "what the record calls the samples, such as test if they are held out"
    measure.add_argument("--split", default="train", help=about)
    measure.set_defaults(command=_measure)
    about = "Make a page with pictures of a record."
    report = commands.add_parser("report", help=about, description=about)
    report.add_argument("folder", type=Path, help="folder that measure or Monitor.save wrote")
    report.set_defaults(command=_report)


def _key_or_position(word: str) -> str | int:
    return int(word) if re.fullmatch(r"-?\d+", word) else word


def _measure(options: argparse.Namespace) -> None:
    from feature_alignment.instrument import checkpoints

    try:
        files = checkpoints.find_checkpoints(options.checkpoints)
    except UserError as error:
        raise UserError(f"--checkpoints: {error}") from error
    model = checkpoints.built(options.model)
    x, y = checkpoints.batch(options.data)
    only = options.only[0] if options.only == ["trainable"] else options.only
    choices = {"measure": options.measure, "output": options.output, "only": only}
    choices |= {"inputs": options.inputs, "split": options.split}
    try:
        checkpoints.measure_checkpoints(model, x, y, files, options.out, **choices)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        # Raised by the engine, or by the model itself, if something does not fit.
        raise UserError(str(error)) from error
    except (LookupError, AssertionError) as error:  # whose messages alone say little
        raise UserError(f"--model: it raised {type(error).__name__} {error}".rstrip()) from error
    print(options.out / METRICS)


def _report(options: argparse.Namespace) -> None:
    from feature_alignment.instrument.record_page import record_page

    page = options.folder / "report.html"
    write_whole(page, record_page(options.folder))
    print(page)

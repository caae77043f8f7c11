"""Pack finished results small into `evidence/`, and generate pages from them.

    python tools/evidence.py pack NAME [--at FOLDER] [--stand-in DATASET ...] [--add]
        packs FOLDER/results/NAME and FOLDER/figures/NAME (default: this checkout) into
        evidence/NAME, tables with ten significant digits of each value; replaces the whole
        folder, except a multiverse of the same data, or with --add only the figures that were made
    python tools/evidence.py multiverse NAME [--at FOLDER] [--add]
        packs the multiverse of the same data next to it, with the commits at which it was made;
        with --add replaces only the same groups
    python tools/evidence.py again NAME [--at FOLDER]
        records next to it that the result, or some of its figures, were made again, for example on
        another processor, and which verdicts differ; fails if any does; FOLDER may also be a result
        that was packed elsewhere
    python tools/evidence.py drop NAME FIGURE ...
        takes figures out, such as those whose very runs a larger packed result shows
    python tools/evidence.py judge NAME
        judges the packed tables by the current claims, for example after an edit of a ledger, and
        summarises the verdicts of the packed multiverse anew
    python tools/evidence.py redraw NAME [FIGURE ...]
        redraws pictures from the packed tables, except those of arrays, which are not packed
    python tools/evidence.py pages [--check]
        writes docs/verdicts.md, docs/gallery.md, the table of the README and evidence's RO-Crate
        metadata from evidence/, or with --check fails if they are not current

`packing.py` does the first four, `from_tables.py` the next two, `evidence_pages.py` the last;
`packed.py` reads the evidence.
"""

import argparse
import sys
from pathlib import Path

from evidence_pages import pages
from from_tables import judge, redraw
from packed import EVIDENCE, ROOT, Packed
from packing import add, confirm, drop, pack, pack_multiverse

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    packing = commands.add_parser("pack", help="pack a finished result into evidence/")
    packing.add_argument("--stand-in", action="append", default=[], choices=sorted(DATASETS))
    packing.add_argument("--add", action="store_true", help="keep the figures that it has not")
    beside = commands.add_parser("multiverse", help="pack its multiverse beside it")
    beside.add_argument("--add", action="store_true", help="keep the groups that it has not")
    confirming = commands.add_parser("again", help="record that it was made again, and differences")
    for command in (packing, beside, confirming):
        command.add_argument("name")
        command.add_argument("--at", type=_folder, default=ROOT)
    judging = commands.add_parser("judge", help="judge the packed tables by the present claims")
    drawing = commands.add_parser("redraw", help="draw pictures again from the packed tables")
    dropping = commands.add_parser("drop", help="take figures out of a packed result")
    for command in (judging, drawing, dropping):
        names = sorted(file.parent.name for file in EVIDENCE.glob("*/about.json"))
        command.add_argument("name", choices=names)
    drawing.add_argument("figures", nargs="*", metavar="FIGURE")
    dropping.add_argument("figures", nargs="+", metavar="FIGURE")
    paging = commands.add_parser("pages", help="write the pages, or --check that they are current")
    paging.add_argument("--check", action="store_true")
    try:
        given = parser.parse_args(arguments)
        if given.command == "pack":
            packer = add if given.add else pack
            packer(given.name, given.at, given.stand_in, EVIDENCE / given.name)
            return 0
        if given.command == "multiverse":
            pack_multiverse(given.name, given.at, EVIDENCE / given.name, join=given.add)
            return 0
        if given.command == "again":
            differ = confirm(given.name, given.at, EVIDENCE / given.name)
            for claim, (then, now) in differ.items():
                print(f"{claim}: {now}, where evidence/{given.name} has {then}.")
            return int(bool(differ))
        if given.command == "drop":
            drop(given.figures, EVIDENCE / given.name)
            return 0
        if given.command in ("judge", "redraw"):
            at = Packed(EVIDENCE / given.name)
            told = judge(at) if given.command == "judge" else redraw(at, given.figures)
            print("\n".join(told or ["nothing has changed"]))
            if given.command == "redraw":
                asked = given.figures or list(at.about["figures"])
                for figure in (figure for figure in asked if figure not in told):
                    print(f"{figure}: stays as it is, since it shows arrays, which are not packed.")
            return 0
        found = pages(EVIDENCE)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    stale = {path: text for path, text in found.items() if _read(path) != text}
    for path, text in stale.items():
        if given.check:
            print(f"{path.relative_to(ROOT)}: is not current; run python tools/evidence.py pages.")
        else:
            path.write_text(text, encoding="utf-8")
    return int(given.check and bool(stale))


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder.")
    return Path(text)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())

"""Draw the pictures of a packed result again, by the present code, from its packed tables.

    python tools/redraw.py NAME [FIGURE ...]

Pictures of arrays, which are not packed, stay as they are. `evidence/NAME/about.json` tells at
which commit a picture was drawn, if not by the run.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from packed import EVIDENCE, ROOT, Packed, all_packed
from packing import shrink

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.figures.make import draw_figure
from feature_alignment.pipeline.plan import make_plan
from feature_alignment.pipeline.provenance import git_state


def redraw(packed: Packed, figures: Sequence[str]) -> list[str]:
    """Draw these pictures, or all; those that were drawn.

    Raises:
        UserError: if the checkout has changes of its own, or there is no such figure.
    """
    for figure in figures:
        if figure not in packed.about["figures"]:
            raise UserError(f"{figure}: {suggestion(figure, packed.about['figures'])}.")
    state = git_state()
    if state["dirty"]:
        raise UserError("the checkout has changes of its own; commit them first.")
    about = packed.about
    unread = {name: {"source": "embedded"} for name in DATASETS}  # whatever was read then
    config = resolve_config({"preset": about["preset"], "datasets": unread}, ROOT / "workflow")
    plan, sources = make_plan(config), {one["name"]: one["source"] for one in about["datasets"]}
    drawn = []
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "arrays.npz"
        np.savez(arrays)
        for figure in figures or about["figures"]:
            told = {"name": about["name"], "changed": about["figures"][figure]}
            spec = {**plan.figure_spec(figure), **told}
            spec["datasets"] = [[name, sources.get(name, own)] for name, own in spec["datasets"]]
            picture = Path(folder) / f"{figure}.png"
            table = packed.folder / "tables" / f"{figure}.csv.gz"
            try:
                draw_figure(spec, table, arrays, [picture])
            except UserError as error:
                if not isinstance(error.__cause__, KeyError):  # an array that is not there
                    raise
                continue
            shrink(picture, packed.folder / "figures")
            drawn.append(figure)
    at = dict.fromkeys(drawn, state["commit"])
    about = {**about, "pictures": {**about.get("pictures", {}), **at}}
    (packed.folder / "about.json").write_text(f"{json.dumps(about, indent=1)}\n", "utf-8")
    return drawn


def main() -> int:
    """Run the tool; its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=sorted(one.folder.name for one in all_packed(EVIDENCE)))
    parser.add_argument("figures", nargs="*", metavar="FIGURE")
    options = parser.parse_args()
    packed = Packed(EVIDENCE / options.name)
    try:
        drawn = redraw(packed, options.figures)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"drawn again: {', '.join(drawn)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

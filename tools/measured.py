"""Write the times of finished runs to workflow/measured.csv, so that small ones share a submission.

    python tools/measured.py results/quick results/laptop

Runs are identified by the hash of their parameters. Earlier measurements stay unless they are
repeated; runs that were taken over from another result took no time, and are omitted.
"""

import csv
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from feature_alignment.errors import UserError
from feature_alignment.files import whole_file
from feature_alignment.pipeline.proof import read_provenance
from feature_alignment.pipeline.submissions import COLUMNS, key_of, read_measured

FILE = Path("workflow") / "measured.csv"


def working_seconds(record: Mapping[str, Any]) -> float:
    """How long a job takes on an idle machine, by its provenance.

    On a busy CPU, elapsed time exceeds working time, which then counts; on a GPU, threads wait.
    """
    elapsed = record["wall_seconds"]
    on_gpu = record["machine"]["device"] != "cpu"
    return elapsed if on_gpu else min(elapsed, record["cpu_seconds"] / (record["threads"] or 1))


def measured(result: Path) -> Iterator[dict[str, str]]:
    """A row for each run of a result: its seconds on an idle machine."""
    for provenance in result.glob("runs/*/*/provenance.json"):
        record = read_provenance(provenance)
        if "taken_over_from" in record:
            continue
        experiment, parameters = key_of(record["spec"])
        yield {
            "experiment": experiment,
            "parameters": parameters,
            "point": provenance.parent.name,
            "seconds": f"{working_seconds(record):.0f}",
        }


def main(results: list[str]) -> None:
    """Add the runs of some results to the file.

    Raises:
        UserError: if the file, or a run's provenance, is damaged.
    """
    rows = {}
    if FILE.exists():
        read_measured(FILE)
        with FILE.open(encoding="utf-8") as file:
            rows = {(row["experiment"], row["parameters"]): row for row in csv.DictReader(file)}
    for result in results:
        rows |= {(row["experiment"], row["parameters"]): row for row in measured(Path(result))}
    with whole_file(FILE) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=lambda row: [row[c] for c in COLUMNS]))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if not FILE.parent.is_dir():
        sys.exit("there is no folder workflow here; start in the root of the checkout.")
    for folder in sys.argv[1:]:
        if not (Path(folder) / "runs").is_dir():
            sys.exit(f"{folder}: holds no runs; give folders such as results/quick.")
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"Error: {error}")

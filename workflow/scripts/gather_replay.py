"""Compare the runs that were made again with those of the configured result."""

import shutil
import sys
from pathlib import Path

from feature_alignment.errors import UserError
from feature_alignment.files import whole_file
from feature_alignment.pipeline.replay import compare_runs, summary

params = snakemake.params
result, again = Path("results") / params.name, Path(params.again)
try:
    found = compare_runs(params.runs, result / "runs", again)
except UserError as error:
    sys.exit(str(error))
finally:
    shutil.rmtree(again)
file = result / "logs" / "replay.csv"
with whole_file(file) as table:
    found.to_csv(table, index=False)
text = f"{summary(found)}\nAll of it: {file}."
Path(snakemake.log[0]).write_text(f"{text}\n", encoding="utf-8")
if (found["verdict"] != "same").any():
    sys.exit(text)
print(text, flush=True)

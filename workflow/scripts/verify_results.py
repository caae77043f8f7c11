"""Check that every file of the configured result is as its job wrote it."""

import sys
from pathlib import Path

from feature_alignment.errors import UserError
from feature_alignment.pipeline.proof import verify

name = snakemake.params.name
try:
    found = f"{name}: the outputs of {verify(name)} jobs are as they were written."
except UserError as error:
    Path(snakemake.log[0]).write_text(f"{error}\n", encoding="utf-8")
    sys.exit(str(error))
print(found, flush=True)
Path(snakemake.log[0]).write_text(f"{found}\n", encoding="utf-8")

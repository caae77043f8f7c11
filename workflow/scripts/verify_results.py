"""Check that every file of the configured result is as its job wrote it."""

import sys

from feature_alignment.errors import UserError
from feature_alignment.pipeline.proof import verify

name = snakemake.params.name
try:
    print(f"{name}: the outputs of {verify(name)} jobs are as they were written.", flush=True)
except UserError as error:
    sys.exit(str(error))

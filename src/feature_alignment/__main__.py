"""`python -m feature_alignment`: single experiments and figures without Snakemake, and help."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command of the pipeline, or ask in one sentence for the packages that it needs."""
    try:
        from feature_alignment.pipeline import command_line
    except ModuleNotFoundError as error:
        sys.exit(
            f"the package {error.name} is not installed; this command needs "
            "pip install 'feature-alignment[pipeline]'."
        )
    command_line.main(arguments)


if __name__ == "__main__":
    main()

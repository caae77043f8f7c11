"""What stands on the command line, before Snakemake opens its config files.

Snakemake takes all that follows `--configfile` or `--config` for theirs, so a target there would
end in a traceback; the profiles run this file first.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from snakemake.cli import get_argument_parser


def swallowed(configfiles: list[Path], entries: list[str]) -> Iterator[str]:
    """One sentence for each word that cannot be what Snakemake takes it for."""
    for file in configfiles:
        in_results = file.parts[:1] in (("figures",), ("results",))
        if in_results or not (file.exists() or file.suffix in (".yaml", ".yml", ".json")):
            yield (
                f"{file}: is taken for a config file, since it follows --configfile; if it is a "
                "target, put `--` between the config file and the targets."
            )
        elif not file.exists():
            yield f"{file}: there is no such config file; --configfile takes one that exists."
    for entry in entries:
        if "=" not in entry:
            yield (
                f"{entry}: is taken for a setting, since it follows --config; if it is a target, "
                "put `--` between the settings and the targets, else write key=value."
            )


if __name__ == "__main__":
    arguments, _ = get_argument_parser().parse_known_args()
    for sentence in swallowed(arguments.configfile, arguments.config or []):
        sys.exit(sentence)

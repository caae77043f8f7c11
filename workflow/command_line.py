"""What stands on the command line, before Snakemake opens its config files.

Snakemake takes all that follows `--configfile` or `--config` for theirs, so a target there would
end in a traceback, and so would much that is no YAML; the profiles run this file first.
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


def unreadable(configfiles: list[Path], entries: list[str]) -> Iterator[str]:
    """One sentence for each config file or setting that is not YAML; Snakemake reads JSON, too."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    from feature_alignment.errors import UserError
    from feature_alignment.pipeline.config import read_entries, read_yaml

    try:
        for file in configfiles:
            if file.suffix != ".json":
                read_yaml(file)
        read_entries(entries)
    except UserError as error:
        yield str(error)


if __name__ == "__main__":
    arguments, _ = get_argument_parser().parse_known_args()
    entries, own = arguments.config or [], Path("config.yaml")
    files = [own] * own.exists() + arguments.configfile
    for sentence in (*swallowed(files, entries), *unreadable(files, entries)):
        sys.exit(sentence)

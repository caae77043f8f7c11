"""Read users' YAML with care: duplicate keys and aliases that expand to too much are refused."""

import copy
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.parser import ParserError
from yaml.scanner import ScannerError

from feature_alignment.errors import UserError, reason, shortened
from feature_alignment.files import read_regular
from feature_alignment.pipeline.parameters import kind

_MOST_VALUES, _DEEPEST = 100_000, 40
_NESTED = dict, list, tuple


def read_entries(entries: Iterable[str]) -> dict[str, Any]:
    """The settings of `--config key=value`, with values read as in a config file.

    Snakemake itself reads numbers inside a value as text.

    Example:
        >>> read_entries(["preset=smoke", "experiments={key2024_disk: {seeds: 3}}"])
        {'preset': 'smoke', 'experiments': {'key2024_disk': {'seeds': 3}}}

    Raises:
        UserError: if a value is not YAML, or a key is given twice.
    """
    settings: dict[str, Any] = {}
    for entry in entries:
        key, _, text = entry.partition("=")
        if key in settings:
            raise UserError(
                f"--config: {shortened(key, quoted=False)}: is given twice; once will do."
            )
        try:
            value = _parsed(text)
        except Exception as error:  # what builds values raises what it likes
            what = f"{shortened(text)} is not valid YAML ({reason(error)})"
            raise UserError(f"--config: {shortened(key, quoted=False)}: {what}.") from error
        settings[key] = value
    return settings


def read_yaml(path: Path) -> Any:
    """The contents of a YAML file.

    Raises:
        UserError: if it cannot be read, is not YAML, or gives a key twice.
    """
    try:
        found = _parsed(read_regular(path).decode())
        return {} if found is None else found
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ParserError, ScannerError) as error:
        places = (error.context, error.context_mark), (error.problem, error.problem_mark)
        told = ", ".join(
            f"{what} at line {place.line + 1}, column {place.column + 1}"
            for what, place in places
            if what and place
        )
        cure = "indent by spaces, close what is open, and quote texts that hold a colon"
        raise UserError(f"{path}: is not valid YAML ({told}); {cure}.") from error
    except Exception as error:  # what builds values raises what it likes
        raise UserError(f"{path}: is not valid YAML ({reason(error)}).") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """The contents of a YAML file of keys and values.

    Raises:
        UserError: if it cannot be read, is not YAML, gives a key twice, or is not a mapping.
    """
    found = read_yaml(path)
    if not isinstance(found, dict):
        raise UserError(f"{path}: holds {kind(found)} where a mapping of keys is needed.")
    return found


def _parsed(text: str) -> Any:
    value = yaml.load(text, _UniqueKeys)
    pending: list[tuple[Collection[Any], int]] = [([value], 0)]
    seen = 0
    while pending:  # an alias may expand to very much, or contain itself
        parts, depth = pending.pop()
        seen += len(parts)
        if seen > _MOST_VALUES or (parts and depth > _DEEPEST):
            what = f"it holds more than {_MOST_VALUES} values, or more than {_DEEPEST} levels"
            raise yaml.YAMLError(what)
        for part in parts:
            if isinstance(part, _NESTED):
                pending.append((part.values() if isinstance(part, dict) else part, depth + 1))
    return value


class _UniqueKeys(yaml.CSafeLoader):
    """YAML in which a duplicate key is an error: its first value would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else id(key)
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                what = f"the key {shortened(name)} is given twice"
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        merged = 0
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":  # what is merged can double with each line
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(part, yaml.MappingNode):
                        self.flatten_mapping(part)
                        merged += len(part.value)
                    if merged > _MOST_VALUES:
                        raise yaml.YAMLError(f"it merges more than {_MOST_VALUES} keys")
        super().flatten_mapping(node)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as Snakemake merges config files: sections key by key."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged

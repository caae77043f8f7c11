"""Configuration: schema, presets and what the user set, merged and checked.

The schema is the only home of defaults. Later wins: schema defaults, preset, config.yaml,
--configfile, --config (Snakemake has already merged the last three).
"""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from feature_alignment.errors import UserError, suggestion

PRESETS = ("smoke", "quick", "laptop", "paper")
Config = dict[str, Any]


@cache
def load_schema(path: Path) -> Config:
    """The schema in a YAML file, with each `$ref: other.yaml` replaced by that file's schema."""
    return _inline_references(read_yaml(path), path.parent)


def _inline_references(node: Any, folder: Path) -> Any:
    if isinstance(node, list):
        return [_inline_references(item, folder) for item in node]
    if not isinstance(node, dict):
        return node
    inlined = {k: _inline_references(v, folder) for k, v in node.items() if k != "$ref"}
    if "$ref" in node:
        # What stands beside the reference, such as a description, goes before what it brings.
        inlined = {**load_schema(folder / node["$ref"]), **inlined}
    return inlined


def resolve_config(
    user: Mapping[str, Any],
    workflow_folder: Path,
    preset: str | None = None,
    files: Sequence[Path] = (),
) -> Config:
    """The complete, valid configuration.

    Args:
        user: what the user set: config.yaml, --configfile and --config, already merged.
        workflow_folder: the folder with `schemas` and `presets`.
        preset: a preset to use in place of the one that the user set.
        files: the config files in the order they were merged, to name the one with a bad value.

    Returns:
        A nested dict in which every key of the schema has a value.

    Raises:
        UserError: if a key is unknown or a value is not allowed.
    """
    schema = load_schema(workflow_folder / "schemas" / "config.schema.yaml")
    cleaned = _without_empty_sections(_parse_selections(dict(user)), schema)
    check_against_schema(cleaned, schema, lambda path: _source_of(path, files))
    chosen = preset or cleaned.get("preset") or schema["properties"]["preset"]["default"]
    sizes = load_preset(workflow_folder, chosen, schema)
    merged = _merge(_defaults(schema), _merge(sizes, cleaned))
    merged["preset"] = chosen
    return merged


def load_preset(workflow_folder: Path, preset: str, schema: Config) -> Config:
    """The settings of a preset.

    Raises:
        UserError: if there is no such preset or its file does not fit the schema.
    """
    if preset not in PRESETS:
        raise UserError(f"preset: unknown preset {preset!r}; {suggestion(preset, PRESETS)}.")
    path = workflow_folder / "presets" / f"{preset}.yaml"
    settings = read_yaml(path)
    check_against_schema(settings, schema, lambda _: str(path))
    return settings


def read_yaml(path: Path) -> Any:
    """The contents of a YAML file.

    Raises:
        UserError: if it cannot be read, is not YAML, or gives a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys) or {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: is not valid YAML ({reason}).") from error


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that is given twice is an error: the first value would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _parse_selections(user: Config) -> Config:
    # On the command line a list is easiest written as `figures=a,b`.
    for key in ("papers", "figures"):
        value = user.get(key)
        if isinstance(value, str) and value != "all":
            user[key] = [name.strip() for name in value.split(",") if name.strip()]
    return user


def _without_empty_sections(user: Any, schema: Config) -> Any:
    """Drop sections whose every line is commented out: YAML reads them as null."""
    if not isinstance(user, dict):
        return user
    properties = schema.get("properties", {})
    kept = {}
    for key, value in user.items():
        section = properties.get(key, {})
        if value is None and section.get("type") == "object":
            continue
        kept[key] = _without_empty_sections(value, section)
    return kept


def _defaults(schema: Config) -> Any:
    if "properties" in schema:
        return {key: _defaults(value) for key, value in schema["properties"].items()}
    return copy.deepcopy(schema["default"])


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Config:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _source_of(path: Sequence[Any], files: Iterable[Path]) -> str:
    """The last config file that sets the value at the path, or "--config"."""
    source = "--config"
    for file in files:
        node: Any = read_yaml(file)
        for part in path:
            if not isinstance(node, dict) or part not in node:
                break
            node = node[part]
        else:
            source = str(file)
    return source


def check_against_schema(values: Any, schema: Config, source_of: Any) -> None:
    """Check values against a schema.

    Args:
        values: nested dicts and lists as read from YAML.
        schema: a JSON schema (draft 2020-12).
        source_of: maps the path of a bad value, a list of keys, to the file it comes from.

    Raises:
        UserError: for the first value that does not fit, by its place in the file's key order.
    """
    if not isinstance(values, dict):
        raise UserError(
            f"{source_of([])}: holds {_kind(values)} where a mapping of keys is needed."
        )
    errors = jsonschema.Draft202012Validator(schema).iter_errors(values)
    first = min(errors, key=lambda error: [str(part) for part in error.absolute_path], default=None)
    if first is not None:
        path, message = _explain(first)
        where = ".".join(str(part) for part in path)
        raise UserError(f"{source_of(path)}: {where}: {message}.")
    _check_finite(values, [], source_of)


def _check_finite(values: Any, path: list[Any], source_of: Any) -> None:
    # YAML's .inf and .nan are floats, which a schema's bounds may let through.
    if isinstance(values, float) and not math.isfinite(values):
        where = ".".join(str(part) for part in path)
        raise UserError(f"{source_of(path)}: {where}: found {values}; a finite number is needed.")
    if isinstance(values, dict):
        for key, value in values.items():
            _check_finite(value, [*path, key], source_of)
    elif isinstance(values, list):
        for index, value in enumerate(values):
            _check_finite(value, [*path, index], source_of)


def _explain(error: jsonschema.ValidationError) -> tuple[list[Any], str]:
    """The path of the bad key or value, and what is wrong with it."""
    path, found, rule = list(error.absolute_path), error.instance, error.validator_value
    match error.validator:
        case "additionalProperties":
            known = error.schema["properties"]
            unknown = next(key for key in found if key not in known)
            return [*path, unknown], f"unknown key; {suggestion(unknown, known)}"
        case "required":
            missing = next(key for key in rule if key not in found)
            return [*path, missing], "missing; it has no default, so give it a value"
        case "type":
            wanted = " or ".join(rule) if isinstance(rule, list) else rule
            return path, f"found {_kind(found)}, a value of type {wanted} is needed{_hint(found)}"
        case "enum":
            return path, f"found {found!r}; {suggestion(found, map(str, rule))}"
        case "minimum":
            return path, f"found {found}, at least {rule} is needed"
        case "maximum":
            return path, f"found {found}, at most {rule} is allowed"
        case "exclusiveMinimum":
            return path, f"found {found}, a value above {rule} is needed"
        case "exclusiveMaximum":
            return path, f"found {found}, a value below {rule} is needed"
        case "minItems":
            return path, f"found {len(found)} items, at least {rule} are needed"
        case "maxItems":
            return path, f"found {len(found)} items, at most {rule} are allowed"
        case "uniqueItems":
            return path, f"found {found}, in which an item is repeated"
        case "oneOf" if error.schema.get("default") == "all":
            return path, f"found {_kind(found)}; write all, or a list of different names"
        case _:
            return path, error.message


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "text", list: "list"}
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a section of keys"
    return f"{value!r} ({names.get(type(value), type(value).__name__)})"


def _hint(found: Any) -> str:
    if not isinstance(found, str):
        return ""
    try:
        number = float(found)
    except ValueError:
        return ""
    return f"; YAML reads {found} as text: write {number!r}"

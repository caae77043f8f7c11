"""Typed settings: the base class of every section of the configuration, and one-sentence errors.

Light on purpose (no torch, no matplotlib), since the Snakefile imports every paper's parameters.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from feature_alignment.errors import UserError, check_known, shortened, suggestion

SET_BY_FIGURES = {"set_by": "figures"}
PAPERS_PACKAGE = "feature_alignment.papers"


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise PydanticCustomError("repeated", "an item is repeated")
    return values


def _not_empty(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise PydanticCustomError("empty", "the list is empty")
    return values


Item = TypeVar("Item")
Count = Annotated[int, Field(ge=1, le=10**9)]
"""A number of things, at least one."""
SeedNumber = Annotated[int, Field(ge=1, le=10_000)]
"""A number of seeds without a description; the key has its own."""
Seeds = Annotated[
    SeedNumber, Field(description="Number of seeds; seed i is the integer i, from 0.")
]
"""A number of seeds with a description."""
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
Precision = Literal["float32", "float64"]
# Lengths are checked by functions, since a second `min_length` would not replace the first.
Values = Annotated[tuple[Item, ...], Field(strict=False), AfterValidator(_not_empty)]
"""A list of values, at least one, maybe repeated: `Values[float]`."""
Different = Annotated[tuple[Item, ...], Field(strict=False), AfterValidator(_each_once)]
"""A list of different values, maybe empty: `Different[int]`."""
Several = Annotated[
    tuple[Item, ...], Field(strict=False), AfterValidator(_not_empty), AfterValidator(_each_once)
]
"""A list of different values, at least one: `Several[int]`."""


def _described(schema: dict[str, Any], section: "type[Section]") -> None:
    """Put the description of each key into the section's JSON schema."""
    for key, about in schema.get("properties", {}).items():
        if text := description_of(section, key):
            about["description"] = text


class Section(BaseModel):
    """A section of the configuration: frozen, strict (no 2.0 or "2" for 2), no unknown keys.

    The docstring below a key is its description, unless its type or Field has one.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
        json_schema_extra=_described,
    )

    def but(self, **changes: Any) -> Self:
        """A copy of the section with some values changed, checked again.

        Raises:
            UserError: if a key is unknown or a value is not allowed; names experiment and key.
        """
        name = getattr(self, "experiment", "") or type(self).__name__
        for key in changes:
            check_known(f"{name}: {key}: unknown key", key, type(self).model_fields)
        return check(type(self), {**self.model_dump(), **changes}, lambda _: name)

    def plain(self) -> dict[str, Any]:
        """The values in JSON's types: dicts, lists, numbers, booleans, texts and None."""
        return self.model_dump(mode="json")


class Parameters(Section):
    """All parameters of one experiment: the only place for their defaults, bounds and descriptions.

    A subclass names its experiment, a module in the folder `experiments` of its own paper:
    `class Disk(Parameters, experiment="disk")`. A field made by `by_figure` is set by the figures
    for each point and is not a key of the configuration.
    """

    experiment: ClassVar[str] = ""
    seeds: Seeds = 1

    def __init_subclass__(cls, experiment: str = "", **options: Any) -> None:
        """Give the subclass the full name of its experiment, `<paper>_<experiment>`."""
        super().__init_subclass__(**options)
        if experiment:
            paper = cls.__module__.removeprefix(f"{PAPERS_PACKAGE}.").partition(".")[0]
            cls.experiment = f"{paper}_{experiment}"

    @classmethod
    def dataset_keys(cls) -> list[str]:
        """The fields that name a dataset: `dataset`, and those that end in `_dataset`."""
        return [key for key in cls.model_fields if key == "dataset" or key.endswith("_dataset")]


def by_figure(default: Any, description: str) -> Any:
    """A field that figures set for each of their points; users cannot."""
    return Field(default=default, description=description, json_schema_extra=dict(SET_BY_FIGURES))


def description_of(section: type[BaseModel], key: str) -> str:
    """The description of a section's key on one line: its Field's or type's, else its docstring."""
    return " ".join((section.model_fields[key].description or "").split())


@cache
def keys_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The keys that a user may set in a section."""
    return tuple(
        name
        for name, field in section.model_fields.items()
        if field.json_schema_extra != SET_BY_FIGURES
    )


class Geometric(Section):
    """Step 0, and the integer parts of first·ratio^j for j = 0, 1, …."""

    first: float = Field(default=5, ge=1)
    """First step after step 0."""
    ratio: float = Field(default=1.15, gt=1)
    """Ratio of a step to the one before it."""


Schedule = Geometric | Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)]
"""Steps at which a network is measured: a list, or the two numbers of a geometric schedule."""


def check(model: type[BaseModel], values: Any, source_of: Callable[[Sequence[Any]], str]) -> Any:
    """The checked instance of a model with these values, dicts and lists as read from YAML.

    `source_of` maps the path of a bad value, a list of keys, to the file that it comes from.

    Raises:
        UserError: for the first value that does not fit: its file and key, what was found and
            what is allowed.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{source_of([])}: holds {kind(values)} where a mapping of keys is needed.")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = []
        for details in error.errors():  # Pydantic's paths also name the branches of unions
            missing = details["loc"][-1:] if details["type"] == "missing" else ()
            found.append(([*path_in(values, details["loc"]), *missing], details))
        # Report a misspelt key rather than the one that is missing for it.
        unknown = [path[:-1] for path, details in found if details["type"] == "extra_forbidden"]
        found = [f for f in found if f[1]["type"] != "missing" or f[0][:-1] not in unknown]
        # The branch of a union that got furthest is the one that was meant.
        path, details = min(found, key=lambda pair: ([str(p) for p in pair[0][:1]], -len(pair[0])))
        message = _explain(details, model, path)
        raise UserError(f"{source_of(path)}: {_dotted(path)}: {message}.") from None


def refuse_what_figures_set(
    model: type[BaseModel],
    values: Any,
    source_of: Callable[[Sequence[Any]], str],
    path: Sequence[Any] = (),
) -> None:
    """Refuse keys that exist but are set by the figures, see `by_figure`.

    Raises:
        UserError: for the first such key.
    """
    if not isinstance(values, Mapping):
        return
    for key, value in values.items():
        here = [*path, key]
        if key in model.model_fields and key not in keys_of(model):
            hint = suggestion(str(key), keys_of(model))
            raise UserError(f"{source_of(here)}: {_dotted(here)}: set by the figures; {hint}.")
        inner = _section_at(model, [key])
        if inner is not None:
            refuse_what_figures_set(inner, value, source_of, here)


def _dotted(path: Iterable[Any]) -> str:
    return ".".join(shortened(part, quoted=False) for part in path)


def path_in(values: Any, path: Iterable[Any]) -> list[Any]:
    """The parts of a path that exist in nested values; other parts are skipped."""
    found, node = list[Any](), values
    for part in path:
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list | tuple) and isinstance(part, int):
            node = node[part] if part < len(node) else None
        else:
            continue
        found.append(part)
    return found


def _section_at(model: type[BaseModel], path: Sequence[Any]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    several = False
    for part in path:
        if several:  # an index or key in a list or mapping of sections
            several = False
            continue
        field = None if found is None else found.model_fields.get(str(part))
        annotation = None if field is None else field.annotation
        found, several = _section_in(annotation), get_origin(annotation) in (dict, tuple)
    return found


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_section_in(part) for part in getattr(annotation, "__args__", ()))
    return next((section for section in inner if section is not None), None)


_WANTED = {
    "int_type": "integer",
    "int_from_float": "integer",
    "float_type": "number",
    "string_type": "text",
    "bool_type": "boolean",
    "tuple_type": "list",
    "list_type": "list",
    "dict_type": "section of keys",
    "model_type": "section of keys",
}
_PLAIN = {
    "missing": "missing; it has no default, so give it a value",
    "greater_than_equal": "found {shown}, at least {ge} is needed",
    "less_than_equal": "found {shown}, at most {le} is allowed",
    "greater_than": "found {shown}, a value above {gt} is needed",
    "less_than": "found {shown}, a value below {lt} is needed",
    "finite_number": "found {shown}; a finite number is needed",
    "too_short": "found {actual_length} items, at least {min_length} are needed",
    "empty": "found an empty list, at least one item is needed",
    "too_long": "found {actual_length} items, at most {max_length} are allowed",
    "string_too_short": "found an empty text, where at least one character is needed",
    "string_pattern_mismatch": "found {shown}, which does not fit the pattern {pattern}",
    "repeated": "found {shown}, in which an item is repeated",
}


def _explain(details: ErrorDetails, model: type[BaseModel], path: list[Any]) -> str:
    found, context = details["input"], details.get("ctx", {})
    shown = shortened(found)
    match details["type"]:
        case "extra_forbidden":
            section = _section_at(model, path[:-1])
            return f"unknown key; {suggestion(path[-1], keys_of(section) if section else ())}"
        case "literal_error":
            allowed = [part.strip("'") for part in re.split(", | or ", context["expected"])]
            return f"found {shown}; {suggestion(found, allowed)}"
        case plain if plain in _PLAIN:
            return _PLAIN[plain].format(shown=shown, **context)
        case wrong if wrong in _WANTED:
            wanted = _WANTED[wrong]
            return f"found {kind(found)}, a value of type {wanted} is needed{_hint(found, wanted)}"
        case "value_error":
            return str(context["error"]).rstrip(".")
        case _:
            return f"found {shown}: {details['msg']}"


def kind(value: Any) -> str:
    """A value with the name of its type, for error messages."""
    names = {bool: "boolean", int: "integer", float: "number", str: "text", list: "list"}
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a section of keys"
    return f"{shortened(value)} ({names.get(type(value), type(value).__name__)})"


def _hint(found: Any, wanted: str) -> str:
    """What to write for a number that YAML reads as text, such as 1e-3 or '3', or the reverse."""
    if wanted == "text" and isinstance(found, int | float | date):
        return "; write it in quotes, in --config within others, as 'name=\"2024\"'"
    numeric = isinstance(found, str) and wanted in ("integer", "number")
    try:
        number = float(found) if numeric else math.nan
    except ValueError:
        number = math.nan
    shown = int(number) if wanted == "integer" and number.is_integer() else number
    told = f"YAML reads {shortened(found)[1:-1]} as text: write {shown!r}"
    told = "write it without quotes" if repr(shown) == found else told
    return f"; {told}" if math.isfinite(number) else ""

"""Configuration: defaults, presets and the user's settings, merged and checked.

The defaults of experiments' parameters are in `papers/<key>/parameters.py`, all others here. Each
of these overrides the ones before it: defaults, preset, config.yaml, --configfile, --config
(Snakemake has already merged the last three).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError, check_known, shortened
from feature_alignment.pipeline.figures.figure import Settings
from feature_alignment.pipeline.papers import (
    all_parameters,
    paper_files,
    paper_folder,
    paper_of,
    papers,
)
from feature_alignment.pipeline.parameters import (
    Section,
    check,
    description_of,
    keys_of,
    kind,
    path_in,
    refuse_what_figures_set,
)
from feature_alignment.pipeline.spec import PRESETS, Preset
from feature_alignment.pipeline.yaml_files import merge, read_mapping, read_yaml

RESERVED_NAMES = ("by_hand", "logs", "readme.md")
"""Names in `results` that are not results, in lower case."""
Name = Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$")]


def _selection(value: Any) -> Any:
    # "all" or a list of different names; `figures=a,b` is easiest to type on the command line.
    if value == "all":
        return value
    text = isinstance(value, str)
    names = [name.strip() for name in value.split(",") if name.strip()] if text else value
    several = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not (several and names and len(set(names)) == len(names)):
        raise ValueError(f"found {kind(value)}; write all, or a list of different names")
    return tuple(names)


Selection = Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_selection)]


class Resources(Section):
    """What each training run requests from a cluster's scheduler."""

    mem_mb: int = Field(default=8000, ge=500, le=4_000_000)
    """Memory of a run, in MB."""
    runtime: int = Field(default=240, ge=1, le=100_000)
    """Time limit of a run, in minutes."""


class Config(Section):
    """The complete configuration; `config_model` adds types to `datasets` and `experiments`."""

    preset: Preset = "quick"
    """Sizes of all experiments."""
    name: Name = None
    """Name of the result and of its folders in results and figures; null for the preset's."""
    papers: Selection = "all"
    """Papers to replicate: citation keys, or "all"."""
    papers_path: str | None = None
    """Folder with your own papers, each as in the checkout; relative to the working directory."""
    figures: Selection = "all"
    """Figures to make: names such as <paper>_fig1, or "all"."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks train: auto uses a GPU if there is one."""
    threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of each run; their number changes the last bits of sums."""
    resources: Resources = Resources()
    """What each training run requests from a cluster's scheduler."""
    fraction: float = Field(default=0.1, gt=0, le=1)
    """Share of the finished runs that the target `replay` makes again."""
    datasets: Any
    experiments: Any

    @property
    def result(self) -> str:
        """The name of the result and of its folders in `results` and `figures`."""
        return self.name or self.preset

    def settings(self) -> Settings:
        """The parameters of all experiments."""
        return Settings({name: getattr(self.experiments, name) for name in all_parameters()})

    def dataset(self, name: str) -> dict[str, Any]:
        """The options of a dataset: `source` and `path`."""
        return getattr(self.datasets, name).plain()


@cache
def config_model() -> type[Config]:
    """The model of the configuration: every key with its type, bounds, default and description."""
    datasets: dict[str, Any] = {
        name: (
            kind := _dataset_model(name),
            Field(default=kind(), description=f"Source of {info.title}: {info.real}."),
        )
        for name, info in DATASETS.items()
    }
    experiments: dict[str, Any] = {}
    for name, kind in all_parameters().items():
        about = (kind.__doc__ or "").strip().partition("\n")[0]
        experiments[name] = (kind, Field(default_factory=kind, description=about))
    parts = {
        "datasets": (datasets, "Where each dataset comes from; see the README's section on data."),
        "experiments": (
            experiments,
            "Parameters of each experiment; the defaults are the papers' settings.",
        ),
    }
    fields: dict[str, Any] = {}
    for part, (keys, about) in parts.items():
        model = create_model(part.title(), __base__=Section, **keys)
        fields[part] = (model, Field(default=model(), description=about))
    other = "Name of the result that the target `compare` sets beside this one."
    fields["with"] = (Name, Field(default=None, description=other))
    return create_model("Configuration", __base__=Config, **fields)


_SOURCES = {
    "image": "embedded: a stand-in that needs no file and no network. torchvision: the published "
    "files, fetched with checksums where they are missing. imagefolder: a folder with train/ and "
    "test/, each with one folder per class. npz: a .npz or .npz.xz file with x_train, y_train, "
    "x_test, y_test; images uint8 (n, height, width[, channels]), labels integers from 0.",
    "text": "embedded: a stand-in that needs no file and no network. download: the text itself, "
    "fetched with a checksum if it is missing. file: a UTF-8 text file.",
}


def _dataset_model(name: str) -> type[Section]:
    info = DATASETS[name]
    path = (
        "The file or folder that the source reads; for a download its folder, null for 'data'. "
        "Relative to the working directory."
    )
    fields: dict[str, Any] = {
        "source": (Literal[info.sources], Field("embedded", description=_SOURCES[info.kind])),
        "path": (Annotated[str | None, Field(min_length=1)], Field(None, description=path)),
    }
    return create_model(f"Dataset_{name}", __base__=Section, **fields)


def resolve_config(
    user: Mapping[str, Any],
    workflow_folder: Path,
    preset: str | None = None,
    files: Sequence[Path] = (),
    typed: Mapping[str, Any] | None = None,
    otherwise: str = "--config",
) -> Config:
    """The complete, valid configuration.

    Args:
        user: the user's settings: config.yaml, --configfile and --config, already merged, a dict.
        workflow_folder: the folder with `presets`, the parts of presets that belong to no paper.
        preset: a preset to use in place of the user's; the result then has the preset's name.
        files: the config files in the order they were merged, to name the one with a bad value.
        typed: the settings of --config, see `read_entries`; they override `user`.
        otherwise: what to name for a bad value that is in none of these.

    Raises:
        UserError: if a key is unknown or a value is not allowed.
    """
    model = config_model()
    typed = typed or {}
    cleaned = _without_empty_sections(merge(user, typed), model)
    set_by_files: dict[str, Any] = {}
    for file in files:  # as Snakemake merges them, an empty section drops an earlier file's
        set_by_files = merge(set_by_files, _without_empty_sections(read_mapping(file), model))
    if set_by_files.keys() <= user.keys():  # else they are those of another workflow
        cleaned = merge(set_by_files, cleaned)
    chosen = preset or cleaned.get("preset", model.model_fields["preset"].default)
    sizes, origin = {}, {}
    if chosen in PRESETS:  # else the check below reports the name
        sizes, origin = load_preset(workflow_folder, chosen)
    merged = {**merge(sizes, cleaned), "preset": chosen}
    if preset is not None:
        merged["name"] = None

    def source_of(path: Sequence[Any]) -> str:
        if _holds(typed, path):
            return "--config"
        if len(path) > 1 and path[1] in origin and not _holds(cleaned, path):
            return str(origin[path[1]])
        holding = (str(file) for file in reversed(files) if _holds(read_yaml(file), path))
        return next(holding, otherwise)

    refuse_what_figures_set(model, merged, source_of)
    # Merged onto the defaults: a section's default, such as a geometric schedule, may differ from
    # its class's, and the keys that are not given must keep it.
    defaults = model.model_validate({}).plain()
    config = check(model, merge(defaults, merged), source_of)
    small = (config.name or "").lower()  # some disks, such as macOS's, ignore case
    taken = small in PRESETS and config.name != config.preset
    if taken or small in RESERVED_NAMES:
        whose = f"what preset {small} makes" if taken else "other files"
        raise UserError(
            f"{source_of(['name'])}: name: {config.name} is the folder of {whose}; choose another."
        )
    return config


@dataclass(frozen=True)
class Change:
    """A key of the configuration whose value differs from the preset's."""

    key: str
    preset: Any
    here: Any

    def __str__(self) -> str:
        """The key and its value, such as `width = 8`."""
        here = self.here if isinstance(self.here, str) else json.dumps(self.here)
        return f"{self.key} = {shortened(here, quoted=False)}"


def changes(config: Config, preset: Config) -> Iterator[Change]:
    """The settings of experiments, datasets, threads and device that differ from the preset's."""
    here, own = config.plain(), preset.plain()
    compared = ("experiments", "datasets", "threads", "device")
    return _differences({key: here[key] for key in compared}, own)


def _differences(
    here: Mapping[str, Any], preset: Mapping[str, Any], prefix: str = ""
) -> Iterator[Change]:
    for key in here:
        mine, own = here[key], preset.get(key)
        if isinstance(mine, Mapping) and isinstance(own, Mapping) and mine.keys() == own.keys():
            yield from _differences(mine, own, f"{prefix}{key}.")
        elif mine != own:
            yield Change(f"{prefix}{key}", own, mine)


def load_preset(workflow_folder: Path, preset: str) -> tuple[dict[str, Any], dict[str, Path]]:
    """The settings of a preset, general and by experiment, and the file that sets each experiment.

    Raises:
        UserError: if a file cannot be read, is no preset's, or names an unknown experiment.
    """
    settings = read_mapping(workflow_folder / "presets" / f"{preset}.yaml")
    experiments: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    allowed = [f"{name}.yaml" for name in PRESETS]
    for file in (file for paper in papers() for file in paper_folder(paper).glob("presets/*.y*ml")):
        check_known(f"{file}: is no preset's", file.name, allowed)
    for file in paper_files(f"presets/{preset}.yaml"):
        paper = file.parents[1].name
        known = [name.partition("_")[2] for name in all_parameters() if paper_of(name) == paper]
        for name, section in read_mapping(file).items():
            check_known(f"{file}: {name}: unknown experiment", name, known)
            experiments[f"{paper}_{name}"], origin[f"{paper}_{name}"] = section, file
    return {**settings, "experiments": experiments}, origin


def _without_empty_sections(user: Any, model: Any) -> Any:
    """Drop sections whose every line is commented out: YAML reads them as null."""
    if not isinstance(user, dict) or model is None:
        return user
    kept = {}
    for key, value in user.items():
        kind = getattr(model.model_fields.get(key), "annotation", None)
        inner = kind if isinstance(kind, type) and issubclass(kind, Section) else None
        if value is not None or inner is None:
            kept[key] = _without_empty_sections(value, inner)
    return kept


def _holds(node: Any, path: Sequence[Any]) -> bool:
    return path_in(node, path) == list(path)


def describe_keys(section: type[Section] | None = None, prefix: str = "") -> Iterable[str]:
    """One line for each key of the configuration: its name, default and description."""
    section = section or config_model()
    for key in keys_of(section):
        field = section.model_fields[key]
        inner, about = field.annotation, description_of(section, key)
        if isinstance(inner, type) and issubclass(inner, Section):
            yield f"{prefix}{key}: {about}"
            yield from describe_keys(inner, f"{prefix}{key}.")
        else:
            default = field.get_default()
            shown = default.plain() if isinstance(default, Section) else default
            yield f"{prefix}{key} = {shown}: {about}"

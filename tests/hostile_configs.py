"""Configurations that nobody would write, for tests of what a user is told of them."""

import functools

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from snakemake.utils import update_config

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError
from feature_alignment.pipeline.config import PRESETS, config_model, resolve_config
from feature_alignment.pipeline.papers import add_papers, all_figures, papers
from feature_alignment.pipeline.parameters import Section
from feature_alignment.pipeline.plan import make_plan
from feature_alignment.pipeline.yaml_files import read_entries, read_yaml

LONGEST = 300

# fmt: off
ODD = (
    None, True, -1, 0, 1, 2, 9, 10**9, 10**18, 2**63, 10**30, -(10**400), 1.5, -0.0, 5e-324, 1e-9,
    1e308, float("nan"), float("inf"), float("-inf"), "", " ", "all", "auto", "1e-3", "nan", "yes",
    "\x00", "\x1b[31mred", "\x7f", "\u202e", "é" * 500, "a\nb", "a: b", "𝔛" * 200, "x" * 20_000,
    "../../etc/passwd", "/", "/dev/zero", "/proc/self/mem", "~", ".", "c.yaml", "by_hand", "logs",
    [], [[]], [None], [0], [-1], [1, 1], [1.5], [float("nan")], ["a"], ["a"] * 1000, [*range(500)],
    {}, {"a": 1}, {1: 2}, {None: None}, {"": {}}, {True: [1]}, {"first": 0}, {"ratio": 1}, b"\xff",
)
TOKENS = (
    "&a ", "*a", "*b", "<<: *a", "&a [*a]", "&a {b: *a}", "? ", ": ", "- ", "\t", "{", "}", "[",
    "]", "%", "@", "`", "|", ">", "'", '"', "#", "\n", "\r", "\x00", "\x85", "\u2028", "\ufeff",
    "---\n", "...\n", "!!int ''", "!!int x", "!!float x", "!!bool x", "!!binary x", "!!timestamp x",
    "!!set {a}", "!!map [a]", "!!omap [a: 1]", "!!python/object/apply:os.abort []", "!x",
    "2001-99-99", "2001-01-01", "0x" + "f" * 5000, "9" * 5000, "1:60:60", "[" * 900, "{a: " * 900,
    "[" * 60 + "]" * 60,    "? [a, b]\n: c\n", "'" * 3, "\\ud800", "name: x\n",
)
# fmt: on
LAUGHS = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
)


@functools.cache
def known_keys():
    """The path of every key, those of figures and sections included, with its default."""

    def below(section, path, values):
        for key in section.model_fields:
            yield (*path, key), values.get(key)
            inner = section.model_fields[key].annotation
            if isinstance(inner, type) and issubclass(inner, Section):
                yield from below(inner, (*path, key), values[key])
            elif isinstance(values.get(key), dict):
                yield from (((*path, key, name), value) for name, value in values[key].items())

    model = config_model()
    return tuple(below(model, (), model.model_validate({}).plain()))


@functools.cache
def known_names():
    """What a user may mean by a text."""
    sources = {source for info in DATASETS.values() for source in info.sources}
    return (*PRESETS, *papers(), *all_figures()[:20], *DATASETS, *sources)


@functools.cache
def misspelt(name):
    places = st.integers(0, len(name))
    change = st.sampled_from(["", "x", "_", "é", "-", " ", "\x00", name])
    return st.builds(lambda at, new: name[:at] + new + name[at + 1 :], places, change)


@functools.cache
def general_keys():
    return tuple(pair for pair in known_keys() if pair[0][0] != "experiments")


@functools.cache
def keys():
    """Pairs as of `known_keys`; half of them, and more, are of general keys."""
    general = general_keys()
    # By their places: making a choice among them hashes all defaults.
    places = st.integers(0, len(general) - 1).map(general.__getitem__)
    return places | st.integers(0, len(known_keys()) - 1).map(known_keys().__getitem__)


@functools.cache
def values():
    plain = st.one_of(
        st.sampled_from(ODD),
        st.deferred(lambda: st.sampled_from(known_names())),
        st.deferred(lambda: st.sampled_from(known_names()).flatmap(misspelt)),
        st.integers(),
        st.floats(),
        st.text(max_size=80),
        st.dates(),
    )
    keys = st.one_of(st.text(max_size=8), st.integers(), st.none(), st.booleans())
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=8,
    )


def near(value):
    """Values of the same type, most of which are as good."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int | float):
        return FACTORS.map(lambda factor: type(value)(value * factor))
    if isinstance(value, list) and value:
        one = st.sampled_from(value).flatmap(near)
        return st.lists(st.sampled_from(value) | one, max_size=4, unique_by=str)
    return st.just(value) | NAMES


FACTORS = st.sampled_from([0.001, 0.5, 2, 3, 10, 1000, 10**6, -1])
NAMES = st.deferred(lambda: st.sampled_from(known_names()))


@st.composite
def configurations(draw):
    """Some keys that exist, or nearly, with any values; as YAML."""
    user = {"preset": draw(st.sampled_from(PRESETS))} if draw(st.booleans()) else {}
    for _ in range(draw(st.integers(1, 3))):
        path, default = draw(keys())
        *above, key = path
        if draw(st.integers(0, 15)) == 0:
            key = draw(misspelt(key))
        place = user
        for name in above:
            place = place.setdefault(name, {}) if isinstance(place.get(name, {}), dict) else {}
        place[key] = draw(values() if draw(st.integers(0, 2)) == 0 else near(default))
    return yaml.safe_dump(user, allow_unicode=draw(st.booleans()), default_flow_style=None)


@st.composite
def broken(draw):
    """YAML with tokens put in, and pieces taken out or repeated."""
    text = draw(configurations() | st.just(LAUGHS) | st.just("preset: quick\nthreads: 1\n"))
    for _ in range(draw(st.integers(1, 3))):
        at, to = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        token = draw(st.sampled_from(TOKENS))
        text = draw(
            st.sampled_from(
                [text[:at] + token + text[at:], text[:at] + text[to:], text[:to] + text[at:]]
            )
        )
    return text


def told(function):
    """What a user is told when this is called; nothing if all is well."""
    try:
        function()
    except UserError as error:
        return str(error)
    return None


def must_be_short(said):
    assert len(said) <= LONGEST, (len(said), said)
    assert said.isprintable(), said
    assert said.endswith((".", "?")), said


def planned(files, folder, typed=()):
    """Do with config files what Snakemake and the Snakefile do."""
    typed = read_entries(typed)
    found = [read_yaml(file) for file in files]
    if all(isinstance(user, dict) for user in found):  # else Snakemake says so
        user = {}
        for one in found:
            update_config(user, one)
        add_papers({**user, **typed}.get("papers_path"))
        config = resolve_config(user, folder, files=files, typed=typed)
        make_plan(config, alone(folder, config.preset))


@functools.cache
def alone(folder, preset):
    """A preset's own configuration."""
    return resolve_config({}, folder, preset)


SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)

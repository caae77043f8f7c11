"""Whatever is wrong with a paper's folder is told when runs are planned, in one sentence."""

import os
import re
import shutil
import sys

import pytest

from feature_alignment import papers as package
from feature_alignment.__main__ import main
from feature_alignment.errors import UserError
from feature_alignment.pipeline import config, papers
from feature_alignment.pipeline.claims.ledger import check_ledgers
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.imports import _internal_imports, _module_file, import_closure
from feature_alignment.pipeline.plan import make_plan

KEY = "copy2031"
CACHES = (
    papers.papers,
    papers._folders,
    papers.all_parameters,
    papers._parameters_of,
    papers.all_figures,
    papers._figures_of,
    config.config_model,
    _module_file,
    _internal_imports,
)


def forget():
    for cached in CACHES:
        cached.cache_clear()
    for name in [name for name in sys.modules if name.startswith(f"{package.__name__}.{KEY}")]:
        del sys.modules[name]


@pytest.fixture
def folder(root, tmp_path, monkeypatch):
    """A copy of the made-up paper under another key, the only paper there is."""
    home = tmp_path / KEY
    made_up = root / "tests/example_paper/example2030"
    shutil.copytree(made_up, home, ignore=shutil.ignore_patterns("__pycache__"))
    for file in home.rglob("*.*"):
        if file.is_file():
            file.write_text(file.read_text().replace("example2030", KEY))
    monkeypatch.setattr(package, "__path__", [str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield home
    forget()


def plan(root):
    return make_plan(resolve_config({}, root / "workflow", preset="smoke"))


PARAMETERS, PAPER = "parameters.py", "paper.py"
FIGURES, LEDGER = "figures/shares_and_losses.py", "claims.yaml"
COIN = "experiments/coin.py"
BUT = "settings[Coin].but(probability=probability)"
POINTS = rf"copy2031_fig1: points of .*\.{KEY}\.figures\.shares_and_losses"
FIRST = f"claim {KEY}.fig1.fair_share: "
MISTAKES = {
    "misspelt parameter": (
        FIGURES,
        (BUT, "settings[Coin].but(probabilty=probability)"),
        f"{POINTS}: {KEY}_coin: probabilty: unknown key; did you mean 'probability'",
    ),
    "parameter of a wrong type": (
        FIGURES,
        (BUT, "settings[Coin].but(throws='8')"),
        rf"{POINTS}: {KEY}_coin: throws: found '8' \(text\), a value of type integer",
    ),
    "parameters made anew": (
        FIGURES,
        (BUT, "Coin(probability=2)"),
        rf"{POINTS} failed \(.*shares_and_losses\.py:15: ValidationError: Coin: probability: Input",
    ),
    "class without an experiment": (
        FIGURES,
        ("settings[Coin]", "settings[Figure]"),
        rf"{POINTS}: settings\[Figure\]: .*allowed: Coin, Descent",
    ),
    "path of a point": (
        FIGURES,
        ("Point(name,", 'Point(f"p={probability}",'),
        f"{POINTS}: point 'p=0.5': name: only letters",
    ),
    "point out of its folder": (FIGURES, ("Point(name,", 'Point("..",'), "point '..': name"),
    "twin points": (FIGURES, ("Point(name,", 'Point("a",'), f"{POINTS}: two points .* 'a'"),
    "contradiction": (
        FIGURES,
        (
            'points=lambda settings: [Point("default", settings[Descent])]',
            'points=lambda settings: [Point("fair", settings[Coin].but(throws=7))]',
        ),
        f"{KEY}_fig2: points of .*: {KEY}_coin/fair has another throws than",
    ),
    "column that is taken": (
        FIGURES,
        ('{"probability": probability}', '{"seed": probability}'),
        f"{POINTS}: point 'fair': columns: every table has a column 'seed'",
    ),
    "column of no plain value": (
        FIGURES,
        ('{"probability": probability}', '{"probability": [probability]}'),
        f"{POINTS}: point 'fair': columns: found {{'probability'",
    ),
    "no parameters": (FIGURES, (BUT, "3"), f"{POINTS}: point 'fair': parameters: found 3"),
    "figures that are none": (
        FIGURES,
        ("FIGURES = (", "FIGURE = None\nFIGURES = ("),
        r"shares_and_losses\.py: FIGURE: found .*, a Figure is needed",
    ),
    "no points": (
        FIGURES,
        ("points=coins", "points=lambda settings: 3"),
        f"{POINTS} returned .*int",
    ),
    "points that fail": (
        FIGURES,
        ("points=coins", "points=lambda settings: {}['x']"),
        rf"{POINTS} failed \(.*shares_and_losses\.py:\d+: KeyError: x\); it takes the settings",
    ),
    "experiment of nowhere": (
        FIGURES,
        (BUT, 'type("Dice", (Coin,), {}, experiment="dice")()'),
        f"{POINTS}: point 'fair': Dice is no experiment's class",
    ),
    "unknown dataset": (
        PARAMETERS,
        ("    samples: Count", '    dataset: str = "mnits"\n    samples: Count'),
        f"{KEY}_descent/default: dataset: unknown dataset 'mnits'; did you mean 'mnist'",
    ),
    "one figure and no tuple": (
        FIGURES,
        ("FIGURES = (", "FIGURES = 3\n_ = ("),
        r"losses\.py: FIGURES: found 3 \(integer\), a tuple of Figures",
    ),
    "unknown argument": (
        FIGURES,
        ('title="The share', 'titel="The share'),
        r"shares_and_losses\.py:\d+: TypeError: .*'titel'",
    ),
    "empty title": (
        FIGURES,
        ("The share of heads is near their probability", " "),
        r"shares_and_losses\.py:\d+: Figure 'fig1': title: found ' '",
    ),
    "caption that is no text": (
        FIGURES,
        ('caption="Mean', 'caption=3 * ["x"] or "Mean'),
        r"Figure 'fig2': caption: found .* \(list\), a text",
    ),
    "name of a figure": (
        FIGURES,
        ('name="fig1"', 'name="Fig. 1"'),
        "Figure 'Fig. 1': name: found 'Fig. 1' .*, write",
    ),
    "no function": (FIGURES, ("draw=draw_shares", "draw=None"), "'fig1': draw: found nothing"),
    "function of two arguments": (
        FIGURES,
        ("draw=draw_shares", "draw=lambda table, more: table"),
        "'fig1': draw: found .* a function of one argument",
    ),
    "figures of one name": (
        FIGURES,
        ('name="fig2"', 'name="fig1"'),
        f"{KEY}_fig1 stands in .* and again in",
    ),
    "syntax of a figure": (
        FIGURES,
        ("PROBABILITIES = {", "PROBABILITIES = = {"),
        r"shares_and_losses\.py:9: SyntaxError: invalid syntax",
    ),
    "import that fails": (
        FIGURES,
        ("import draw_curve, ", "import draw_curv, "),
        r"shares_and_losses\.py:4: ImportError: cannot import name 'draw_curv'",
    ),
    "paper without PAPER": (PAPER, ("PAPER =", "PAPERS ="), r"paper\.py: PAPER: found nothing"),
    "default out of bounds": (
        PARAMETERS,
        ("by_figure(0.5", "by_figure(1.5"),
        r"parameters\.py: class Coin: probability: found 1.5, at most 1",
    ),
    "default of a wrong type": (
        PARAMETERS,
        ("Count = 100", 'Count = "many"'),
        r"parameters\.py: class Descent: steps: found 'many' \(text\)",
    ),
    "no default": (PARAMETERS, ("Count = 100", "Count"), "class Descent: steps: missing"),
    "experiment without a module": (
        PARAMETERS,
        ('experiment="coin"', 'experiment="coins"'),
        r"class Coin: experiment: there is no module .*coins\.py; did you mean 'coin'",
    ),
    "experiment twice": (
        PARAMETERS,
        ('experiment="descent"', 'experiment="coin"'),
        "class Descent: experiment: it is that of Coin",
    ),
    "syntax of an experiment": (
        COIN,
        ("heads =", "heads = ="),
        r"experiments/coin\.py:\d+: SyntaxError: invalid syntax",
    ),
    "a relative import": (
        COIN,
        (f"from feature_alignment.papers.{KEY}.parameters", "from ..parameters"),
        r"experiments/coin\.py:\d+: a relative import; write the module's full name",
    ),
    "no run_seed": (COIN, ("def run_seed", "def run_sed"), r"coin\.py: run_seed: missing"),
    "another run_seed": (COIN, ("def run_seed", "def run_seeds"), r"coin\.py: run_seed: missing"),
    "figure of a claim": (
        LEDGER,
        (f"figure: {KEY}_fig2", f"figure: {KEY}_fig3"),
        rf"claims\.yaml: claim {KEY}\.fig2\.loss_falls: figure: unknown figure .*did you mean",
    ),
    "metric of a claim": (
        LEDGER,
        ("metric: heads_share", "metric: head_share"),
        FIRST + r"select\.metric: 'head_share' is not described; did you mean 'heads_share'\?",
    ),
    "paper of a claim": (
        LEDGER,
        ("    place: Figure 2", "    paper: copy\n    place: Figure 2"),
        r"claims\.yaml: .*paper: found 'copy'",
    ),
    "criterion without its number": (
        LEDGER,
        ("{comparator: near}", "{comparator: above, why: x}"),
        FIRST + r"criterion\.low: missing",
    ),
    "preset that is a list": (
        "presets/smoke.yaml",
        ("coin:\n  throws: 200\ndescent:\n  steps: 20", "- coin"),
        r"presets/smoke\.yaml: holds \['coin'\] \(list\) where a mapping of keys is needed",
    ),
    "preset of no experiment": (
        "presets/smoke.yaml",
        ("coin:", "coins:"),
        r"presets/smoke\.yaml: coins: unknown experiment; did you mean 'coin'\? Allowed: coin, des",
    ),
    "claim twice": (LEDGER, ("fig1.bent_share", "fig1.fair_share"), FIRST + "id: used twice"),
    "broken ledger": (LEDGER, ("claims:", "claims: ["), r"claims\.yaml: is not valid YAML"),
    "key that is a list": (LEDGER, ("    place: Figure 2", "    [a]: b"), "is not valid YAML"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_paper_is_told_when_runs_are_planned(name, root, folder):
    file, (right, wrong), says = MISTAKES[name]
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong, 1))
    with pytest.raises(UserError, match=says) as caught:
        plan(root)
    assert re.fullmatch(r"[^\n]+\.", str(caught.value))


@pytest.mark.parametrize(
    ("name", "other", "says"),
    [
        ("presets/smoke.yaml", "presets/smok.yaml", "is no preset's; did you mean 'smoke.yaml'"),
        ("presets/quick.yaml", "presets/quick.yml", "is no preset's; did you mean 'quick.yaml'"),
        ("metrics.yaml", "metric.yaml", "is not used; did you mean 'metrics.yaml'"),
    ],
)
def test_a_file_that_nothing_would_read_is_refused(root, folder, name, other, says):
    (folder / name).rename(folder / other)
    with pytest.raises(UserError, match=f"{other}: {says}"):
        plan(root)


def test_a_copy_does_not_use_the_original_unseen(root, folder):
    file = folder / COIN
    own = f"feature_alignment.papers.{KEY}"
    file.write_text(file.read_text().replace(own, "feature_alignment.papers.example2030"))
    with pytest.raises(
        UserError, match=rf"coin\.py: imports .*2030.*another paper; use a .* {KEY}\."
    ):
        import_closure(f"{own}.experiments.coin")


def test_a_module_that_there_is_not_is_told_before_anything_runs(root, folder):
    file = folder / COIN
    own = f"feature_alignment.papers.{KEY}"
    file.write_text(file.read_text().replace(f"{own}.parameters", f"{own}.tools.parametres"))
    says = rf"coin\.py: imports {own}\.tools\.\S*, but there is no module {own}\.tools\.$"
    with pytest.raises(UserError, match=says):
        import_closure(f"{own}.experiments.coin")
    (folder / "tools").mkdir()
    with pytest.raises(UserError, match=r"there is no module \S*parametres\.$"):
        import_closure(f"{own}.experiments.coin")


def test_the_copy_without_a_mistake_is_planned(root, folder):
    assert plan(root).figures == (f"{KEY}_fig1", f"{KEY}_fig2")


def test_figures_are_found_by_any_name(root, folder):
    file = folder / FIGURES
    text = file.read_text()
    file.write_text(text.replace("FIGURES = (", "TWINS = (") + "\nFIGURE = TWINS[0]\n")
    assert plan(root).figures == (f"{KEY}_fig1", f"{KEY}_fig2")


@pytest.mark.parametrize("key", ["my_paper", "paper31", "Paper2031"])
def test_a_folder_that_is_no_papers_key_is_refused(root, folder, key):
    folder.rename(folder.with_name(key))
    with pytest.raises(UserError, match=rf"{key}: name a paper's folder by lower-case letters and"):
        plan(root)


def test_a_key_can_be_letters_only(root, folder, monkeypatch):
    home = folder.rename(folder.with_name("copy"))
    for file in home.rglob("*.*"):
        if file.is_file():
            file.write_text(file.read_text().replace(KEY, "copy"))
    assert plan(root).figures == ("copy_fig1", "copy_fig2")
    check_ledgers(papers.ledgers(), papers.all_figures())


CONTRACTS = {
    "draw that fails": (
        FIGURES,
        ('    ax.set(ylabel="share of heads"', '    int("x")\n    ax.set(ylabel="share of heads"'),
        r"draw of .* failed \(.*losses\.py:\d+: ValueError: invalid literal .*\); it takes a Fig",
        r"Traceback .*\n  File .*losses\.py.*\n    int\(\"x\"\)\n(.*\n)?ValueError: invalid",
    ),
    "draw that returns nothing": (
        FIGURES,
        ("draw=draw_shares", "draw=lambda table: None"),
        "draw of .* returned a NoneType; .* matplotlib Figure",
        "",
    ),
    "table that is a frame": (
        FIGURES,
        ("FigureTable(runs.metrics)", "runs.metrics"),
        "table of .* returned a DataFrame; .* FigureTable",
        "",
    ),
    "table without a column": (
        FIGURES,
        ("runs.metrics)", "runs.metrics.drop(columns='value'))"),
        "table of .* returned a frame without value; .* the columns seed, metric and value",
        "",
    ),
    "value that a logarithm cannot have": (
        FIGURES,
        (
            "    draw_points(",
            '    ax.set(yscale="log")\n    table.frame["value"] = -1\n    draw_points(',
        ),
        "points by probability: metric heads_share is -1 at seed 0",
        "",
    ),
    "table of no run's rows": (
        FIGURES,
        ("FigureTable(runs.metrics)", "FigureTable(FigureTable(runs.metrics).rows(metric='x'))"),
        r"table of .* failed \(.*py:\d+: KeyError: the table has no rows where {'metric': 'x'}; m",
        "Traceback",
    ),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_function_that_fails_by_hand_is_told_in_one_sentence(
    name, root, folder, monkeypatch, capfd
):
    file, (right, wrong), says, trace = CONTRACTS[name]
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong, 1))
    (folder.parent / "workflow").symlink_to(root / "workflow")
    monkeypatch.chdir(folder.parent)
    with pytest.raises(SystemExit, match=f"^{KEY}_fig1: {says}") as caught:
        main(["figure", f"{KEY}/fig1", "--preset", "smoke"])
    assert "\n" not in str(caught.value)
    shown = capfd.readouterr().err
    assert re.match(trace, shown)
    assert shown.count("Traceback") == bool(trace)
    assert len(shown.splitlines()) < 20


def test_an_experiment_runs_before_a_figure_shows_it(root, folder, monkeypatch, capsys):
    for name in ("figures", "claims.yaml", "multiverse.yaml"):
        (folder / name).rename(folder / f"{name}.later")
    (folder / "figures").mkdir()
    (folder / "figures" / "__init__.py").touch()
    (folder.parent / "workflow").symlink_to(root / "workflow")
    monkeypatch.chdir(folder.parent)
    main(["run", f"{KEY}/coin", "--preset", "smoke"])
    made = capsys.readouterr().out.strip()
    assert made == f"results/by_hand/smoke/runs/{KEY}_coin/default/metrics.csv"
    assert (folder.parent / made).exists()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere", r"papers_path: nowhere .*/here.*/nowhere\) is not a folder; docs"),
        (3, "papers_path: 3 .* is not a folder"),
        ("empty", "papers_path: empty .* contains no paper, no <key>/paper.py"),
        (".", f"papers_path: .*{KEY}: there is a paper {KEY} already, .*; rename"),
    ],
)
def test_a_folder_of_papers_that_cannot_be_used_is_told(
    folder, tmp_path_factory, monkeypatch, path, says
):
    here = tmp_path_factory.mktemp("here")
    shutil.copytree(folder, here / KEY)
    (here / "empty").mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(UserError, match=says):
        papers.add_papers(path)
    assert list(package.__path__) == [str(folder.parent)]


def test_papers_of_another_folder_are_found_and_hashed(folder, root, tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    folder.rename(outside / KEY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEATURE_ALIGNMENT_PAPERS", "")
    for _ in range(2):  # once by the workflow, once by each job that reads the Snakefile again
        papers.add_papers("outside")
    assert list(package.__path__) == [str(tmp_path), str(outside)]
    assert os.environ["FEATURE_ALIGNMENT_PAPERS"] == str(outside)
    experiment = papers.experiment_module(f"{KEY}_coin")
    assert plan(root).figures == (f"{KEY}_fig1", f"{KEY}_fig2")
    assert outside / KEY / "experiments" / "coin.py" == import_closure(experiment)[experiment]

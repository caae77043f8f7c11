"""What a user types: presets, selections, named targets, and mistakes."""

import argparse
import contextlib
import errno
import fcntl
import getpass
import os
import pty
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from feature_alignment.pipeline import command_line, imports
from feature_alignment.pipeline.papers import all_figures, paper_of, papers

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

MALFORMED = yaml.safe_load(
    (Path(__file__).parents[1] / "pipeline" / "malformed_configs.yaml").read_text()
)
ONE_OF_EACH_KIND = (
    "unknown top-level key",
    "unknown paper",
    "unknown figure",
    "1e-3, which YAML reads as text",
    "a key that figures set",
    "a very long value",
    "source without its path",
    "path that is not there",
)
"""By what finds the mistake; tests/pipeline/test_config.py has all that the file names."""


OUTER = """
module fa:
    snakefile: "{folder}/Snakefile"
    config: {{"preset": "smoke"}}

use rule * from fa as fa_*

rule mine:
    default_target: True
    input: rules.fa_all.input
    output: "mine.txt"
    shell: "touch {{output}}"
"""


def number_of_figures(*chosen):
    """How many figures there are, in all or of some papers."""
    return sum(1 for figure in all_figures() if not chosen or paper_of(figure) in chosen)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory, pipeline_class):
    """A copy of the pipeline for dry runs, which change nothing."""
    return pipeline_class(tmp_path_factory.mktemp("dry") / "pipeline")


def test_another_workflow_has_it_as_a_module(fresh, tmp_path):
    (tmp_path / "Snakefile").write_text(OUTER.format(folder=fresh.folder))
    typed = ("-n", "--cores", "1", "mine", "--config", "a_key_of_its_own=3")
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *typed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^fa_figure +{number_of_figures()}$", done.stdout, re.MULTILINE)
    assert re.search(r"^mine +1$", done.stdout, re.MULTILINE)


def test_a_mistake_in_a_modules_config_is_called_so(fresh, tmp_path):
    outer = OUTER.format(folder=fresh.folder).replace('"preset"', '"presett"')
    (tmp_path / "Snakefile").write_text(outer)
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "mine"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "\nError: the module's config: presett: unknown key" in f"\n{done.stderr}"


@pytest.mark.parametrize("case", ONE_OF_EACH_KIND)
def test_a_malformed_config_stops_with_one_sentence(fresh, tmp_path, case):
    config = tmp_path / "mine.yaml"
    config.write_text(MALFORMED[case]["config"])
    done = fresh.run("-n", "--configfile", str(config))
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in printed
    sentences = [line for line in printed.splitlines() if re.search(MALFORMED[case]["says"], line)]
    assert len(sentences) == 1, printed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("preset: [quick", r"^\S*mine.yaml: is not valid YAML \(.*line 1, column 9"),
        ("- preset", r"^\S*mine.yaml: holds \['preset'\] \(list\) where a mapping of keys is"),
        ("", r"^\S*mine.yaml: holds no keys"),
        ("preset: {", r"^\S*mine.yaml: is not valid YAML \(.*line 2, column 1"),
    ],
)
def test_a_config_that_is_no_yaml_mapping_stops_without_a_traceback(fresh, tmp_path, text, says):
    config = tmp_path / "mine.yaml"
    config.write_text(text)
    done = fresh.run("-n", "--configfile", str(config))
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in printed
    assert re.search(says, printed, re.MULTILINE), printed


def test_the_config_of_another_folder_is_read_as_strictly(fresh, tmp_path):
    (tmp_path / "config.yaml").write_text("preset: smoke\npreset: quick\n")
    done = fresh.run("-n", "-d", str(tmp_path))
    assert done.returncode != 0
    says = f"{tmp_path}/config.yaml: is not valid YAML (the key 'preset' is given twice"
    assert says in done.stdout + done.stderr


@pytest.mark.parametrize("preset", ["smoke", "quick", "laptop", "workstation", "paper"])
def test_every_preset_plans_every_figure(fresh, preset):
    assert fresh.planned("--config", f"preset={preset}")["figure"] == number_of_figures()


def test_a_presets_result_that_is_asked_for_by_its_path_is_locked(fresh):
    folder = fresh.folder / "results" / "smoke"
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = fresh.run("--cores", "1", "--", "results/smoke/runs/example2030_coin/fair/spec.json")
    assert done.returncode != 0
    assert "results/smoke: is being made by another Snakemake" in done.stdout + done.stderr
    assert not (fresh.folder / "results" / "quick" / ".lock").exists()


def test_every_paper_is_a_target(fresh):
    for paper in papers():
        planned = fresh.planned(paper)
        assert planned["figure"] == number_of_figures(paper) > 0
        assert planned[paper] == 1
        assert "claims" not in planned


def test_it_looks_for_the_next_job_when_one_ends_and_not_each_second(pipeline):
    said = pipeline.succeed("figures/smoke/example2030_fig1.pdf", "--cores", "1", "--verbose")
    jobs = 3  # two runs and the figure
    assert said.count("Selected jobs:") == jobs


def test_a_figure_of_any_preset_is_a_target(fresh):
    planned = fresh.planned("figures/paper/example2030_fig1.pdf")
    assert planned == {"run": 2, "figure": 1}


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        ("papers=example2030", ["example2030"]),
        (f"papers=[example2030,{min(papers())}]", ["example2030", min(papers())]),
    ],
)
def test_a_selection_makes_a_part(fresh, selection, chosen):
    planned = fresh.planned("--config", selection)
    assert planned["figure"] == number_of_figures(*chosen)
    assert planned["selected_claims"] == planned["selected_report"] == 1


def test_figures_of_several_papers_can_be_chosen(fresh):
    planned = fresh.planned("--config", f"figures=example2030_fig2,{all_figures()[0]}")
    assert planned["figure"] == 2


def test_any_key_can_be_overridden_by_a_configfile(fresh, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("datasets: {mnist: {source: torchvision}}\n")
    text = fresh.succeed("-n", "--quiet", "host", "--configfile", str(config))
    assert "results/data/mnist.torchvision.npz" in text or "mnist (torchvision)" in text


def test_numbers_inside_of_config_are_numbers_and_texts_texts(fresh):
    def planned(throws):
        setting = f"experiments={{example2030_coin: {{throws: {throws}}}}}"
        return fresh.run("-n", "--config", setting, "preset=smoke", "papers=example2030")

    assert planned(3).returncode == 0
    done = planned("'3'")
    assert (
        "--config: experiments.example2030_coin.throws: found '3' (text)"
        in done.stdout + done.stderr
    )


def test_a_bad_value_is_blamed_on_what_set_it_last(fresh, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("device: tpu\n")  # config.yaml sets it, too
    done = fresh.run("-n", "--configfile", str(config), "--config", "device=gpu")
    assert "\nError: --config: device: found 'gpu'" in done.stdout + done.stderr
    done = fresh.run("-n", "--configfile", str(config))
    assert f"\nError: {config}: device: found 'tpu'" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (
            "--configfile config.yaml example2030",
            "example2030: is taken for a config file.* put `--`",
        ),
        (
            "--configfile config.yaml figures/quick/x.pdf",
            "figures/quick/x.pdf: is taken for a config file.* put `--`",
        ),
        ("--configfile conf.yaml", "conf.yaml: there is no such config file"),
        ("--config preset=smoke example2030", "example2030: is taken for a setting.* put `--`"),
        ("--forcerun figure example2030", "example2030: is taken for a rule.* write it first"),
        ("-R example2030_fig1 --cores 1", "example2030_fig1: is taken for a rule to run again"),
        ("--config preset=smoke --config name=a", "--config: is given more than once, of which"),
        ("--configfile a.yaml --configfile=b.yaml", "--configfile: is given more than once"),
        ("--config preset=smoke preset=quick", "--config: preset: is given twice"),
        ("--cores 0", "--cores: found 0; at least 1 is needed, or all"),
        ("--cores=-1", "--cores: found -1; at least 1 is needed, or all"),
        ("-j 0", "--jobs: found 0; at least 1 is needed, or unlimited"),
        ("-d Snakefile", "-d Snakefile: Snakefile is no folder; name one, or what does not exist"),
        ("-d Snakefile/x", "-d Snakefile/x: Snakefile is no folder"),
        (
            "--workflow-profile slrum",
            "--workflow-profile: there is no profile 'slrum'; did you mean 'slurm'",
        ),
        ("--config figures=example2030", "unknown figure 'example2030'; it is a paper: papers=exa"),
        ("--config example2030.coin=3", r"^example2030.coin=3: --config takes keys of the first"),
        ("example2031", "example2031: nothing makes this target; did you mean 'example2030'"),
        ("--config preset=smoke -- example2030_fig3", "_fig3: nothing makes.* 'example2030_fig2'"),
        ("run", "run: nothing makes this target; targets are .*all, .*and files such as figures/"),
        ("figures", "figures: nothing makes this target"),
        ("config.yaml", "config.yaml: nothing makes this target"),
        (
            "figures/smoke/example2030_fig99.pdf",
            "fig99.pdf: nothing makes .* 'figures/smoke/example2030_fig2.pdf'",
        ),
        (
            "results/quick/runs/example2030_coin/fare/metrics.csv",
            "nothing makes .* 'results/quick/runs/example2030_coin/fair/metrics.csv'",
        ),
        ("results/quick/data/mnist.torch.npz", "nothing makes .*mnist.torchvision.npz'"),
        (
            "--config name=wide -- figures/quick/example2030_fig1.pdf",
            "nothing makes .* 'figures/wide/example2030_fig1.pdf'",
        ),
        ("--config name=v1.0 -- results/v1_0/claims.csv", "nothing makes .* 'results/v1.0/claims"),
        (
            "results/quick/multiverse/example2030_decent/0.zip",
            "multiverse: unknown group .*; did you mean 'example2030_descent'",
        ),
        (
            "results/quick/multiverse/example2030_descent/99.zip",
            "multiverse: example2030_descent has no block 99; its last is [0-9]",
        ),
    ],
)
def test_a_mistake_in_what_is_asked_for_is_one_sentence(fresh, typed, says):
    (fresh.folder / "figures/quick").mkdir(parents=True, exist_ok=True)
    (fresh.folder / "figures/quick/x.pdf").write_bytes(bytes(range(256)))
    done = fresh.run("-n", *typed.split())
    printed = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Traceback" not in printed
    assert "Exception" not in printed
    assert "WorkflowError" not in printed
    assert len([line for line in printed.splitlines() if re.search(says, line)]) == 1, printed


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"preset": "smoke",', "mine.json: is not"),
        ('["a"]', "mine.json: "),
        ("", "mine.json: holds no keys"),
        ('{"preset": "smoke", "preset": "quick"}', "mine.json: .*preset.* twice"),
    ],
)
def test_a_json_file_that_is_none_is_named(fresh, tmp_path, content, says):
    file = tmp_path / "mine.json"
    file.write_text(content)
    done = fresh.run("-n", "--configfile", str(file))
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if str(file) in line]
    assert re.search(says, line), line
    file.write_text('{\t"preset": "smoke"\n}')
    assert fresh.run("-n", "--configfile", str(file)).returncode == 0


@pytest.mark.parametrize("place", ["figures/odd", "results/odd", "results/odd/runs", "results"])
def test_a_file_in_the_place_of_a_folder_is_told_before_anything_is_planned(fresh, tmp_path, place):
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    done = fresh.run("-n", "-d", str(tmp_path), "--config", "preset=smoke", "name=odd")
    assert done.returncode == 1
    assert f"Error: {place}: is no folder; remove it, or make it a folder." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_config_file_that_is_a_broken_link_is_not_left_out(fresh, tmp_path):
    (tmp_path / "config.yaml").symlink_to("nowhere")
    done = fresh.run("-n", "-d", str(tmp_path))
    assert done.returncode == 1
    assert "config.yaml: is a link that leads nowhere" in done.stderr


@pytest.mark.parametrize("words", ["-s {}", "-s{}", "--snakefile {}", "--snakefile={}"])
def test_mistakes_are_told_in_another_folder_too(fresh, tmp_path, words):
    typed = [*words.format(fresh.folder / "Snakefile").split(), "-n", "--config", "preset=smoke"]
    command, environment = fresh.command(*typed, "--config", "name=a"), fresh.environment()
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "\n--config: is given more than once" in done.stderr


def test_where_nothing_can_be_submitted_it_does_not_wait_for_ever(fresh, tmp_path):
    for name in ("bash", "sh", "which"):  # a machine without Slurm
        (tmp_path / name).symlink_to(shutil.which(name))
    environment = fresh.environment() | {"PATH": str(tmp_path)}
    command = fresh.command("--workflow-profile", "slurm", "--config", "preset=smoke")
    options = {"cwd": fresh.folder, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **options, check=False, timeout=600)
    assert done.returncode == 1
    assert "--workflow-profile slurm: sbatch is not found; give the command on" in done.stderr
    fails = "echo no slurm.conf >&2; exit 1"
    for name, does in (("sbatch", "exit 0"), ("squeue", fails), ("sinfo", fails)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(command, **options, check=False, timeout=600)
    assert done.returncode == 1
    assert "slurm: the cluster does not answer sinfo (no slurm.conf); give" in done.stderr


def test_a_folder_without_room_is_told_with_the_way_out(tmp_path, monkeypatch):
    cramped = runpy.run_path(str(ROOT / "workflow" / "command_line.py"))["cramped"]
    assert list(cramped(tmp_path)) == []

    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    monkeypatch.setattr("os.access", lambda *_: False)
    working, temporary, caches = cramped(tmp_path)
    assert working == f"{tmp_path}: is not writable; work elsewhere, by -d <folder>."
    assert working in cramped(tmp_path / "new" / "below")
    cure = "no file can be written there (No space left on device); make room, or name another"
    assert cure in temporary
    assert temporary.endswith("folder by TMPDIR.")
    assert caches.endswith("folder by XDG_CACHE_HOME.")


def test_caches_without_a_home_go_to_the_folder_of_the_results(tmp_path, monkeypatch):
    find_room = runpy.run_path(str(ROOT / "workflow" / "command_line.py"))["find_room_for_caches"]
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setattr("os.access", lambda *_: False)
    find_room(tmp_path / "there")
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path / "there/.snakemake/home/.cache")


def test_a_user_whom_the_system_does_not_know_gets_a_name(monkeypatch):
    find_name = runpy.run_path(str(ROOT / "workflow" / "command_line.py"))["find_name"]
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")
    with pytest.raises(KeyError):
        getpass.getuser()
    find_name()
    assert getpass.getuser() == str(os.getuid())


def test_results_that_are_a_link_to_nowhere_are_told(pipeline_class, tmp_path):
    pipeline = pipeline_class(tmp_path / "pipeline")
    shutil.rmtree(pipeline.folder / "results", ignore_errors=True)
    (pipeline.folder / "results").symlink_to("nowhere")
    done = pipeline.run("--cores", "1", "--config", "preset=smoke", "papers=example2030")
    assert done.returncode == 1
    assert "results: is a link that leads nowhere; remove it, or make it a folder." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_figure_is_a_target_by_its_name(fresh):
    planned = fresh.planned("example2030_fig1", "--config", "preset=smoke")
    assert planned == {"example2030_fig1": 1, "figure": 1, "run": 2}


def test_a_dry_run_is_short_and_on_demand_long(fresh):
    short = fresh.succeed("-n")
    assert len(short.splitlines()) < 40
    assert re.search(rf"figure +{number_of_figures()}\n", short)
    assert "output files have to be generated" in short
    long = fresh.succeed("-n", "--quiet", "host")
    assert long.count("Reason: ") > number_of_figures()


@pytest.mark.parametrize("interrupt", [os.killpg, os.kill])
def test_an_interrupt_is_one_line_and_the_next_call_goes_on(pipeline, interrupt):
    target = "results/smoke/runs/example2030_descent/default/metrics.csv"
    command = ("--cores", "1", "--config", "preset=smoke")
    running = pipeline.start(
        *command, "experiments={example2030_descent: {steps: 1000000}}", "--", target
    )
    log = pipeline.folder / "results/smoke/logs/runs/example2030_descent/default.log"
    deadline = time.monotonic() + 600
    while not (log.exists() and "seed 1/" in log.read_text()):
        assert time.monotonic() < deadline, "the job did not begin"
        time.sleep(0.05)
    interrupt(running.pid, signal.SIGINT)
    printed = running.communicate(timeout=600)[0]
    assert running.returncode != 0
    told = printed.partition("progress in ")[2].splitlines()[1:]
    assert told == ["Stopped. The same command goes on from here."]
    assert "Traceback" not in log.read_text()
    made = (pipeline.folder / target).parent
    assert not [path for path in made.glob("*") if not path.name.endswith(".scratch")]
    again = pipeline.succeed(*command, "--", target)
    assert "1 of 1 steps" in again
    assert "Reason" not in again


@pytest.mark.parametrize("profile", ["default", "gpu", "slurm"])
def test_every_profile_is_accepted(fresh, profile):
    planned = fresh.planned("--workflow-profile", profile)
    assert planned["figure"] == number_of_figures()


def test_a_failed_training_is_one_sentence_with_a_cure_and_leaves_nothing(fresh, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text(
        "preset: smoke\nexperiments: {example2030_descent: {learning_rate: 1.0e+200}}\n"
    )
    target = "results/smoke/runs/example2030_descent/default/metrics.csv"
    done = fresh.run("--cores", "1", "--configfile", str(config), "--", target)
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(
        r"example2030_descent/default: training diverged by step .* use a smaller learning rate",
        printed,
    )
    assert "Traceback" not in printed
    assert list((fresh.folder / "results").rglob("*.csv")) == []


def test_jobs_take_the_library_beside_the_snakefile_not_one_on_the_path(pipeline):
    target = "results/smoke/runs/example2030_coin/fair/metrics.csv"
    done = subprocess.run(
        pipeline.command("--cores", "1", "--", target),
        cwd=pipeline.folder,
        env={**pipeline.environment(), "PYTHONPATH": str(ROOT / "src")},  # knows no example2030
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def python(pipeline, *arguments):
    """Run the package's own commands in a copy of the pipeline."""
    return subprocess.run(
        [sys.executable, "-m", "feature_alignment", *arguments],
        cwd=pipeline.folder,
        env={**pipeline.environment(), "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_figure_can_be_made_and_remade_without_snakemake(pipeline):
    by_hand = python(pipeline, "figure", "example2030/fig2", "--preset", "smoke")
    assert by_hand.returncode == 0, by_hand.stderr
    made = pipeline.folder / "results/by_hand/smoke/figures/example2030_fig2.png"
    target = "figures/smoke/example2030_fig2.png"
    missing = python(pipeline, "draw", "example2030/fig2", "--preset", "smoke")
    assert missing.returncode == 1
    assert re.search(r"does not exist; make it with `snakemake --cores all", missing.stderr)
    pipeline.succeed("--cores", "1", "--config", "preset=smoke", "--", target)
    expected = pipeline.results()
    assert expected[target] == made.read_bytes()
    table = "results/smoke/tables/example2030_fig2.csv"
    for command, file in (("table", table), ("draw", target)):
        (pipeline.folder / file).unlink()
        done = python(pipeline, command, "example2030/fig2", "--preset", "smoke")
        assert (done.returncode, done.stderr) == (0, "")
        assert (pipeline.folder / file).read_bytes() == expected[file]
    metrics = next((pipeline.folder / "results/smoke/runs").glob("*/*/metrics.csv"))
    for command, file in (("draw", pipeline.folder / table), ("table", metrics)):
        whole = file.read_bytes()
        file.write_bytes(b"")
        damaged = python(pipeline, command, "example2030/fig2", "--preset", "smoke")
        assert damaged.returncode == 1
        assert damaged.stderr.startswith(f"{file.relative_to(pipeline.folder)}: ")
        assert damaged.stderr.count("\n") == 1, damaged.stderr
        file.write_bytes(whole)
    (pipeline.folder / "mine.yaml").write_text("experiments: {example2030_descent: {steps: 7}}\n")
    for command in ("table", "draw"):
        given = ("example2030/fig2", "--preset", "smoke", "--configfile", "mine.yaml")
        other = python(pipeline, command, *given)
        assert other.returncode == 1
        assert re.search(r"provenance.json: was made with other settings; give", other.stderr)
    assert pipeline.results() == expected
    (pipeline.folder / "wide.yaml").write_text("{preset: smoke, name: wide}\n")
    variant = python(pipeline, "draw", "example2030/fig2", "--configfile", "wide.yaml")
    (cure,) = re.findall("make it with `snakemake (.*)`", variant.stderr)
    assert cure == "--cores all --configfile wide.yaml -- figures/wide/example2030_fig2.pdf"
    pipeline.succeed("-n", *cure.split())


def test_one_run_and_the_keys_of_its_configuration_by_hand(fresh):
    done = python(fresh, "run", "example2030/coin", "--preset", "smoke", "--point", "bent")
    assert done.returncode == 0, done.stderr
    assert (fresh.folder / done.stdout.strip()).read_text().startswith("seed,step,")
    wrong = python(fresh, "run", "example2030/coyn", "--preset", "smoke")
    assert wrong.returncode == 1
    assert "did you mean 'example2030_coin'" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    keys = python(fresh, "config-help", "example2030").stdout.splitlines()
    assert "experiments.example2030_descent.samples = 50: Training samples." in keys
    assert python(fresh, "config-help", "experiments.example2030").stdout.splitlines() == keys
    assert "did you mean 'threads'" in python(fresh, "config-help", "treads").stderr
    unknown = python(fresh, "config-help", "exampel2030")
    assert unknown.returncode == 1
    elsewhere = "(for a paper elsewhere, set papers_path in config.yaml"
    assert f"begins with 'exampel2030' {elsewhere}); did you mean 'example2030" in unknown.stderr
    assert f"'example2030/coyn' {elsewhere} or --configfile); did you mean" in wrong.stderr
    assert command_line._elsewhere(argparse.Namespace(settings={"papers_path": "mine"})) == ""
    assert python(fresh, "schema", "schema.json").stdout == "schema.json\n"
    nowhere = python(fresh, "schema", "schema.json/below")
    assert nowhere.returncode == 1
    assert "schema.json" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr
    assert "example2030_descent" in (fresh.folder / "schema.json").read_text()


def test_the_default_profile_is_used_by_itself(fresh):
    assert "Using workflow specific profile profiles/default" in fresh.succeed("-n")


def test_on_a_terminal_there_are_bars_and_elsewhere_lines(fresh):
    shown, terminal = pty.openpty()
    done = subprocess.Popen(
        fresh.command("-n"), cwd=fresh.folder, stdout=terminal, stderr=terminal, close_fds=True
    )
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # at its end
        while part := os.read(shown, 10_000):
            text += part
    os.close(shown)
    assert done.wait() == 0
    assert "Workflow start" in text.decode()
    assert "Workflow start" not in fresh.succeed("-n")


def test_what_snakemake_has_read_of_the_library_is_there_before_the_first_job(pipeline):
    known = pipeline.folder / imports.MEMORY.file
    known.unlink()
    made = "results/smoke/runs/example2030_coin/fair/spec.json"
    pipeline.succeed(made, "--cores", "1")
    assert known.stat().st_mtime_ns < (pipeline.folder / made).stat().st_mtime_ns


def test_facts_that_cannot_be_kept_stop_nothing(pipeline):
    known = pipeline.folder / imports.MEMORY.file
    known.unlink()
    known.mkdir()
    made = "results/smoke/runs/example2030_coin/fair/spec.json"
    assert "Traceback" not in pipeline.succeed(made, "--cores", "1")

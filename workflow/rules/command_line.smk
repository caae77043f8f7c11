# The command line: targets are checked before anything is planned, a dry run prints little, and an
# interrupt ends in one line.

import logging
import signal
import threading
from contextlib import suppress

from snakemake.cli import get_argument_parser
from snakemake.logging import logger
from snakemake.settings.enums import Quietness

from feature_alignment.pipeline.targets import check_target


def typed_words():
    """The targets and what is forced, which Snakemake does not show to Snakefiles."""
    arguments = sys.argv[1:]
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    known, _ = get_argument_parser().parse_known_args(options)
    return [*known.targets, *arguments[len(options) + 1 :]], known.forcerun or []


def wildcards_of(path):
    """The wildcards with which a rule makes a file; None if no rule does."""
    makers = [known for known in workflow.rules if known.is_producer(path)]
    return makers[0].get_wildcards(path) if makers else None


def end_jobs():
    """Tell the jobs on this machine to end; runs save their state first."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("/.snakemake/scripts/" in word for word in process.cmdline()):
                process.terminate()


def stop(signal_number, frame):
    """End this Snakemake, and its jobs."""
    print("Stopped. The same command goes on from here.", file=sys.stderr, flush=True)
    # Each job that was interrupted would be reported as failed.
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not threading.main_thread().is_alive():
        os._exit(130)  # Python is ending and would show the exception
    # Ctrl-C interrupts the jobs, too, so that they end by themselves; `kill` does not.
    later = threading.Timer(1.0, end_jobs)
    later.daemon = True
    later.start()
    raise SystemExit(130)


def check_profile():
    """Check that the named profile exists: Snakemake would silently go on without it."""
    named = get_argument_parser().parse_known_args(sys.argv[1:])[0].workflow_profile
    places = [Path("profiles"), ROOT / "profiles"]
    typed_in = Path(os.environ.get("PWD", ""))  # before `-d`
    looked_in = [Path(), *places, typed_in, typed_in / "profiles"]
    if named not in (None, "none") and not any(
        (place / named).exists() for place in looked_in
    ):
        known = sorted(
            {profile.name for place in places for profile in place.glob("*")}
        )
        refuse(
            f"--workflow-profile: there is no profile {named!r}; {suggestion(named, known)}."
        )


def folders_of(name):
    """The folders of a result, in which Snakemake looks for files before any job starts."""
    below = [Path("results", name, part) for part in ("data", "runs", "tables", "logs")]
    return [Path("figures", name), *below]


def check_targets():
    """Check that everything that is requested can be made."""
    named = [known.name for known in workflow.rules if not known.has_wildcards()]
    one_sentence(check_folders, *folders_of(PLAN.name))
    for word in FORCED:
        if word in (*papers(), *all_figures()):
            refuse(
                f"{word}: is taken for a rule to run again, since it follows --forcerun; if it is "
                "a target, write it first, or after `--`."
            )
    for target in TARGETS:
        if target not in named:
            path = os.path.normpath(target)
            name = path.split(os.sep)[1] if os.sep in path else PLAN.name
            one_sentence(check_folders, *folders_of(name))
            other = CONFIG.name is None and name in PRESETS
            plan = plan_of(name) if other else PLAN
            one_sentence(check_target, target, wildcards_of(path), plan, named)


IS_ASKED = IS_MAIN and workflow.is_main_process
TARGETS, FORCED = typed_words() if IS_ASKED else ([], [])

if IS_ASKED:
    check_profile()
    signal.signal(signal.SIGINT, stop)

# The profile's setting; one that is typed is left alone.
SHORT = {Quietness.HOST, Quietness.REASON}
if (
    IS_MAIN
    and workflow.output_settings.dryrun
    and workflow.output_settings.quiet == SHORT
):
    workflow.output_settings.quiet.add(Quietness.RULES)
    by_path = any(os.sep in target for target in TARGETS)  # maybe of another result
    places = "" if by_path else f" in results/{PLAN.name} and figures/{PLAN.name}"
    logger.info(
        f"What would be made{places}, by rule; `--quiet host`, at the end, lists each job and why it "
        "is made."
    )

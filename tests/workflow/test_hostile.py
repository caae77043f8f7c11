"""Any configuration, given to the real command: it plans, or says what it would say in process."""

import os
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings

from hostile_configs import LAUGHS, SETTINGS, broken, configurations, planned, told

pytestmark = pytest.mark.slow
TIMES = int(os.environ.get("HOSTILE_COMMANDS", "8"))
FILES = [Path("config.yaml"), Path("c.yaml")]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory, pipeline_class):
    """A copy of the pipeline for dry runs, which change nothing."""
    return pipeline_class(tmp_path_factory.mktemp("hostile") / "pipeline")


@settings(SETTINGS, max_examples=TIMES, phases=[Phase.explicit, Phase.generate])
@given(text=configurations() | broken())
@example(text=LAUGHS)
@example(text="[" * 5000)
@example(text="threads: " + "9" * 5000)
@example(text="preset: &a {b: *a}\nfigures: *a\n")
def test_the_command_says_the_same(fresh, text):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(fresh.folder)
        FILES[1].write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        said = told(lambda: planned(FILES, fresh.folder / "workflow"))
    done = fresh.run("-n", "--configfile", "c.yaml")
    printed, said = (
        text and text.replace(f"{fresh.folder}/", "") for text in (done.stdout + done.stderr, said)
    )
    assert "Traceback" not in printed, printed
    assert (done.returncode == 0) == (said is None and "Config file must" not in printed), printed
    lines = [line.removeprefix("Error: ") for line in printed.splitlines()]
    assert said is None or said in lines, (said, printed)

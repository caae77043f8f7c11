"""Times of runs are those on an idle machine, and are added to a table that is whole."""

import json

import pytest

from feature_alignment.errors import UserError

HEADER = "experiment,parameters,point,seconds\n"


@pytest.fixture
def result(tool, tmp_path, monkeypatch):
    """A result of a run, of one on a GPU, and of one that was taken over."""
    monkeypatch.chdir(tmp_path)
    tool.FILE.parent.mkdir()
    spec = {"experiment": "coin"}
    for point, device, more in (("a", "cpu", {}), ("b", "cuda", {}), ("c", "cpu", {"from": "x"})):
        record = {"outputs": {}, "threads": 2, "spec": spec | {"parameters": {"point": point}}}
        record |= {"machine": {"device": device}, "wall_seconds": 90.0, "cpu_seconds": 60.0}
        record |= {f"taken_over_{key}": value for key, value in more.items()}
        folder = tmp_path / "results" / "runs" / "coin" / point
        folder.mkdir(parents=True)
        (folder / "provenance.json").write_text(json.dumps(record))
    return "results"


def test_processor_time_counts_for_each_thread_and_what_was_taken_over_does_not(tool, result):
    tool.FILE.write_text(f"{HEADER}coin,0a,old,7\n")
    tool.main([result])
    lines = tool.FILE.read_text().splitlines()
    found = {line.split(",")[2]: line.split(",")[3] for line in lines[1:]}
    assert found == {"old": "7", "a": "30", "b": "90"}


@pytest.mark.parametrize("text", ["", "\0", "a,b\n1,2\n", f"{HEADER}coin,0a,old,7,8\n"])
def test_a_damaged_table_is_told_and_left_as_it_is(tool, result, text):
    tool.FILE.write_text(text)
    with pytest.raises(UserError, match=r"measured\.csv: is damaged"):
        tool.main([result])
    assert tool.FILE.read_text() == text

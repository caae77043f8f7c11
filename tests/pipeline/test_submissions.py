"""How long runs may take on a cluster, and which share a submission."""

import csv

import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.spec import spec_hash
from feature_alignment.pipeline.submissions import (
    key_of,
    limit_minutes,
    read_measured,
    shared_submissions,
    small_seconds,
)


def spec(experiment="coin", **parameters):
    return {"experiment": experiment, "parameters": parameters, "data": {}, "threads": 1}


def timed(seconds, spec):
    return {} if seconds is None else {key_of(spec): seconds}


def test_a_run_is_known_by_its_experiment_and_parameters(tmp_path):
    run, others = spec(width=2), [spec(width=3), spec("die", width=2)]
    file = tmp_path / "measured.csv"
    with file.open("w", newline="") as rows:
        writer = csv.writer(rows)
        writer.writerow(["experiment", "parameters", "point", "seconds"])
        writer.writerow(["coin", spec_hash({"width": 2})[:12], "heads", "7"])
    measured = read_measured(file)
    assert measured == {key_of(run): 7.0}
    assert measured == {key_of(run | {"threads": 4}): 7.0}
    assert not any(key_of(other) in measured for other in others)


@pytest.mark.parametrize(
    ("seconds", "small", "minutes"),
    [
        (None, None, 90),  # not measured
        (0, 30, 5),
        (80, 110, 6),  # three times 110 seconds, rounded up
        (300, 330, 17),
        (301, None, 90),  # more than half of a submission
    ],
)
def test_a_small_run_has_a_limit_by_its_time_and_any_other_the_one_set(seconds, small, minutes):
    run = spec(width=2)
    measured = timed(seconds, run)
    assert small_seconds(run, measured) == small
    assert limit_minutes(run, measured, 90) == minutes
    assert limit_minutes(run, measured, 4) == 4


def test_small_runs_of_an_experiment_fill_submissions_of_ten_minutes():
    times = {("coin", "a"): 260, ("coin", "b"): 280, ("coin", "c"): 1, ("coin", "d"): 300}
    times |= {("coin", "e"): 240, ("coin", "long"): 900, ("coin", "new"): None, ("die", "a"): 5}
    specs = {run: spec(run[0], point=run[1]) for run in times}
    measured = {k: v for run in times for k, v in timed(times[run], specs[run]).items()}
    expected = {("coin", "a"): 0, ("coin", "b"): 0}  # 290 and 310 seconds with their starts
    expected |= {("coin", "c"): 1, ("coin", "d"): 1, ("coin", "e"): 2, ("die", "a"): 0}
    found = shared_submissions("quick", dict(reversed(specs.items())), measured)
    assert found == {run: f"quick-{run[0]}-{number}" for run, number in expected.items()}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "experiment,parameters,point,seconds\na,b,c,soon\n",
        "experiment,parameters,point,seconds\na,b,c,1,2\n",
    ],
)
def test_a_damaged_table_of_times_is_told_in_a_sentence(tmp_path, text):
    (tmp_path / "measured.csv").write_text(text)
    with pytest.raises(UserError, match=r"measured.csv: is damaged \(.*\); take it from"):
        read_measured(tmp_path / "measured.csv")

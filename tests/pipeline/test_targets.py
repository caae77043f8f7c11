"""A target that nothing makes is told with the one that is nearest."""

import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.targets import check_target, files_of

NAMED = ["all", "example2030"]
RUN = "results/smoke/runs/example2030_coin"


def test_files_of_the_plan_are_targets(smoke_plan):
    for file in files_of(smoke_plan):
        check_target(file, {"point": "any", "source": "any"}, smoke_plan, NAMED)
    assert f"{RUN}/fair/metrics.csv" in files_of(smoke_plan)
    check_target("results/smoke/compare/other.html", {"other": "other"}, smoke_plan, NAMED)


@pytest.mark.parametrize(
    ("target", "wildcards", "says"),
    [
        ("exmaple2030", None, "did you mean 'example2030'"),
        ("example2030_fgi2", None, "did you mean 'example2030_fig2'"),
        ("xyz", None, "targets are all, example2030, figures such as .*, and files such as fig"),
        (f"{RUN}/fare/metrics.csv", {"point": "fare"}, f"did you mean '{RUN}/fair/metrics.csv'"),
    ],
)
def test_what_nothing_makes_is_refused(smoke_plan, target, wildcards, says):
    with pytest.raises(UserError, match=rf"^{target}: nothing makes this target; {says}"):
        check_target(target, wildcards, smoke_plan, NAMED)

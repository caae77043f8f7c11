import numpy as np
import pytest

from feature_alignment.errors import UserError, check_whole


@pytest.mark.parametrize("value", [1, np.int64(4), 2])
def test_whole_numbers_within_the_bounds_pass(value):
    check_whole("points", value, 1, 4)
    check_whole("points", value, 1)


@pytest.mark.parametrize("value", [0, 5, 2.0, True, "2", None, np.float64(2), float("nan")])
def test_others_are_refused(value):
    with pytest.raises(UserError, match=r"^points: .*; it must be a whole number from 1 to 4\.$"):
        check_whole("points", value, 1, 4)


def test_there_may_be_no_upper_bound():
    with pytest.raises(UserError, match=r"^points: 0; it must be a whole number of at least 1\.$"):
        check_whole("points", 0, 1)

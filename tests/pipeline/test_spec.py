"""Specs are canonical: equal exactly when their hashes are."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.errors import UserError
from feature_alignment.pipeline.spec import canonical_json, spec_hash

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False).filter(lambda value: abs(value) != float("inf")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
specs = st.dictionaries(st.text(), plain, max_size=4)


@given(specs)
@settings(deadline=None, derandomize=True)
def test_canonical_form_reads_back_and_ignores_key_order(spec):
    assert json.loads(canonical_json(spec)) == spec
    assert spec_hash(dict(reversed(spec.items()))) == spec_hash(spec)


def test_swapping_two_values_changes_the_hash():
    assert spec_hash({"a": 1, "b": 2}) != spec_hash({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"a": {"b": [1, float("nan")]}}, r"spec\.a\.b\[1\]: nan"),
        ({"a": {1: "x"}}, r"spec\.a: key 1"),
        ({"a": {1, 2}}, r"spec\.a: set"),
    ],
)
def test_values_that_json_cannot_hold_are_named(spec, where):
    with pytest.raises(UserError, match=where):
        canonical_json(spec)

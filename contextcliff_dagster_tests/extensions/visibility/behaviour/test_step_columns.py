"""Steps as columns of a record: what is written is read again."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.behaviour import Step, columns_of, step_of
from contextcliff_dagster.extensions.visibility.tasks.task import ClampEvent, Reason

_VALUES = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.booleans(), st.none()
)
_CONFIGS = st.dictionaries(st.text(max_size=5), _VALUES, max_size=3)
_EVENTS = st.builds(ClampEvent, st.text(max_size=5), _VALUES, _VALUES, st.sampled_from(Reason))
_STEPS = st.builds(
    Step,
    config=_CONFIGS,
    source=st.sampled_from(("model", "fallback")),
    proposed=st.none() | _CONFIGS,
    unparsable=st.booleans(),
    events=st.lists(_EVENTS, max_size=3).map(tuple),
    base=_CONFIGS,
)


@given(_STEPS)
def test_a_step_is_read_as_it_was_written(step: Step) -> None:
    assert step_of(columns_of(step)) == step


@given(_STEPS)
def test_missing_values_of_pandas_are_none(step: Step) -> None:
    row = columns_of(step) | {"proposed": math.nan, "unparsable": math.nan}
    read = step_of(row)
    assert read.proposed is None
    assert read.unparsable is False

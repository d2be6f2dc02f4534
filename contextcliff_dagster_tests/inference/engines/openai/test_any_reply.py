"""Whatever a server replies, the call ends as a kept answer or a counted error, at a sane charge.

`benchmarks/reply_fuzz.py` does the same with 100,000 replies.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.records.calls import RECIPE, LedgerSample, openai_entry
from contextcliff_dagster_tests.support.servers.any_reply import Case, cases
from contextcliff_dagster_tests.support.servers.reply_checks import InProcess, served_run

SAMPLE = LedgerSample(1, 1)


@examples(300)
@given(case=cases())
def test_no_reply_loses_an_answer_charges_wrongly_or_ends_a_run(case: Case) -> None:
    (call,) = plan_calls(SAMPLE, "identity", RECIPE, "c", SAMPLE.bins, 1)
    engine = OpenAIEngine(openai_entry("http://127.0.0.1:9/v1"))
    asyncio.run(InProcess(engine, call).ends(case))


@examples(2)
@given(script=st.lists(cases(), min_size=40, max_size=40))
def test_over_http_every_answer_is_kept_and_every_failure_counted(
    script: list[Case], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ends = served_run(script, tmp_path_factory.mktemp("served"))
    assert ends["kept answer"] >= sum(case.text is not None for case in script)

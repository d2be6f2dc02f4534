"""Requests that hide their length, and policies that change while requests are under way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.gateway import settings
from contextcliff_dagster.policy import PolicyError
from contextcliff_dagster_tests.gateway.test_gate import LONG, chat, gate_of
from contextcliff_dagster_tests.support.files.policies import policy_row, write_policies

_CUT = {"role": "user", "content": LONG}


@pytest.mark.parametrize(
    "sent",
    [
        {"messages": [{"role": LONG}]},
        {"messages": [{**_CUT, "type": "image"}]},
        {"messages": [{**_CUT, "type": []}]},
        {"messages": [{**_CUT, "source": {"type": []}}]},
        {"messages": [{"content": [{"type": "document", "source": {}, "context": LONG}]}]},
        {"messages": [{"content": ""}] * 300},
        {"meSSages": [_CUT]},
        {"me\u017fsages": [_CUT]},
        {"prompt": [LONG, [1]]},
        {"prompt": "", "suffix": LONG},
        {"documents": [{"text": LONG}]},
        {"chat_template": LONG},
        {"extra_body": {"messages": [_CUT]}},
        {"text": {"format": {"schema": {"description": LONG}}}},
    ],
)
def test_text_in_an_unusual_place_is_counted(tmp_path: Path, sent: dict[str, Any]) -> None:
    assert gate_of(tmp_path).decide({"model": "m", **sent}).outcome == "refused"
    assert gate_of(tmp_path).decide({"Model": "m", **sent}).outcome == "refused"


def test_other_letters_in_tools_count_as_in_messages(tmp_path: Path) -> None:
    tools = [{"description": "\u6f22" * 300}]
    gate = gate_of(tmp_path, policy_row("m", 1_000))
    assert gate.decide({"model": "m", "tools": tools}).outcome == "passed"


def test_two_policies_for_one_model_are_none(tmp_path: Path) -> None:
    rows = policy_row("m", 10), policy_row("m", 100_000, task="other")
    with pytest.raises(PolicyError, match=r"two policies for m \(tasks lookup and other\)"):
        gate_of(tmp_path, *rows)
    gate = gate_of(tmp_path)
    write_policies(tmp_path / "safe-context.json", *rows)
    assert gate.decide(chat(LONG)).outcome == "refused"


def test_the_newest_policy_holds_whichever_thread_has_read_it(tmp_path: Path) -> None:
    """A thread that is slow to read the older file must not end up having the last word."""
    gate, file = gate_of(tmp_path), tmp_path / "safe-context.json"
    begun, go_on = threading.Event(), threading.Event()
    read = settings._by_model

    def slowly(path: Path) -> Any:
        found = read(path)
        if threading.current_thread() is slow:
            begun.set()
            assert go_on.wait(120)
        return found

    slow = threading.Thread(target=gate.decide, args=[chat(LONG)])
    quick = threading.Thread(target=gate.decide, args=[chat(LONG)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "_by_model", slowly)
        write_policies(file, policy_row("m", 500))
        slow.start()
        assert begun.wait(120)
        write_policies(file, policy_row("m", 100_000))
        quick.start()
        quick.join(0.2)
        go_on.set()
        slow.join()
        quick.join()
    assert gate.decide(chat(LONG)).outcome == "passed"

"""Whether a value is denied: the words near it decide, so that long replies are read quickly."""

from __future__ import annotations

import re

import pytest

from contextcliff_dagster.scoring import stated_answer
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.typed import typed_scorer


class Counted:
    """A pattern that counts the characters that it is given."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.characters = pattern, 0

    def search(self, text: str) -> re.Match[str] | None:
        self.characters += len(text)
        return self.pattern.search(text)


@pytest.mark.parametrize(("repeated", "accepted"), [("1 000 ", "1000"), ("so it is 12 and ", "12")])
def test_a_reply_twice_as_long_takes_twice_the_work(
    repeated: str, accepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = []
    for times in (400, 800):
        counted = Counted(re.compile(stated_answer._DENIED))
        monkeypatch.setattr(stated_answer, "_DENIED", counted)
        reply = parse_answer(repeated * times)
        assert typed_scorer("How much is it?")(reply, [accepted]).em == 1.0
        work.append(counted.characters)
        monkeypatch.undo()
    assert 0 < work[1] <= 2.2 * work[0]


@pytest.mark.parametrize("between", [0, 1_000, 100_000])
def test_words_far_before_a_value_do_not_deny_it(between: int) -> None:
    text = f"not {'x ' * between}12"
    assert stated_answer.refused(text, len(text) - 2, len(text)) == (between == 0)

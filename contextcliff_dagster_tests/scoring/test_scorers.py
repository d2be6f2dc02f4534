"""The scorers: text, numbers, JSON, and a user's own by entry point."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.scorers import Scores, numbers, open_scorer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def score(name: str, raw: str, *accepted: str) -> Scores:
    return open_scorer(name)(parse_answer(raw), accepted)


def test_text_scores_the_answer_and_finds_it_in_the_output() -> None:
    assert score("text", "937915", "937915") == (1.0, 1.0, 1.0)
    assert score("text", "The quantity is 937915.", "937915") == (0.0, 0.5, 1.0)
    assert score("text", "120034", "937915") == (0.0, 0.0, 0.0)
    assert score("text", "", "937915") == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1200", ["1200"]),
        ("1,200.50 and -3", ["1200.50", "-3"]),
        ("1.2e3", ["1.2e3"]),
        ("$25 million", ["25"]),
        ("\u22124.5 degrees", ["-4.5"]),
        ("qty=937915", ["937915"]),
        ("SKU-482", ["482"]),
        ("version 1.2.3", []),
        ("1,2000", ["1", "2000"]),
        ("In 1899.", ["1899"]),
        ("none", []),
        ("共１２００元，１２．５％", ["1200", "12.5"]),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, found: list[str]) -> None:
    assert numbers(text) == [Decimal(f) for f in found]


@pytest.mark.parametrize("raw", ["1,200", "1200.0", "1.2e3", "1200 pieces", "= 1200"])
def test_numeric_compares_by_value(raw: str) -> None:
    assert score("numeric", raw, "1200") == (1.0, 1.0, 1.0)


def test_numeric_tells_whole_numbers_apart_however_long() -> None:
    assert score("numeric", "937915123457", "937915123456").em == 0.0
    assert score("numeric", "0.3333333333333", "0.33333333333334").em == 1.0


def test_numeric_gives_credit_for_a_number_among_others_by_containment_only() -> None:
    scores = score("numeric", "Of 12 records it is the 3rd: 1200", "1200")
    assert (scores.em, scores.contained) == (0.0, 1.0)
    assert 0.0 < scores.f1 < 1.0
    assert score("numeric", "no number", "1200") == (0.0, 0.0, 0.0)
    assert score("numeric", "1200", "no number") == (0.0, 0.0, 0.0)


@given(st.integers(-(10**15), 10**15))
def test_numeric_accepts_every_way_to_write_an_integer(number: int) -> None:
    for raw in (str(number), f"{number:,}", f"{number}.0", f"It is {number}."):
        assert score("numeric", raw, str(number)) == (1.0, 1.0, 1.0)


def test_structured_compares_json_by_value() -> None:
    gold = '{"sku": 482, "qty": [9, 3]}'
    assert score("structured", '{"qty":[9,3.0],"sku":482}', gold) == (1.0, 1.0, 1.0)
    assert score("structured", f"```json\n{gold}\n```", gold).em == 1.0
    wrong_one = score("structured", '{"sku": 482, "qty": [9, 4]}', gold)
    assert (wrong_one.em, wrong_one.contained) == (0.0, 0.0)
    assert wrong_one.f1 == pytest.approx(2 / 3)
    wider = score("structured", '{"sku": 482, "qty": [9, 3], "note": ""}', gold)
    assert (wider.em, wider.contained) == (0.0, 1.0)
    assert score("structured", "true", "1").em == 0.0
    assert score("structured", '"a b"', "a b").em == 1.0
    assert score("structured", "not JSON", gold) == (0.0, 0.0, 0.0)
    assert score("structured", "[" * 50_000, gold) == (0.0, 0.0, 0.0)


@given(JSON)
def test_structured_accepts_every_json_value_as_itself(value: object) -> None:
    text = json.dumps(value)
    parsed = parse_answer(text)
    if parsed.text is not None and not isinstance(value, str):
        assert open_scorer("structured")(parsed, [json.dumps(value, indent=1)]).em == 1.0


@given(
    st.sampled_from(["text", "numeric", "structured"]), st.text(), st.lists(st.text(), max_size=3)
)
def test_every_scorer_keeps_its_scores_in_order(name: str, raw: str, accepted: list[str]) -> None:
    em, f1, inside = score(name, raw, *accepted)
    assert 0.0 <= em <= f1 <= 1.0 + 1e-12
    assert em <= inside <= 1.0


def test_an_unknown_scorer_is_named_with_those_that_are() -> None:
    with pytest.raises(StudyError, match=r"no scorer 'rouge'.*text, numeric, choice, structured"):
        open_scorer("rouge")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as a user would install it: a module and its entry points, on the path."""
    (tmp_path / "own_scorers.py").write_text(
        "def length(answer, accepted):\n"
        "    return min(1.0, len(answer) / len(accepted[0]))\n"
        "def triple(answer, accepted):\n"
        "    return (0.0, 0.5, 1.0)\n"
        "def wild(answer, accepted):\n"
        "    return 7\n"
        "def broken(answer, accepted):\n"
        "    raise KeyError('oh')\n",
        encoding="utf-8",
    )
    info = tmp_path / "own_scorers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-scorers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[contextcliff.scorers]\n"
        + "".join(
            f"{n} = own_scorers:{n}\n" for n in ("length", "triple", "wild", "broken", "gone")
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_scorers", raising=False)


@pytest.mark.usefixtures("plugin")
def test_a_users_own_scorer_is_found_by_its_entry_point() -> None:
    assert score("length", "ab", "abcd") == (0.5, 0.5, 0.5)
    assert score("triple", "ab", "abcd") == (0.0, 0.5, 1.0)
    assert score("length", "", "abcd") == (0.0, 0.0, 0.0)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("name", ["wild", "broken", "gone"])
def test_a_faulty_scorer_is_named_in_one_sentence(name: str) -> None:
    with pytest.raises(StudyError, match=f"Scorer '{name}'"):
        score(name, "ab", "abcd")

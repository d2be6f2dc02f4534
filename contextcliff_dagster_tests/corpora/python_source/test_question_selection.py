"""Questions on Python source: each answer holds against a second way to find it."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.corpora.corpus import seeded_place
from contextcliff_dagster.corpora.python_source import PythonSourceCorpus
from contextcliff_dagster.corpora.python_source.files import SourceModule
from contextcliff_dagster.corpora.python_source.questions import KINDS, Question, choose_questions

WHOLE = '''\
"""A module of the test's own."""
import abc
import json as codec

RETRIES = 17
MODE: str = "append only"
RATIO = 0x1F
TWICE = 11
TWICE = 12
SHADOWED = 44
FLAG = True


class QuotaExceeded(RuntimeError):
    pass


class Reader(abc.ABC):
    @abc.abstractmethod
    def open_it(self, location, mode="read only", limit=4096): ...

    @property
    def size(self):
        return 1

    @size.setter
    def size(self, value):
        pass

    @staticmethod
    def make(kind): ...


class FileReader(Reader):
    def open_it(self, location, mode=MODE, limit=RETRIES):
        if limit > 4096:
            raise QuotaExceeded(location)
        return normalise(location)


def normalise(address, *, separator="slash"):
    return address.replace(separator, "/")


def ask(SHADOWED=80):
    try:
        return normalise("a")
    except ValueError:
        raise


def forward(first_thing, /, second=RETRIES):
    return ask(), codec.dumps(second)


def choose():
    def inner():
        raise KeyError
    return inner


def fail_twice(flag_set):
    if flag_set:
        raise ValueError("no")
    raise TypeError("no")
'''


def questions(text: str, *kinds: str, most: int = 10_000) -> list[Question]:
    return choose_questions(
        SourceModule(text), kinds or KINDS, "sentence", partial(seeded_place, 0, "document"), most
    )


def found(kind: str) -> dict[str, tuple[str, ...]]:
    """What is asked of ``WHOLE``: the names in the question, and the answers."""
    return {" ".join(re.findall(r"`(.*?)`", q.text)): q.answers for q in questions(WHOLE, kind)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The same text as an imported module."""
    path = tmp_path_factory.mktemp("whole") / "whole_module.py"
    path.write_text(WHOLE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("whole_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(module: ModuleType, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_constants_are_what_the_module_holds(whole: ModuleType) -> None:
    constants = found("constant_value")
    assert set(constants) == {"RETRIES", "MODE", "RATIO"}  # once bound, and no flag
    for name, answers in constants.items():
        assert str(getattr(whole, name)) in answers


def test_defaults_are_what_inspect_says(whole: ModuleType) -> None:
    for kind, level in (("default_value", 1), ("default_through_constant", 2)):
        asked = found(kind)
        for names, answers in asked.items():
            parameter, function = names.split()
            signature = inspect.signature(named(whole, function))
            assert str(signature.parameters[parameter].default) in answers
        assert all(q.level == level for q in questions(WHOLE, kind))
    assert set(found("default_value")) == {
        *("mode Reader.open_it", "limit Reader.open_it", "separator normalise", "SHADOWED ask"),
    }
    assert set(found("default_through_constant")) == {
        *("mode FileReader.open_it", "limit FileReader.open_it", "second forward"),
    }


def test_first_parameters_are_what_inspect_says(whole: ModuleType) -> None:
    asked = found("first_parameter")
    for names, answers in asked.items():
        name, *own = names.split()
        parameters = list(inspect.signature(named(whole, name)).parameters)
        assert answers == (parameters[1 if own else 0],)
        assert own in ([], ["self"])
    assert set(asked) == {
        *("Reader.open_it self", "FileReader.open_it self"),
        *("normalise", "ask", "forward", "fail_twice"),
    }


def test_bases_are_what_the_classes_say(whole: ModuleType) -> None:
    for name, answers in found("base_class").items():
        (base,) = named(whole, name).__bases__
        assert base.__name__ in answers
    assert found("base_class").keys() == {"QuotaExceeded", "Reader"}  # FileReader says Reader
    assert found("base_of_base") == {"FileReader": ("abc.ABC", "ABC")}


def test_what_is_raised_and_called_is_what_running_it_shows(whole: ModuleType) -> None:
    assert found("raised_exception") == {"FileReader.open_it": ("QuotaExceeded",)}
    with pytest.raises(whole.QuotaExceeded):
        whole.FileReader().open_it("here", limit=5_000)
    assert found("base_of_raised") == {"FileReader.open_it": ("RuntimeError",)}
    assert issubclass(whole.QuotaExceeded, RuntimeError)
    called = {"FileReader.open_it": ("normalise",), "ask": ("normalise",), "forward": ("ask",)}
    assert found("called_function") == called
    for name, answers in called.items():
        assert answers[0] in named(whole, name).__code__.co_names
    assert found("parameter_of_called") == {
        "FileReader.open_it": ("address",),
        "ask": ("address",),
        "forward": ("SHADOWED",),
    }


def test_places_are_where_the_evidence_stands() -> None:
    for q in questions(WHOLE):
        answer = WHOLE[q.places[-1] :].splitlines()[0]
        assert any(a in answer for a in q.answers)
        assert len(q.places) == q.level == len(set(q.places))


def test_a_star_import_leaves_only_lines_to_ask_for() -> None:
    asked = questions("from os import *\n" + WHOLE)
    assert {q.kind for q in asked} <= {"complete_line"}


@pytest.mark.parametrize(
    "again",
    [
        *("LIMIT = 5000", "LIMIT += 1", "del LIMIT", "import os as LIMIT", "import LIMIT.path"),
        *("for LIMIT in ():\n    pass", "with open('a') as LIMIT:\n    pass"),
        *("def f():\n    global LIMIT\n    LIMIT = 1", "def f(LIMIT):\n    return LIMIT"),
        *("class LIMIT:\n    pass", "print(LIMIT := 3)", "[LIMIT for LIMIT in ()]"),
        "try:\n    pass\nexcept ValueError as LIMIT:\n    pass",
        "match 1:\n    case LIMIT:\n        pass",
        "match {}:\n    case {**LIMIT}:\n        pass",
        "match []:\n    case [*LIMIT]:\n        pass",
        "LIMIT: int",
    ],
)
def test_a_name_that_is_bound_again_is_not_asked_for(again: str) -> None:
    assert questions("LIMIT = 4711\n", "constant_value")
    assert not questions(f"LIMIT = 4711\n{again}\n", "constant_value")


@pytest.mark.parametrize(
    "value", ["None", "True", "0", "1", "7", "-1.0", "''", "'a'", "1e999", "..."]
)
def test_what_anybody_would_guess_is_not_asked_for(value: str) -> None:
    assert not questions(f"VALUE = {value}\n", "constant_value")


def test_an_answer_that_the_question_holds_is_not_asked_for() -> None:
    assert not questions("class ParseError(Error):\n    pass\n", "base_class")
    assert not questions("COLOUR_RED = 'red'\n", "constant_value")


NAMES = st.from_regex(r"[A-Z]{3,8}", fullmatch=True)
VALUES = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(min_size=1, max_size=30),
)


@given(
    st.dictionaries(NAMES, VALUES, min_size=1, max_size=8),
    st.text("# \u00e4\U0001f40d", max_size=9),
)
def test_any_constant_evaluates_to_its_answer(values: dict[str, Any], comment: str) -> None:
    text = f"#{comment}\n" + "".join(f"{name} = {value!r}\n" for name, value in values.items())
    tree = ast.parse(text)
    nodes = {n.targets[0].id: n.value for n in tree.body}  # type: ignore[attr-defined]
    for q in questions(text, "constant_value"):
        (name,) = re.findall(r"`(\w+)`", q.text)
        value = ast.literal_eval(nodes[name])
        assert value == values[name]
        assert str(value) in q.answers
        assert text[q.places[0] :].startswith(f"{name} = ")


WORDS = st.sampled_from("v_basket v_fill v_amount v_weight v_x1 v_x12 v_total".split())
LINES = st.lists(
    st.builds("{} = {}({}, '{} {}')".format, WORDS, WORDS, WORDS, WORDS, WORDS),
    min_size=1,
    max_size=12,
)


@given(LINES, st.sampled_from(["\n", "\r\n"]))
def test_a_line_is_asked_for_only_where_its_beginning_and_rest_stand_once(
    lines: list[str], end: str
) -> None:
    text = "if True:" + end + "".join(f"    {line}{end}" for line in lines)
    module = SourceModule(text)
    for q in choose_questions(
        module, ["complete_line"], "beginning", partial(seeded_place, 0, "d"), 99
    ):
        rest, line = q.answers
        assert text.count(q.text) == text.count(rest) == 1
        assert [one for one in lines if one.startswith(q.text)] == [line]
        assert line.startswith(q.text)
        assert line.endswith(rest)
        assert "".join(line.split()) == "".join((q.text + rest).split())
        assert text[q.places[0] :].startswith(line)


def test_the_kinds_take_turns(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(WHOLE, encoding="utf-8")
    corpus = PythonSourceCorpus({"path": str(tmp_path), "questions_per_document": len(KINDS)})
    asked: list[Example] = list(corpus.examples())
    assert {one.task for one in asked} == set(KINDS)
    assert len({one.example_id for one in asked}) == len(asked)

"""Results are read as they were written, by any version, or refused with a sentence."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import pytest
from jsonschema import Draft202012Validator

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.contracts.results import (
    RESULT_FILES,
    Cliffs,
    ResultError,
    ResultFile,
    from_json,
    to_json,
)
from contextcliff_dagster.contracts.results.json_form import Count, Tokens, Unit
from contextcliff_dagster.store import read_result, write_json, write_result
from tools.write_result_schemas import schema_text, schemas

WRITTEN = Path(__file__).parents[1] / "support" / "records" / "results_of_0_1_0"
EVERY = pytest.mark.parametrize("file", RESULT_FILES, ids=lambda file: file.name)


def written(name: str) -> dict[str, Any]:
    """A result that version 0.1.0 wrote when results were not declared yet (lists cut to two)."""
    result: dict[str, Any] = json.loads((WRITTEN / f"{name}.json").read_bytes())
    return result


@pytest.mark.parametrize(("path", "file"), schemas().items(), ids=lambda one: str(one)[-40:])
def test_the_committed_schemas_are_those_of_the_declarations(path: Path, file: ResultFile) -> None:
    assert path.read_text("utf-8") == schema_text(file), "run `make schemas`"
    Draft202012Validator.check_schema(file.schema())


@EVERY
def test_a_file_of_an_older_version_is_read_and_written_again_byte_by_byte(
    file: ResultFile, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_json(old, written(file.name))
    write_result(new, read_result(old, file.model))
    assert new.read_bytes() == old.read_bytes()
    Draft202012Validator(file.schema()).validate(json.loads(new.read_bytes()))


@EVERY
def test_what_older_files_lack_has_a_value_that_the_schema_allows(file: ResultFile) -> None:
    data = written(file.name)
    later = [f.name for f in fields(file.model) if f.default is not MISSING]
    for name in later:
        data.pop(name)
    Draft202012Validator(file.schema()).validate(data)
    result = from_json(file.model, data)
    assert all(not getattr(result, name) for name in later)
    Draft202012Validator(file.schema()).validate(to_json(result))


@EVERY
@pytest.mark.parametrize("version", ["1.2", "2.0", "1.1.1"])
def test_a_newer_file_is_refused_with_who_wrote_it(
    file: ResultFile, version: str, tmp_path: Path
) -> None:
    path = tmp_path / f"{file.name}.json"
    data = written(file.name) | {"schema_version": version, "unheard_of": 1}
    data.setdefault("provenance", {"versions": {}})["versions"]["contextcliff-dagster"] = "9.9"
    write_json(path, data)
    with pytest.raises(StoreError) as caught:
        read_result(path, file.model)
    assert str(caught.value) == (
        f"{path} cannot be read: it has schema version {version} (written by contextcliff-dagster "
        "9.9), and this version of contextcliff-dagster reads up to 1.1; update "
        "contextcliff-dagster."
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d.pop("verdict"), "verdict is missing"),
        (lambda d: d["bins"][1].pop("mean"), "bins[1].mean is missing"),
        (lambda d: d.update({"cap": 1}), "cap is not known to this version"),
        (
            lambda d: d.update({"verdict": "fine"}),
            "verdict is 'fine', none of stable, gradual_decline",
        ),
        (lambda d: d.update({"safe_cap_tokens": 1.5}), "safe_cap_tokens is 1.5, not an integer"),
        (lambda d: d.update({"safe_cap_tokens": True}), "safe_cap_tokens is True, not an integer"),
        (lambda d: d.update({"model": None}), "model is None, not a text"),
        (lambda d: d.update({"bins": {}}), "bins is {}, not what belongs there"),
        (lambda d: d.update(tolerance=1.1), "tolerance is 1.1, beyond what a share can be"),
        (lambda d: d.update(n=-1), "n is -1, beyond what a count can be"),
        (lambda d: d.update(tolerance=float("nan")), "tolerance is nan, beyond what a share"),
        (lambda d: d["zones"][0].update(name="red"), "zones[0].name is 'red', none of 'stable'"),
    ],
)
def test_a_damaged_file_is_refused_with_the_field_and_who_wrote_it(
    change: Any, reason: str, tmp_path: Path
) -> None:
    data = written("cliffs")
    change(data)
    (tmp_path / "c.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(StoreError, match=re.escape(f"c.json is damaged ({reason}")) as caught:
        read_result(tmp_path / "c.json", Cliffs)
    assert "(written by contextcliff-dagster 0.1.0)" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"null"])
def test_what_is_no_result_at_all_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"c\.json is damaged"):
        read_result(tmp_path / "c.json", Cliffs)


def test_numbers_keep_their_kind_and_what_is_not_finite_becomes_null() -> None:
    data = written("cliffs")
    rule = data["rules"][0]
    for value in (3, 3.0, None):
        rule["value"] = value
        again = to_json(from_json(Cliffs, data))["rules"][0]["value"]
        assert (again, type(again)) == (value, type(value))
    odd = replace(from_json(Cliffs, data), missing_share=float("nan"))
    assert to_json(odd)["missing_share"] is None


@EVERY
def test_every_field_has_a_description_and_every_number_a_unit(file: ResultFile) -> None:
    schema = file.schema()
    for name, definition in {file.name: schema, **schema["$defs"]}.items():
        assert definition["description"], name
        for field, described in definition["properties"].items():
            assert described.get("description") or "$ref" in described, f"{name}.{field}"
    for kind in _declarations(file.model):
        for field, hint in get_type_hints(kind, include_extras=True).items():
            assert not _bare_numbers(hint), f"{kind.__name__}.{field} has a number without a unit"


def _declarations(model: type[Any]) -> set[type[Any]]:
    found, todo = set(), [model]
    while todo:
        if (kind := todo.pop()) in found:
            continue
        found.add(kind)
        for hint in get_type_hints(kind, include_extras=True).values():
            todo += [one for one in _parts(hint) if isinstance(one, type) and is_dataclass(one)]
    return found


def _parts(hint: Any) -> list[Any]:
    return [hint, *(part for one in get_args(hint) for part in _parts(one))]


def _bare_numbers(hint: Any) -> set[type[Any]]:
    """Number types in ``hint`` that no unit is stated for."""
    if hint in (int, float):
        return {hint}
    if any(isinstance(one, Unit) for one in getattr(hint, "__metadata__", ())):
        return set()
    if getattr(hint, "__origin__", None) is Literal:
        return set()
    return {number for one in get_args(hint) for number in _bare_numbers(one)}


@dataclass(frozen=True)
class Turn:
    """One turn."""

    tokens: Annotated[Tokens, "length of the turn"]


@dataclass(frozen=True)
class Dialogue:
    """A result of another experiment."""

    schema_version: Annotated[Literal["1.0"], "of this file's format"]
    turns: Annotated[Sequence[Turn], "in order"]
    lost: Annotated[Count | None, "turns without an answer"] = None


def test_a_new_kind_of_result_needs_its_declaration_only(tmp_path: Path) -> None:
    dialogue = Dialogue("1.0", [Turn(3), Turn(4)])
    write_result(tmp_path / "dialogue.json", dialogue)
    assert read_result(tmp_path / "dialogue.json", Dialogue) == dialogue
    schema = ResultFile("dialogue", Dialogue, "A dialogue").schema()
    validator = Draft202012Validator(schema)
    validator.validate(json.loads((tmp_path / "dialogue.json").read_bytes()))
    assert schema["required"] == ["schema_version", "turns"]
    assert schema["$defs"]["Turn"]["properties"]["tokens"] == {
        "type": "integer",
        "description": "length of the turn",
        "unit": "tokens",
        "minimum": 0,
    }
    bad = copy.deepcopy(to_json(dialogue))
    bad["turns"][1]["tokens"] = "4"
    with pytest.raises(ResultError, match=r"^turns\[1\]\.tokens is '4', not an integer$"):
        from_json(Dialogue, bad)

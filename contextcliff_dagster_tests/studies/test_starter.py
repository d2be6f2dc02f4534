"""A new study file reads back as the study it was written from, and each line offered is valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.studies import Study, find_study
from contextcliff_dagster.studies.starter import OPTIONAL, study_text

_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=20)


@given(
    path=_TEXTS,
    description=_TEXTS,
    model=_TEXTS,
    questions=st.sampled_from(["recall", "q.csv", None]),
    tolerance=st.floats(0.01, 0.99),
    primary=st.sampled_from(["em", "f1", "contained"]),
    count=st.integers(1, 20),
)
@example(
    path="a", description="-", model="a: b", questions=None, tolerance=0.3, primary="em", count=1
)
@example(
    path="?",
    description="a\u2028b",
    model="-",
    questions=None,
    tolerance=0.3,
    primary="em",
    count=1,
)
def test_the_file_is_the_study(
    path: str,
    description: str,
    model: str,
    questions: str | None,
    tolerance: float,
    primary: str,
    count: int,
) -> None:
    corpus = {"kind": "folder", "path": path} | ({"questions": questions} if questions else {})
    study = Study.model_validate(
        {
            "name": "mine",
            "description": description,
            "corpus": corpus,
            "tokenizer": "tiktoken:o200k_base",
            "bins": {"count": count},
            "models": [model],
            "scoring": {"primary": primary},
            "analysis": {"tolerance": tolerance},
        }
    )
    text = study_text(study, "About.")
    assert Study.model_validate(yaml.safe_load(text)) == study


@pytest.mark.parametrize("line", [line for line, _ in OPTIONAL])
def test_each_line_that_is_offered_is_valid(line: str) -> None:
    given = {"name": "a", "corpus": {"kind": "file", "path": "x"}, "tokenizer": "reference"}
    study = Study.model_validate({**given, "models": ["m"], **yaml.safe_load(line)})
    (key,) = yaml.safe_load(line)
    assert key in study.model_fields_set | study.sections.keys()


def test_a_study_file_beside_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    with pytest.raises(StudyError, match=r"but a file mine\.yaml: use its path"):
        find_study("mine")
    with pytest.raises(StudyError, match=r"there are .*quick"):
        find_study("yours")

"""`--prompt`, `--replicates`, `--tolerance`, `--score`: what is bought again, and what is not."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.cli.study_selection import as_asked, choose_study, keep_definition
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.inference.requests.recipe import DEFAULT_INSTRUCTION, NEUTRAL_WORDINGS
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study, kept_in
from contextcliff_dagster_tests.support.files import warehouse_files
from contextcliff_dagster_tests.support.measured_stores import FEW, FEW_CALLS, copy_of_few
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call


def chosen(**options: Any) -> Study:
    study = choose_study(StudyOptions(**{"study": "quick", **options}))
    keep_definition(study, Store.default())
    return study


def result(*args: str) -> dict[str, Any]:
    ended = call(*args, "--json")
    assert ended.code == 0, ended
    return dict(json.loads(ended.out))


def test_wordings_are_neutral_and_of_like_length() -> None:
    assert NEUTRAL_WORDINGS[0] == DEFAULT_INSTRUCTION
    assert len(set(NEUTRAL_WORDINGS)) == len(NEUTRAL_WORDINGS) == 10
    for wording in NEUTRAL_WORDINGS:
        assert wording.count("{question}") == 1
        words = wording.replace("{question}", "").split()
        assert len(words) <= 5
        asks_for_more = {"answer", "please", "brief", "briefly", "short", "step", "think", "only"}
        assert not asks_for_more & {word.lower().strip(":") for word in words}


def test_replicates_reuse_what_is_paid_and_are_named_in_the_records(
    tmp_path_factory: pytest.TempPathFactory, contextcliff_home: Path
) -> None:
    shutil.copytree(copy_of_few(tmp_path_factory), contextcliff_home, dirs_exist_ok=True)
    before = result("profile", "quick", *FEW)
    done = result("profile", "quick", *FEW, "--replicates", "3")
    assert done["study"] == "quick-3-replicates"
    assert done["campaign"] == before["campaign"]
    assert done["calls"]["reference-short"]["cached"] == FEW_CALLS
    assert done["calls"]["reference-short"]["sent"] == 2 * FEW_CALLS
    (cliffs,), (single,) = done["cliffs"], before["cliffs"]
    assert (cliffs["n"], cliffs["n_documents"]) == (single["n"], single["n_documents"])
    assert {b["instability"] for b in single["bins"]} == {None}
    assert all(0 <= b["instability"] <= 0.58 for b in cliffs["bins"])
    shown = call("report", "quick-3-replicates")
    assert re.search(r"between wordings .* SD of 0\.\d\d", shown.out.replace("\n", " ")), shown
    files = (contextcliff_home / done["study"] / "eval_records").rglob("*.parquet")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert {(row["replicate"], row["instruction"]) for row in rows} == {
        *enumerate(NEUTRAL_WORDINGS[:3])
    }


def test_a_study_without_campaign_joins_that_of_the_one_it_varies(
    tmp_path_factory: pytest.TempPathFactory, contextcliff_home: Path
) -> None:
    shutil.copytree(copy_of_few(tmp_path_factory), contextcliff_home, dirs_exist_ok=True)
    assert call("campaign", "new", "quick", "--name", "earlier").code == 0
    done = result("profile", "quick", *FEW)
    assert done["campaign"] == "earlier"
    again = result("profile", "quick", *FEW, "--replicates", "2")
    assert (again["campaign"], again["calls"]["reference-short"]["sent"]) == ("earlier", FEW_CALLS)
    refused = call("profile", "quick", *FEW, "--seed", "9", "--campaign", "erlier")
    assert_one_sentence(refused, "erlier")


def test_tolerance_and_score_cost_no_call(
    tmp_path_factory: pytest.TempPathFactory, contextcliff_home: Path
) -> None:
    shutil.copytree(copy_of_few(tmp_path_factory), contextcliff_home, dirs_exist_ok=True)
    measured = result("profile", "quick", *FEW)["cliffs"][0]
    strict = result("profile", "quick", *FEW, "--tolerance", "10%", "--score", "contained")
    assert strict["calls"]["reference-short"]["sent"] == 0
    assert strict["study"] == "quick"
    cliffs = strict["cliffs"][0]
    assert (cliffs["tolerance"], cliffs["score"]["name"]) == (0.1, "contained")
    reported = result("report", "quick", "--tolerance", ".2", "--score", "numeric,f1")["cliffs"][0]
    assert (reported["tolerance"], reported["score"]["name"]) == (0.2, "f1")
    assert result("report", "quick")["cliffs"][0]["bins"] == measured["bins"]


def test_judging_changes_neither_sample_nor_recipe_nor_what_is_kept() -> None:
    options = StudyOptions("quick", tolerance=0.1, score=("numeric", "f1"))
    study = choose_study(options)
    asked = as_asked(study, options)
    assert study.model_dump() == find_study("quick").model_dump()
    assert asked.manifest_spec_hash() == study.manifest_spec_hash()
    assert asked.recipe().hash == study.recipe().hash
    assert asked.analysis.tolerance == 0.1
    assert (asked.scoring.scorer, asked.scoring.primary) == ("numeric", "f1")


def test_data_of_ones_own_keeps_how_it_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    warehouse_files.write(path, warehouse_files.rows())
    own = {"study": None, "data": path, "models": ("reference-short",)}
    study = chosen(**own, tolerance=0.1, score=("em",))
    assert study.name == chosen(**own).name
    chosen(**own, tolerance=0.1, score=("em",))
    kept = find_study(study.name)
    assert (kept.analysis.tolerance, kept.scoring.primary) == (0.1, "em")


def test_a_prompt_is_part_of_the_study_and_of_its_name(tmp_path: Path) -> None:
    file, copy = tmp_path / "p.txt", tmp_path / "q.txt"
    for one in (file, copy):
        one.write_text("Text:\n{document}\n\nAsked: {question}\n", encoding="utf-8")
    study = chosen(prompt=file)
    assert re.fullmatch(r"quick-prompt-[0-9a-f]{6}", study.name)
    assert chosen(prompt=copy).name == study.name
    file.unlink()
    assert find_study(study.name).recipe().template.startswith("Text:")
    assert study.recipe().hash != find_study("quick").recipe().hash
    assert study.manifest_spec_hash() == find_study("quick").manifest_spec_hash()
    copy.write_text("{question} {document}", encoding="utf-8")
    assert chosen(prompt=copy).name != study.name


@example(text="\x85\u2028\u2029")
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_any_text_around_the_places_survives_being_kept(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.mktemp("p") / "p.txt"
    template = f"{text}{{document}}{text[::-1]}{{question}}"
    file.write_bytes(template.encode())
    if template.count("{document}") == template.count("{question}") == 1:
        name = chosen(prompt=file).name
        assert find_study(name).recipe().template == template
        # A study is looked for among all that are kept: a thousand would take a thousand times.
        (kept_in(Store.default().root) / f"{name}.yaml").unlink()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Only {question}", "{document} 0 times"),
        (b"{document}{document}{question}", "{document} 2 times"),
        (b"{document}\xff{question}", "UTF-8"),
        (b"{document}{question}" + b"x" * (1 << 18), "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_prompt_that_is_none_is_one_sentence(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "p.txt"
    if content is not None:
        file.write_bytes(content)
    ended = call("profile", "quick", "--prompt", str(file))
    assert_one_sentence(ended, "--prompt", "p.txt", words)


def test_wordings_of_the_study_are_used_and_must_suffice(tmp_path: Path) -> None:
    (tmp_path / "ways.txt").write_text("Find:\nTell:\n", encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ncorpus: {kind: reference, documents: 60}\ntokenizer: reference\n"
        "models: [reference-short]\nprompt: {instructions: ways.txt}\n",
        encoding="utf-8",
    )
    assert chosen(study=str(file), replicates=2).recipe().instructions == ("Find:", "Tell:")
    assert chosen(study=str(file), replicates=1).name == "mine"
    ended = call("profile", str(file), "--replicates", "3")
    assert_one_sentence(ended, "3 replicates", "2 wordings")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tolerance", "30"), ("--tolerance", "10%")),
        (("--score", "em,f1"), ("em, f1", "choose one")),
        (("--score", "text,numeric"), ("text, numeric", "choose one")),
        (("--score", "bleu"), ("bleu", "contained", "numeric")),
        (("--replicates", "11"), ("10", "instructions")),
        (("--sentinel", "--tolerance", "10%"), ("--sentinel", "--tolerance")),
    ],
)
def test_what_cannot_be_meant(options: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert_one_sentence(call("profile", "quick", *options), *words)


def test_a_study_without_length_profile_has_nothing_to_judge(tmp_path: Path) -> None:
    from contextcliff_dagster.cli.study_selection import _refuse_without_profile

    study = find_study("quick").model_copy(update={"name": "bare"})
    with pytest.raises(StudyError, match=r"'bare' names no corpus.*--prompt and --tolerance"):
        _refuse_without_profile(study, StudyOptions("bare", prompt=tmp_path, tolerance=0.1))


_PARTS: dict[str, Any] = {
    "tasks": ("two_hop",),
    "seed": 3,
    "replicates": 2,
    "questions_per_document": 3,
}


def test_options_combine_and_each_combination_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Whatever goes with --questions-per-document: it is in sample and corpus, and in the name."""
    prompt = tmp_path / "p.txt"
    prompt.write_text("{document} {question}", encoding="utf-8")
    path = tmp_path / "own.jsonl"
    warehouse_files.write(path, warehouse_files.rows())
    parts = {**_PARTS, "prompt": prompt}
    names: set[str] = set()
    combinations = [
        set(some) for size in range(len(parts) + 1) for some in itertools.combinations(parts, size)
    ]
    for some in combinations:
        study = chosen(**{name: parts[name] for name in some})
        names.add(study.name)
        assert study.prompt.replicates == (2 if "replicates" in some else 1)
        assert study.sampling.seed == (3 if "seed" in some else 0)
        most = 3 if "questions_per_document" in some else 1
        assert study.sampling.questions_per_document == most
        assert int(study.corpus_options.get("questions", 1)) == most
    assert len(names) == len(combinations)
    own = {"study": None, "data": path, "models": ("reference-short",)}
    both = chosen(**own, questions_per_document=2, replicates=2, seed=4)
    assert (both.sampling.questions_per_document, both.prompt.replicates) == (2, 2)
    assert both.name.endswith("-seed-4-2-replicates")

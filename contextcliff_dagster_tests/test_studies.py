"""Study files: what they say is measured; what they say wrongly is named by file, line, key."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster.studies import Study, find_study, load_studies, load_study

MINIMAL = """\
name: mine
corpus:
  kind: reference
tokenizer: reference
models: [reference-short]
"""


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_studies_are_there() -> None:
    studies = load_studies()
    assert {"reference", "quick", "openai-example", "reference-two-hop"} <= set(studies)
    assert studies["quick"].bins.count == 5
    assert (studies["reference"].bins.count, studies["reference"].sampling.samples_per_bin) == (
        10,
        20,
    )


def test_shipped_studies_name_known_models_and_render_their_recipe() -> None:
    models = load_models()
    for study in load_studies().values():
        assert study.description, study.name
        assert all(name in models for name in study.models), study.name
        assert study.recipe().replicates == study.prompt.replicates


def test_a_limit_on_the_first_token_reaches_the_analysis(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, f"{MINIMAL}latency: {{ttft_ms_p95: 2000}}\n"))
    assert study.analysis_settings().ttft_limit_ms == 2_000
    assert study.changed(latency=None).analysis_settings().ttft_limit_ms is None


def test_a_paid_example_has_a_hard_budget() -> None:
    assert load_studies()["openai-example"].budget.usd is not None


@pytest.mark.parametrize(
    ("line", "instead", "key", "number"),
    [
        ("name: mine", "name: mine\nscorings: {}", "scorings", 2),
        ("tokenizer:", "tokenizr:", "tokenizr", 4),
        ("models: [reference-short]", "models: reference-short", "models", 5),
        ("models: [reference-short]", "models: [reference-short, reference-short]", "models", 5),
        ("models: [reference-short]", "models: [Reference-Short, reference-short]", "models", 5),
        ("  kind: reference", "  kind: 7", "corpus.kind", 3),
        ("name: mine", "name: My Study", "name", 1),
        ("name: mine", "name: mine\nbins: {count: ten}", "bins.count", 2),
        ("name: mine", "name: mine\nlatency: {ttft_ms_p95: 0}", "latency.ttft_ms_p95", 2),
        ("name: mine", "name: mine\nbins: {kind: fixed}", "bins", 2),
        ("name: mine", "name: mine\nsampling: {samples_per_bin: 0}", "sampling.samples_per_bin", 2),
        ("name: mine", "name: mine\nprompt: {replicates: 11}", "prompt", 2),
        ("name: mine", "name: mine\nprompt: {mode: chat_prefill}", "prompt", 2),
        ("name: mine", "name: mine\nprompt: {answer_prefix: It is}", "prompt", 2),
        ("name: mine", "name: mine\nscoring: {primary: accuracy}", "scoring.primary", 2),
    ],
)
def test_a_wrong_key_is_named_with_file_and_line(
    tmp_path: Path, line: str, instead: str, key: str, number: int
) -> None:
    path = write(tmp_path, MINIMAL.replace(line, instead))
    with pytest.raises(StudyError) as caught:
        load_study(path)
    message = str(caught.value)
    assert str(path) in message
    assert f"line {number}" in message
    assert repr(key) in message


def test_a_misspelt_required_key_is_told_its_spelling(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="did you mean 'tokenizer'"):
        load_study(write(tmp_path, MINIMAL.replace("tokenizer:", "tokenizr:")))


def test_a_folder_of_ones_own_adds_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, MINIMAL)
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path))
    assert find_study("mine").models == ("reference-short",)
    assert "reference" in load_studies()


def test_ones_own_study_replaces_the_shipped_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, MINIMAL.replace("mine", "quick"))
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path))
    assert find_study("quick").models == ("reference-short",)


def test_two_files_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, MINIMAL)
    write(tmp_path, MINIMAL, "again.yaml")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path))
    with pytest.raises(StudyError, match=r"again\.yaml and .*mine\.yaml"):
        find_study("mine")
    assert {"quick", "reference"} <= load_studies().keys()


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path / "no"))
    with pytest.raises(StudyError, match="CONTEXTCLIFF_STUDIES"):
        load_studies()


def test_an_unknown_study_lists_those_there_are() -> None:
    with pytest.raises(StudyError, match=r"'nope'.*quick, reference"):
        find_study("nope")


CRONS = {
    "61 * * * *": "minute",
    "* 24 * * *": "hour",
    "0 0 0 * *": "day",
    "0 0 1 13 *": "month",
    "0 0 * * 8": "weekday",
    "0 0 * * !": "means nothing",
    "*/0 * * * *": "means nothing",
    "0 5 * *": "five fields",
}


@pytest.mark.parametrize("cron", CRONS)
def test_a_cron_that_cannot_be_is_named(cron: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"{MINIMAL}schedule: {{cron: '{cron}'}}\n")
    with pytest.raises(StudyError, match=CRONS[cron]):
        load_study(path)


@pytest.mark.parametrize("cron", ["*/15 0-6 1,15 jan-mar MON-FRI", "0 0 L * *", "0 5 * * 7"])
def test_a_cron_that_can_be_is_taken(cron: str, tmp_path: Path) -> None:
    load_study(write(tmp_path, f"{MINIMAL}schedule: {{cron: '{cron}'}}\n"))


def test_a_study_is_found_by_its_file(tmp_path: Path) -> None:
    assert find_study(str(write(tmp_path, MINIMAL))).name == "mine"


def test_prompt_files_are_relative_to_the_study(tmp_path: Path) -> None:
    write(tmp_path, "Be brief.\n", "system.txt")
    write(tmp_path, "{question}\nAgain: {question}\n", "ways.txt")
    text = MINIMAL + "prompt: {system: system.txt, instructions: ways.txt, replicates: 2}\n"
    recipe = load_study(write(tmp_path, text)).recipe()
    assert recipe.system == "Be brief."
    assert recipe.instructions == ("{question}", "Again: {question}")


def test_a_missing_prompt_file_is_named(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, MINIMAL + "prompt: {system: gone.txt}\n"))
    with pytest.raises(StudyError, match=r"prompt\.system.*no such file"):
        study.recipe()


def test_too_few_wordings_for_the_replicates_are_named(tmp_path: Path) -> None:
    write(tmp_path, "{question}\n", "ways.txt")
    text = MINIMAL + "prompt: {instructions: ways.txt, replicates: 3}\n"
    with pytest.raises(StudyError, match=r"3 replicates .* 1 wording"):
        load_study(write(tmp_path, text)).recipe()


def test_corpus_and_tokenizer_paths_are_relative_to_the_study(tmp_path: Path) -> None:
    text = MINIMAL.replace("kind: reference", "kind: file\n  path: data.jsonl")
    study = load_study(
        write(tmp_path, text.replace("tokenizer: reference", "tokenizer: file:t.json"))
    )
    assert study.corpus_options["path"] == str(tmp_path / "data.jsonl")
    assert study.tokenizer_name == f"file:{tmp_path / 't.json'}"


def test_moving_study_and_data_together_keeps_the_manifest(tmp_path: Path) -> None:
    text = MINIMAL.replace("kind: reference", "kind: file\n  path: data.jsonl")
    hashes = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        hashes.append(load_study(write(tmp_path / name, text)).manifest_spec_hash())
    assert hashes[0] == hashes[1]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return load_study(write(tmp_path, MINIMAL))


def test_what_does_not_change_the_sample_does_not_redraw_it(study: Study) -> None:
    known = study.manifest_spec_hash()
    assert study.with_models(["reference-long"]).manifest_spec_hash() == known
    assert study.with_samples(50).manifest_spec_hash() == known


def test_another_seed_is_another_study_over_other_documents(study: Study) -> None:
    other = study.with_seed(7)
    assert other.name == "mine-seed-7"
    assert other.corpus.options["seed"] == 7
    assert other.manifest_spec_hash() != study.manifest_spec_hash()
    assert study.with_seed(study.sampling.seed) is study


def test_bin_keys_depend_on_the_count_alone(study: Study) -> None:
    assert study.bin_keys == tuple(f"b{n:02d}" for n in range(10))

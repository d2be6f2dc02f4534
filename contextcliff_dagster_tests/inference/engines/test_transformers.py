"""Local weights through transformers: the same answers as the built-in runtime, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, Delta, Engine
from contextcliff_dagster.inference.engines.reference import ReferenceEngine
from contextcliff_dagster.inference.engines.transformers import (
    TransformersEngine,
    transformers_identity,
)
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster.run.study import prepare_study, profile_study
from contextcliff_dagster.studies import find_study
from contextcliff_dagster_tests.support.records.calls import LedgerSample, reference_entry

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

T = TypeVar("T")
SAMPLE = LedgerSample(1, 3, max_tokens=200)
RECIPES = [
    Recipe(template="{document}{question}"),
    Recipe(template="{document}{question}", system="Be brief."),
    Recipe("chat_prefill", template="{document}{question}", answer_prefix="9"),
    Recipe("completion", template="{document}{question}"),
]


def entry(**changes: Any) -> ModelEntry:
    weights = str(weights_path("reference-short"))
    values = {"engine": "transformers", "weights": weights, "threads": 1}
    return ModelEntry.model_validate({"name": "through-torch", **values, **changes})


def with_engine(engine: Engine, work: Callable[[Any], Awaitable[T]]) -> T:
    async def main() -> T:
        await engine.start()
        try:
            return await work(engine)
        finally:
            await engine.stop()
            await engine.stop()

    return asyncio.run(main())


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_mode_is_read_and_answered_as_by_the_built_in_runtime(recipe: Recipe) -> None:
    prompts = [
        recipe.render(SAMPLE.document_text(s.example.document_id), s.example.question)
        for s in SAMPLE.planned("b00", 3)
    ]

    async def work(engine: Any) -> list[Any]:
        found: list[Any] = [engine.encode(prompt) for prompt in prompts]
        for prompt in prompts:
            count = await engine.count_prompt_tokens(prompt)
            answer = await ask(engine, prompt, Decoding(8))
            assert answer.usage
            assert answer.usage.prompt_tokens == count.tokens
            assert answer.first_token is None or answer.started < answer.first_token
            found.append((answer.text, answer.finish_reason))
        return found

    ours = with_engine(ReferenceEngine(reference_entry()), work)
    assert with_engine(TransformersEngine(entry()), work) == ours


def test_tokens_come_one_by_one() -> None:
    sample = SAMPLE.planned("b00", 1)[0]
    text = SAMPLE.document_text(sample.example.document_id)
    prompt = Recipe().render(text, sample.example.question)

    async def work(engine: TransformersEngine) -> list[Delta]:
        return [delta async for delta in engine.stream(prompt, Decoding(6))]

    deltas = with_engine(TransformersEngine(entry()), work)
    times = [delta.at or 0.0 for delta in deltas]
    assert len([delta for delta in deltas if delta.text]) > 1
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_the_quick_study_has_the_same_answers_through_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    from contextcliff_dagster.store import Store

    models = tmp_path / "models.yaml"
    models.write_text(
        "models:\n  through-torch:\n    engine: transformers\n    window_tokens: 8192\n"
        f"    weights: {weights_path('reference-short')}\n    dtype: float32\n"
    )
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    study = find_study("quick").with_models(["reference-short", "through-torch"]).with_samples(3)
    prepare_study(study)
    done = profile_study(study)
    assert {c.model for c in done.cliffs} == {"reference-short", "through-torch"}
    answers: dict[str, dict[str, str]] = {"reference-short": {}, "through-torch": {}}
    folder = Store.default().campaign_dir("predictions", study.name, done.campaign)
    for path in folder.rglob("*.parquet"):
        with pq.ParquetFile(path) as file:
            for row in file.read().to_pylist():
                answers[row["model"]][row["example_id"]] = row["raw_output"]
    ours, theirs = answers.values()
    assert len(ours) == 15
    assert theirs == ours
    assert profile_study(study).calls["through-torch"].sent == 0


def test_what_changes_answers_is_in_the_identity() -> None:
    base = transformers_identity(entry())
    for changes in (
        {"dtype": "bfloat16"},
        {"attention": "eager"},
        {"rope_scaling": {"rope_type": "linear", "factor": 2}},
        {"window_tokens": 100},
        {"weights": str(weights_path("reference-long"))},
    ):
        assert transformers_identity(entry(**changes)) != base
    assert transformers_identity(entry(threads=2, concurrency=2)) == base
    assert {"runtime", "dtype", "attention", "weights_sha256"} <= set(base)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"attention": "eager"},
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ],
)
def test_a_setting_reaches_the_model(changes: dict[str, Any]) -> None:
    async def work(engine: TransformersEngine) -> Any:
        model = engine._model
        return {
            "dtype": str(model.dtype).removeprefix("torch."),
            "attention": model.config._attn_implementation,
            "rope_scaling": {
                k: model.config.rope_parameters.get(k) for k in ("rope_type", "factor")
            },
            "device": engine.identity().fields["server_device"],
        }

    returned = with_engine(TransformersEngine(entry(**changes)), work)
    for name, value in changes.items():
        assert returned[name] == value
    assert returned["device"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dtype": "int3"}, "'int3'"),
        ({"weights": str(Path(__file__).parent)}, "has no config.json"),
    ],
)
def test_a_wrong_setting_is_one_sentence(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(EngineError, match=says):
        TransformersEngine(entry(**changes))


def test_damaged_weights_are_one_sentence(tmp_path: Path) -> None:
    for path in weights_path("reference-short").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"not weights")

    async def work(engine: TransformersEngine) -> None: ...

    with pytest.raises(EngineError, match=r"transformers cannot load .* \("):
        with_engine(TransformersEngine(entry(weights=str(tmp_path))), work)

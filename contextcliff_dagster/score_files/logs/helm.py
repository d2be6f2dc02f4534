"""Runs of Stanford HELM: a folder with `per_instance_stats.json` (scores), `scenario_state.json`
(prompts and answers) and `run_spec.json` (model and scenario).

Source of the formats: `src/helm/benchmark/runner.py` and the data classes `PerInstanceStats`,
`Stat`, `ScenarioState`, `RequestState` of HELM (Liang et al. 2022, arXiv 2211.09110). An item of
the statistics is `{"instance_id", "train_trial_index", "perturbation", "stats": [{"name": {"name"},
"count", "mean"}]}`, and an instance has several of them; `num_prompt_tokens` is among the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Log,
    LogOptions,
    chat_text,
    listed,
    mapping,
    name_of,
    number,
)
from contextcliff_dagster.score_files.logs.members import rows_of, walk

TOOL = "HELM"

_STATS, _STATE, _SPEC = "per_instance_stats.json", "scenario_state.json", "run_spec.json"
_NO_SCORES = (
    "num_", "finish_reason_", "inference_", "training_", "estimated_", "batch_size", "max_prob",
    "logprob", "perplexity", "bits_per_byte", "prompt_truncated", "predicted_index",
)  # fmt: skip
"""Prefixes of statistics names that are counts or times."""
_CUT = "to prompts that were cut to fit the model's window"
_PERTURBED = "to questions that were perturbed"

_Key = tuple[str, str, bool]
"""An answer's instance and trial, and whether its question was perturbed."""
_Stats = dict[str, float]


def read_run(path: Path, options: LogOptions) -> Log:
    """Read the log of the run to which the statistics or scenario state in ``path`` belongs.

    Texts are read from the scenario state, if ``path`` is that file or ``options`` need them.
    """
    of_state = path.name.startswith(_STATE) or not path.name.startswith(_STATS)
    stats = path.with_name(_STATS) if of_state else path
    state = path if of_state else path.with_name(_STATE)
    known = _stats(stats) if stats.is_file() else {}
    has_text = of_state or options.tokenizer is not None or options.own_score is not None
    run = path.with_name(_SPEC)
    spec: Mapping[str, Any] = dict(walk(run)) if run.is_file() else {}
    scenario = name_of(mapping(spec.get("scenario_spec")).get("class_name")) or ""
    adapter = mapping(spec.get("adapter_spec"))
    answers = (_answer(key, stats) for key, stats in known.items())
    return Log(
        path,
        TOOL,
        _of_state(state, known) if has_text and state.is_file() else answers,
        model=name_of(adapter.get("model")) or name_of(adapter.get("model_deployment")),
        task=scenario.rpartition(".")[2].removesuffix("Scenario") or None,
        no_text=f"HELM keeps the prompts in {_STATE}, which is not next to it",
    )


def _stats(path: Path) -> dict[_Key, _Stats]:
    """Return the statistics of each answer."""
    stats_by_key: dict[_Key, _Stats] = {}
    for row in map(mapping, rows_of(path)):
        key = _key(row.get("instance_id"), row, row.get("perturbation"))
        of_answer = stats_by_key.setdefault(key, {})
        for stat in listed(row.get("stats")):
            name = name_of(mapping(mapping(stat).get("name")).get("name"))
            if name is not None and (mean := number(mapping(stat).get("mean"))) is not None:
                of_answer[name] = mean
    return stats_by_key


def _key(instance: Any, row: Mapping[str, Any], perturbation: Any) -> _Key:
    trial = name_of(row.get("train_trial_index")) or "0"
    return name_of(instance) or "", trial, bool(perturbation)


def _answer(key: _Key, stats: _Stats) -> Answer:
    instance, _, perturbed = key
    tokens = stats.get("num_prompt_tokens")
    cut = _CUT if stats.get("prompt_truncated") else None
    return Answer(
        example=instance or None,
        scores={k: v for k, v in stats.items() if not k.startswith(_NO_SCORES)},
        length=tokens,
        prompt_tokens=tokens,
        completion_tokens=stats.get("num_completion_tokens", stats.get("num_output_tokens")),
        error=_PERTURBED if perturbed else cut,
    )


def _of_state(path: Path, known: Mapping[_Key, _Stats]) -> Iterator[Answer]:
    seen: set[_Key] = set()
    for name, value in walk(path, "request_states"):
        if name != "request_states" or not isinstance(value, dict):
            continue
        instance = mapping(value.get("instance"))
        key = _key(instance.get("id"), value, instance.get("perturbation"))
        if key in seen:  # a request for each option of one question
            continue
        seen.add(key)
        answer = _answer(key, known.get(key, {}))
        _add_texts(answer, value, instance)
        yield answer


def _add_texts(answer: Answer, state: Mapping[str, Any], instance: Mapping[str, Any]) -> None:
    request, result = mapping(state.get("request")), mapping(state.get("result"))
    answer.text = name_of(request.get("prompt")) or chat_text(request.get("messages")) or None
    answer.of_prompt = True
    first = mapping(next(iter(listed(result.get("completions"))), None))
    if isinstance(text := first.get("text"), str):
        answer.output = name_of(mapping(state.get("output_mapping")).get(text.strip())) or text
    references = [mapping(reference) for reference in listed(instance.get("references"))]
    correct = [reference for reference in references if "correct" in listed(reference.get("tags"))]
    accepted = (name_of(mapping(reference.get("output")).get("text")) for reference in correct)
    answer.accepted = [text for text in accepted if text is not None]
    if result.get("success") is False:
        answer.error = "that ended in an error"
    elif state.get("prompt_truncated") and answer.error is None:
        answer.error = _CUT

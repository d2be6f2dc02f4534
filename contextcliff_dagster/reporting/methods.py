"""How results came about, as a paragraph for a paper's methods section; and what to cite.

Belongs here: sentences whose every fact is in the results. Does not belong here: what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting import wording

TITLE, AUTHOR = "ContextCliff for Dagster", "The ContextCliff maintainers"


def citation() -> str:
    """Return a BibTeX entry for the installed version of this software."""
    version = metadata.version("contextcliff-dagster")
    fields = f"title = {{{TITLE}}},\n  author = {{{{{AUTHOR}}}}},\n  version = {{{version}}}"
    return f"@software{{contextcliff,\n  {fields}\n}}"


def methods(results: Sequence[Cliffs]) -> str:
    """Return the paragraph; what ``results`` do not record, as of existing scores, is left out.

    ``results``: of one analysis, whose settings they share.
    """
    sentences = [*_sample(results), *_answers(results), *_analysis(results)] if results else []
    return " ".join(f"{sentence}." for sentence in sentences)


def _sample(results: Sequence[Cliffs]) -> Iterable[str]:
    names = wording.labels(results)
    measured = "recipe" in results[0].provenance["hashes"]
    who = names[0] if len(names) == 1 else f"{len(names)} models ({', '.join(names)})"
    head = f"We measured {who} on" if measured else f"We analysed existing scores of {who}:"
    tasks, tokenizers = (_each(getattr(r, key) for r in results) for key in ("task", "tokenizer"))
    noun, _, unit = wording.length_axis(results).partition(" in ")
    reach = _range(end for result in results for end in wording.measured_range(result) or ())
    yield (
        f"{head} {_each(map(wording.amount, results))}{tasks and f' (task {tasks})'}, with "
        f"{noun}s of {reach} {unit}{tokenizers and f' ({tokenizers} tokenizer)'}"
    )
    sizes = _range(b.n for result in results for b in result.bins)
    bins = f"{_range(len(result.bins) for result in results)} length bins"
    if measured:
        seed = _each(result.provenance["seeds"].get("sampling") for result in results)
        drawn = seed and f" (seed {seed})"
        yield f"The sample was stratified into {bins}{drawn}, with n = {sizes} in each"
    elif sizes != "0":
        yield f"Mean scores are given for {bins}, with n = {sizes} in each"


def _answers(results: Sequence[Cliffs]) -> Iterable[str]:
    request: Any = results[0].provenance.get("request")
    if request:
        natural = "Documents were sent whole, at their natural length, neither cut nor padded"
        made = request.get("manufactured_lengths")
        yield f"Document lengths were manufactured (tasks: {made})" if made else natural
        omitted = any(r.provenance.get("identity", {}).get("temperature") for r in results)
        heat = f"temperature {request['temperature']:g}"
        if omitted:
            heat += ", or at the server's default where it takes no other"
        times = sorted(t for r in results for t in r.provenance["times"].values() if t)
        dates = _joined(time[:10] for time in [*times[:1], *times[-1:]])
        limit = f"Answers of at most {wording.tokens(request['max_output_tokens'])} tokens"
        yield f"{limit} were generated at {heat}{dates and f' ({dates})'}"
        if (wordings := request["replicates"]) > 1:
            yield f"Scores were averaged over {wordings} wordings of each question"
    if (name := _each(map(wording.score_name, results))) != "score":
        yield f"Answers were scored by {name}, on a scale from 0 to {results[0].score.scale}"
    if missing := sum(result.missing.total for result in results):
        yield f"No mean includes the {wording.count(missing, 'call')} without an answer"


def _analysis(results: Sequence[Cliffs]) -> Iterable[str]:
    first, known = results[0], [r.baseline for r in results if r.baseline.to_tokens is not None]
    confidence, unit = wording.level(first.confidence), wording.length_axis(results).split()[-1]
    if known:
        ends, n = (_range(getattr(base, key) for base in known) for key in ("to_tokens", "n"))
        region = f"n = {n}, the longest {ends} {unit}"
        yield f"A model's baseline is its mean score at the shortest lengths ({region})"
    if first.method_version == METHOD_VERSION and any(result.curve for result in results):
        yield "We fitted a curve that never rises with length to the scores"
    if any(result.verdict is not Verdict.INSUFFICIENT_DATA for result in results):
        shapes = {result.recovery.assumption for result in results if result.recovery}
        falling = ", assuming that a model that fails at a length also fails at longer ones"
        yield (
            f"The safe context cap is the largest length up to which, with {confidence} "
            f"confidence, the score stays within {wording.level(first.tolerance)} of the baseline"
            f"{falling if shapes == {'falling'} else ''}"
        )
    if first.chance:
        yield f"Losses are measured above the score of guessing, {wording.score(first.chance)}"
    if any(b.ci_low is not None for result in results for b in result.bins):
        units = "answers" if any(r.n_documents is None for r in results) else "documents"
        yield f"All intervals are {confidence} intervals that treat {units} as independent"
    version = _each(r.provenance["versions"].get("contextcliff-dagster") for r in results)
    details = f"({AUTHOR}; method version {first.method_version or 1})"
    yield f"The analysis was made with contextcliff-dagster{version and f' {version}'} {details}"


def _each(values: Iterable[Any]) -> str:
    """Return the distinct known values: ``a``, ``a, b and c``; empty without any."""
    known = [value for value in values if value is not None and value == value]
    return wording.listed([*dict.fromkeys(map(str, known))])


def _range(values: Iterable[int]) -> str:
    """Return ``7``, ``1,200 to 5,000``, or ``unknown`` without values."""
    known = sorted(values)
    return _joined(map(wording.tokens, [*known[:1], *known[-1:]])) or "unknown"


def _joined(ends: Iterable[str]) -> str:
    return " to ".join(dict.fromkeys(ends))

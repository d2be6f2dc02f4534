"""The data of the interactive picture, and the length profile's HTML page.

The data are columns of rounded numbers and, if requested, the questions and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from contextcliff_dagster.contracts import UNSCORED_TAGS, Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.cliffs import CapAtTolerance
from contextcliff_dagster.contracts.results.json_form import BinMean
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.html.picture import (
    SCRIPT,
    attention_html,
    chip,
    look,
    picture_html,
)
from contextcliff_dagster.reporting.html.render import (
    Interactive,
    Pictures,
    blocks_html,
    html_page,
    sections_html,
    text,
    visible,
)
from contextcliff_dagster.reporting.length_profile.tables import few_data_blocks
from contextcliff_dagster.reporting.markdown import one_line
from contextcliff_dagster.reporting.sections import Page, as_folds

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_MOST_POINTS = 9_000
"""Maximum number of answers on a page, over all models; more are thinned evenly by length."""


class Evidence(NamedTuple):
    """Evidence behind the results that the page shows.

    ``records``: EVAL_RECORDS of all models, for the single answers in the picture. ``scores``:
    model -> score -> bin means, for scores other than the primary one. ``answers``: the table
    `ANSWERS` with questions and answers; None to leave them out of the page. ``how``: the command
    that includes them.
    """

    records: pd.DataFrame | None = None
    scores: Mapping[str, Mapping[str, Sequence[BinMean]]] = {}
    answers: pa.Table | None = None
    how: str = ""

    def renamed(self, names: Mapping[str, str]) -> Evidence:
        """Return a copy with renamed models; ``names``: name as measured -> name as shown."""
        changed = {before: after for before, after in names.items() if before != after}
        if not changed:
            return self
        records, answers = self.records, self.answers
        if records is not None and "model" in records.columns:
            records = records.assign(model=records["model"].replace(changed))
        if answers is not None:
            models = [changed.get(name, name) for name in answers["model"].to_pylist()]
            place = answers.schema.get_field_index("model")
            answers = answers.set_column(place, answers.schema.field(place), [models])
        scores = {changed.get(name, name): means for name, means in self.scores.items()}
        return self._replace(records=records, answers=answers, scores=scores)


NO_EVIDENCE = Evidence()


def payload_of(
    results: Sequence[Cliffs], evidence: Evidence, redact: Callable[[str], str]
) -> dict[str, Any]:
    """Return the data as JSON values; scores have three decimals, lengths are whole tokens.

    ``redact`` is applied to every question and answer. Models are named by `labels`.
    """
    answers, records = evidence.answers, evidence.records
    max_points = max(200, _MOST_POINTS // max(len(results), 1))
    models: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for name, result in zip(wording.labels(results), results, strict=True):
        scores = {result.score.name: result.bins, **evidence.scores.get(result.model, {})}
        names |= {score: wording.SCORE_NAMES.get(score, score) for score in scores}
        model: dict[str, Any] = {
            "name": one_line(name),
            "primary": result.score.name,
            "tolerance": result.tolerance,
            "confidence": result.confidence,
            "chance": result.chance,
            "fits": _fits(result),
            "bins": {
                "key": [b.bin for b in result.bins],
                "from": [b.edge_low for b in result.bins],
                "to": [b.edge_high for b in result.bins],
                "at": [b.median_tokens for b in result.bins],
                "n": [b.n for b in result.bins],
                "missing": [b.missing for b in result.bins],
                "failures": [dict(b.failures or {}) for b in result.bins],
                "scores": {
                    score: {
                        **_columns(bins, ("mean", "ci_low", "ci_high")),
                        # Formatted as in every table: a browser rounds halves differently.
                        "words": [_words(b) for b in bins],
                    }
                    for score, bins in scores.items()
                },
            },
        }
        if answers is None and records is not None:
            from contextcliff_dagster.reporting.figures.report_figure import records_of

            model["points"] = _points(records_of(result, records, len(results)), scores, max_points)
        models.append(model)
    axis = wording.length_axis(results)
    payload = {"models": models, "scores": names, "how": evidence.how, "axis": axis}
    if answers is not None:
        payload |= embedded_answers(answers, results, list(names), redact)
    return payload


def _words(b: Any) -> str:
    return "no answers" if b.mean is None else wording.estimate(b.mean, b.ci_low, b.ci_high)


def _fits(result: Cliffs) -> dict[str, dict[str, Any]]:
    """Return score -> its caps by tolerance, baseline and curve; of all scores with a fit."""
    own = CapAtTolerance(result.tolerance, result.safe_cap_tokens)
    primary = (wording.reference_score(result), result.curve, (*result.caps_by_tolerance, own))
    names = {words: name for name, words in wording.SCORE_NAMES.items()}
    others = {
        names[row.value]: (row.baseline, row.curve, row.caps_by_tolerance)
        for row in result.sensitivity
        if row.factor == "score" and row.curve and row.value in names
    }
    return {
        name: {
            "caps": sorted({cap.tolerance: [*astuple(cap)] for cap in caps}.values()),
            "baseline": rounded(baseline),
            "curve": _columns(curve, ("tokens", "mean", "ci_low", "ci_high")),
        }
        for name, (baseline, curve, caps) in {**others, result.score.name: primary}.items()
    }


def _columns(rows: Iterable[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    rows = list(rows)
    return {
        name: [
            value if isinstance(value := getattr(row, name), int) else rounded(value)
            for row in rows
        ]
        for name in names
    }


def _points(
    rows: pd.DataFrame | None, scores: Iterable[str], most: int
) -> dict[str, list[Any]] | None:
    """Return lengths and scores of single answers, ordered by length; None without them."""
    if rows is None or not {"length_tokens", "score"} <= set(rows.columns):
        return None
    rows = rows[rows["score"].notna() & (rows["length_tokens"] > 0)]
    if "failure" in rows.columns:
        rows = rows[~rows["failure"].isin(UNSCORED_TAGS)]
    rows = rows.sort_values("length_tokens", kind="stable")
    if len(rows) > most:
        rows = rows.iloc[np.linspace(0, len(rows) - 1, most).astype(int)]
    primary, *others = scores
    columns = {primary: "score", **{name: name for name in others if name in rows.columns}}
    return {
        "x": [int(x) for x in rows["length_tokens"].tolist()],
        **{name: [rounded(v) for v in rows[column].tolist()] for name, column in columns.items()},
    }


LIMITS = (2_000, 1_000, 500, 250, 120)
"""Limits on the length of a text, in characters; the first whose total fits ``_ROOM`` is used."""
_ROOM = 1_200_000
_MARGIN = 500
"""Characters beyond the limit that are also searched for secrets, to recognise a cut key."""


def embedded_answers(
    answers: pa.Table,
    results: Sequence[Cliffs],
    scores: Sequence[str],
    redact: Callable[[str], str],
) -> dict[str, Any]:
    """Return ``examples``, ``given`` (columns for each model of ``results``) and ``limit``.

    ``answers``: the length profile's `ANSWERS`. Texts are redacted and shortened. An example's
    question, accepted answers, length and evidence position are stored once; each answer has the
    index of its example. Scores and lengths are rounded as in `payload_of`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    place = {result.model: number for number, result in enumerate(results)}
    is_shown = pc.is_in(answers["model"], value_set=pa.array(place, pa.string()))
    rows = answers.filter(pc.and_(is_shown, pc.is_null(answers["control"]))).to_pydict()
    limit = _limit(rows)

    @cache
    def shown(text: str | None) -> str | None:
        if text is None:
            return None
        # Redacted first: the cut at the limit must not leave half of a secret.
        safe = visible(redact(text[: limit + _MARGIN]))
        return safe if len(text) <= limit else f"{safe[:limit]} […]"

    numbers: dict[str, int] = {}
    examples: dict[str, list[Any]] = {
        name: [] for name in ("x", "position", "document", "question", "accepted")
    }
    model_columns: list[dict[str, list[Any]]] = [
        {name: [] for name in ("example", "answer", "read", "tag", *_score_names(result, scores))}
        for result in results
    ]
    for i, name in enumerate(rows["example_id"]):
        number = place[rows["model"][i]]
        if name not in numbers:
            numbers[name] = len(numbers)
            question, accepted = rows["question"][i], rows["accepted"][i]
            examples["x"].append(rows["length_tokens"][i])
            examples["position"].append(rounded(rows["evidence_position"][i]))
            examples["document"].append(shown(rows["document"][i]))
            examples["question"].append(shown(question))
            examples["accepted"].append(None if accepted is None else [*map(shown, accepted)])
        columns, result = model_columns[number], results[number]
        answer, read = rows["answer"][i], rows["parsed_answer"][i]
        columns["example"].append(numbers[name])
        columns["answer"].append(shown(answer))
        is_repeat = read is None or answer is None or read.strip() == answer.strip()
        columns["read"].append(None if is_repeat else shown(read))
        columns["tag"].append(rows["failure"][i])
        for scored in _score_names(result, scores):
            column = "score" if scored == result.score.name else scored
            columns[scored].append(rounded(rows[column][i]))
    for columns in model_columns:
        if not any(columns["read"]):
            del columns["read"]
    if not any(examples["document"]):
        del examples["document"]
    return {"examples": examples, "given": model_columns, "limit": limit}


def _score_names(result: Cliffs, scores: Sequence[str]) -> list[str]:
    names = [name for name in scores if name in ("em", "f1", "contained")]
    return [result.score.name, *(name for name in names if name != result.score.name)]


def _limit(rows: dict[str, list[Any]]) -> int:
    texts = [text for text in rows["answer"] if text]
    once = {
        row[0]: row
        for row in zip(rows["example_id"], rows["question"], rows["accepted"], strict=True)
    }
    for _, question, accepted in once.values():
        texts += [question or "", *(accepted or ())]
    sizes = [(len(text), len(text.encode(errors="replace"))) for text in texts]
    for limit in LIMITS:
        if sum(size * min(1.0, limit / max(length, 1)) for length, size in sizes) <= _ROOM:
            break
    return limit


def rounded(value: float | None) -> float | int | None:
    """Round to three decimals; return 0 and 1 as integers, None and NaN as None."""
    if value is None or value != value:
        return None
    short = round(float(value), 3)
    return int(short) if short in (0.0, 1.0) else short


def profile_page(
    results: Sequence[Cliffs],
    page: Page,
    evidence: Evidence,
    *,
    title: str,
    pictures: Pictures,
    redact: Callable[[str], str],
    above: str = "",
) -> str:
    """Return ``report.html``: cards, the picture, then ``page`` without its first section.

    ``pictures``: PNG files shown in the folds. ``redact``: applied to questions and answers.
    ``above``: HTML above the cards.
    """
    answer = sections_html([section for section in page.head[1:] if section.first])
    folds = [*as_folds([s for s in page.head[1:] if not s.first]), *page.folds]
    if not results:
        return html_page(title, head_html(results), folds, None, pictures)
    attention = attention_html(results)
    head = above + answer + head_html(results) + picture_html(results) + attention
    picture = Interactive(payload_of(results, evidence, redact))
    if attention:
        picture = picture._replace(scripts=(*picture.scripts, SCRIPT))
    return html_page(title, head, folds, picture, pictures)


def head_html(results: Sequence[Cliffs]) -> str:
    """Return the HTML cards of all models and the meaning of the tolerance."""
    if not results:
        return "<p>No model has a result yet.</p>"
    cards = "".join(map(_card, range(len(results)), wording.labels(results), results))
    names = wording.labels(results)
    meanings = " ".join(wording.tolerance_sentences(results, names))
    if any(result.safe_cap_tokens is not None for result in results):
        meanings += " The band in the picture is wider than the bound behind a cap."
    few = blocks_html(few_data_blocks(results, names))
    return f'<div class="cards">{cards}</div>\n<p>{text(meanings)}</p>\n{few}'


def _card(row: int, name: str, result: Cliffs) -> str:
    cap = result.safe_cap_tokens
    first = ""
    if cap is None:
        big = "No safe cap"
        why = wording.sentence(result.safe_cap_reason) or "The analysis gives no reason."
    else:
        big = f"{wording.tokens(cap)} tokens"
        words = wording.usefulness(result)
        good = f"{words[:1].upper()}{words[1:]} up to there. " if words else ""
        least = ""
        if (full := wording.reference_score(result)) is not None:
            least = wording.score(wording.least_score(result, full))
            least = f", from {wording.score(full)} to {least}"
        why = (
            f"{good}With {wording.level(result.confidence)} confidence, the "
            f"{wording.score_name(result)} loses at most {wording.level(result.tolerance)} of its "
            f"baseline{least}."
        )
        reach = wording.measured_range(result)
        if result.verdict is Verdict.STABLE and reach:
            why += f" Nothing longer than {wording.tokens(reach[1])} tokens was measured."
        lengths = wording.LENGTHS_OF[result.length_unit]
        first = f'<p class="why">Safe cap: keep {lengths} at or below</p>\n'
    base, cliff, documents = result.baseline, result.cliff, result.n_documents
    facts = [
        ("Verdict", wording.VERDICT_PHRASE[result.verdict]),
        ("Examples", wording.tokens(result.n)),
    ]
    if documents is not None and documents != result.n:
        facts.append(("Documents", wording.tokens(documents)))
    if lost := result.missing.total:
        facts.append(("Without an answer", wording.tokens(lost)))
    if base.mean is not None:
        measured = wording.estimate(base.mean, base.ci_low, base.ci_high)
        if base.fitted is not None and wording.score(base.fitted) != wording.score(base.mean):
            facts.append(("Baseline, fitted", wording.score(base.fitted)))
            facts.append(("Measured on the shortest", measured))
        else:
            facts.append(("Baseline", measured))
    if cap is not None and result.cap_prompt_tokens is not None:
        facts.append(("As a prompt, in its own tokens", wording.tokens(result.cap_prompt_tokens)))
    if octave := wording.last_octave_phrase(result):
        facts.append(("Just below the cap", octave.partition(" of ")[0]))
    rows = "".join(f"<div><dt>{text(key)}</dt><dd>{text(value)}</dd></div>" for key, value in facts)
    if cliff is not None:
        place = wording.located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
        rows += f'<div class="wide"><dt>Midpoint of the drop</dt><dd>{place} tokens</dd></div>'
    doubt = f'<p class="why">{text(result.score_doubt)}</p>\n' if result.score_doubt else ""
    style = look(row).style + " useless" * wording.is_useless(result)
    return (
        f'<article class="card {style}"><h2>{chip(row)} {text(name)}</h2>\n'
        f'{doubt}{first}<p class="cap">{text(big)}</p>\n<p class="why">{text(why)}</p>\n'
        f"<dl>{rows}</dl></article>\n"
    )

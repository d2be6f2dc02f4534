"""Rules by which benchmarks score tasks that are no free text, each from its own publication.

An example names its rule in ``metadata["scoring_rule"]``, an object with ``name`` and what the rule
needs; the corpora of benchmarks write it. `f1` is the published score, `em` whether that is 1.

- `share_of_numbers` (LongBench, Bai et al. 2023: passage retrieval and count): of the numbers in
  the output, the share that is the accepted one.
- `labels` (LongBench: trec, lsht), with ``labels``: 1 / the number of labels in the first line, if
  the accepted one is among them; labels that are part of its name do not count.
- `first_line` (LongBench: triviaqa): exact match and token F1 of the first line.
- `only_label` (BABILong, Kuratov et al. 2024), with ``labels``: the first sentence names the
  accepted label or labels (``apple,milk``) and no other, as whole words; the published script
  finds them inside words, too, by which ``none`` names ``one`` and is never right.
- `answer_line`, `any_answer_line` (LongBench Pro, Chen et al. 2026: "Accuracy", "SubEM"): of what
  follows the last ``[Answer]`` the first line, or any, is the accepted answer.
- `closed_apart` (HotpotQA, Yang et al. 2018): as text, but yes, no and "noanswer" share nothing
  with another answer.
- `true_or_false`, `last_number`, `said` (L-Eval, An et al. 2023: sci_fi, gsm100, topic retrieval):
  the first of the two words, before any ``[fact:``; the number after "The answer is", or the last
  of the first paragraph; whether the first line holds the accepted answer, whatever the spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from contextcliff_dagster.scoring.normalize import fold_forms, normalize_answer
from contextcliff_dagster.scoring.parse import ParsedAnswer
from contextcliff_dagster.scoring.scorers import Scorer, Scores, score_choice, score_text
from contextcliff_dagster.scoring.squad import bare

RULE = "scoring_rule"
_CLOSED = frozenset(("yes", "no", "noanswer"))
_MARK = re.compile(r"\[(?:answer|答案)\]", re.IGNORECASE)
_NONE = Scores(0.0, 0.0, 0.0)


def scorer_of(metadata: Mapping[str, Any]) -> Scorer:
    """The scorer of an example by what its corpus says of it.

    Its benchmark's own rule, `choice` where the answer is a lettered option, else `text`. A rule
    that is unknown here counts as none: a newer version, or a user's own field, may name it.
    """
    rule = metadata.get(RULE)
    if isinstance(rule, dict) and (scorer := _RULES.get(str(rule.get("name")))) is not None:
        labels = rule.get("labels")
        known = tuple(map(str, labels)) if isinstance(labels, list | tuple) else ()
        return partial(_where_answered, scorer, known)
    return score_choice if metadata.get("answer_type") == "multiple_choice" else score_text


_Rule = Callable[[ParsedAnswer, str, Sequence[str]], Scores]


def _where_answered(
    rule: _Rule, labels: Sequence[str], parsed: ParsedAnswer, accepted: Sequence[str]
) -> Scores:
    """Each score at its best over the accepted answers."""
    if parsed.text is None or not accepted:
        return _NONE
    return Scores(*map(max, zip(*(rule(parsed, gold, labels) for gold in accepted), strict=True)))


def _whole(right: bool) -> Scores:
    return Scores(*[float(right)] * 3)


def _graded(share: float, inside: bool) -> Scores:
    return Scores(float(share == 1.0), share, float(inside))


def _first_line(parsed: ParsedAnswer) -> str:
    return (parsed.text or "").lstrip("\n").split("\n")[0]


def _share_of_numbers(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    right = re.findall(r"\d+", fold_forms(gold))[:1]
    given = re.findall(r"\d+", fold_forms(parsed.visible))
    share = sum([number] == right for number in given) / len(given) if given else 0.0
    return _graded(share, share > 0)


def _labels(parsed: ParsedAnswer, gold: str, labels: Sequence[str]) -> Scores:
    line = _first_line(parsed)
    named = [one for one in dict.fromkeys((*labels, gold)) if one in line]
    named = [one for one in named if one == gold or one not in gold]
    return _graded(1 / len(named), True) if gold in named else _NONE


def _only_label(parsed: ParsedAnswer, gold: str, labels: Sequence[str]) -> Scores:
    sentence = re.split(r"\.|<context>|<example>", parsed.visible.lower())[0]
    gold = gold.lower()
    # Directions ("n,e") are one label; objects ("apple,milk") are several.
    wanted = set(gold.split(",")) if len(gold) > 3 else {gold}
    known = {*map(str.lower, labels), *wanted}
    named = {one for one in known if re.search(rf"(?<!\w){re.escape(one)}(?!\w)", sentence)}
    return Scores(float(named == wanted), float(named == wanted), float(named >= wanted))


def _answer_line(parsed: ParsedAnswer, gold: str, _: Sequence[str], *, any_line: bool) -> Scores:
    lines = [bare(line) for line in _MARK.split(parsed.visible)[-1].strip().split("\n")]
    return _whole(bare(gold) in (lines if any_line else lines[:1]))


def _closed_apart(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    scores = score_text(parsed, [gold])
    answer, right = normalize_answer(parsed.text or ""), normalize_answer(gold)
    apart = answer != right and not _CLOSED.isdisjoint((answer, right))
    return scores._replace(f1=0.0) if apart else scores


def _true_or_false(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    before = parsed.visible.lower().split("[fact:")[0]
    said = re.search(r"true|false", before)
    return _whole(said is not None and said[0] == gold.strip().lower())


def _last_number(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    return _whole(_number_at_end(parsed.visible) == _number_at_end(gold) != "")


def _number_at_end(text: str) -> str:
    stated = re.search(r"The answer is (\S+)", text)
    words = [stated[1]] if stated else text.split("\n\n")[0].split()
    word = next((word for word in reversed(words) if re.search(r"\d", word)), "")
    return re.sub(r"\D", "", word.split(".")[0])


def _said(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    line = next((line for line in parsed.visible.split("\n") if len(line) > 1), parsed.visible)
    return _whole("".join(gold.lower().split()) in "".join(line.lower().split()))


_RULES: dict[str, _Rule] = {
    "share_of_numbers": _share_of_numbers,
    "labels": _labels,
    "first_line": lambda parsed, gold, _: score_text(
        replace(parsed, text=_first_line(parsed)), [gold]
    ),
    "only_label": _only_label,
    "answer_line": partial(_answer_line, any_line=False),
    "any_answer_line": partial(_answer_line, any_line=True),
    "closed_apart": _closed_apart,
    "true_or_false": _true_or_false,
    "last_number": _last_number,
    "said": _said,
}

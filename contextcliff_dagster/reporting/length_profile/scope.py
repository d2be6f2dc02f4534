"""What a report's figures rest on, and what they do not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.reporting.length_profile.questions import refused_tests
from contextcliff_dagster.reporting.sections import (
    Bullets,
    Code,
    Item,
    Paragraph,
    Section,
    Span,
    Text,
)
from contextcliff_dagster.reporting.wording.number_format import percent, tokens
from contextcliff_dagster.reporting.wording.sentences import measured_range

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs


def unmeasured_section(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """What the statement does not cover, per model and in general."""
    return Section("What was not measured", [Bullets(gap_items(results, names))], 3)


def gap_items(results: Sequence[Cliffs], names: Sequence[str]) -> list[Text]:
    """The same as bullets; what holds for several models is one of them."""
    gaps = [[f"{gap[0].upper()}{gap[1:]}." for gap in _gaps(result)] for result in results]
    return [
        *shared_items(gaps, names),
        "Standard deviations and failure rates have no interval: only the mean's is computed.",
        "Other tasks, corpora, prompts and serving configurations: a cap holds only for what was "
        "measured.",
    ]


_MOST_NAMED = 6


def shared_items(texts: Sequence[Sequence[str]], names: Sequence[str]) -> list[Text]:
    """Each text of a model once, after the names of the models it is said of.

    ``texts``: those of each of ``names``. No name where there is one model.
    """
    whose: dict[str, list[str]] = {}
    for name, own in zip(names, texts, strict=True):
        for text in own:
            whose.setdefault(text, []).append(name)
    if len(names) == 1:
        return [*whose]
    items: list[Text] = []
    for text, owners in whose.items():
        if len(owners) == len(names) > 3:
            items.append(("All models: ", text))
            continue
        listed: list[Span] = [Code(owners[0])]
        for owner in owners[1:_MOST_NAMED]:
            listed += [", ", Code(owner)]
        if len(owners) > _MOST_NAMED:
            listed.append(f" and {len(owners) - _MOST_NAMED} more")
        items.append((*listed, ": ", text))
    return items


def _gaps(result: Cliffs) -> list[str]:
    missing = {tag: n for tag, n in to_json(result.missing).items() if n}
    tags = ", ".join(f"{n:,} {tag}" for tag, n in missing.items())
    share = f"{percent(result.missing_share)} of the planned calls"
    unanswered = f"calls without an answer, part of a mean only where it says so: {tags} ({share})"
    gaps = [unanswered if tags else "no call went unanswered"]
    reach, window = measured_range(result), result.window_tokens
    if reach is None:
        gaps.append("no answer was scored")
    elif window and window > reach[1]:
        gaps.append(
            f"nothing was measured between {tokens(reach[1])} tokens, the longest document, and "
            f"the window of {tokens(window)}"
        )
    elif not window:
        gaps.append("the context window is unknown, so no share of it is given")
    if result.baseline.mean is None:
        gaps.append("no baseline")
    if all(b.ttft_ms is None for b in result.bins):
        gaps.append("no time to first token")
    elif result.joint_cap is None:
        why = "too few times to first token, or answers in order of length"
        gaps.append(f"no joint cap of score and latency: {why}")
    if result.length_time_correlation is None:
        gaps.append(
            "whether the answers came in order of length, so that a change over time would look "
            "like one over length: their times are unknown"
        )
    if result.confounds.identified == "not_assessed":
        gaps.append("confounding of length with difficulty was not assessed")
    return [*gaps, *refused_tests(result)]


def rebuild_section(results: Sequence[Cliffs], level: int = 2) -> Section:
    """The commands that make this report again, and what they rest on."""
    first = results[0]
    study, campaign = first.study, first.campaign
    items: list[Text] = []
    if study and campaign:
        items += [
            (
                Code(f"contextcliff report {study} --campaign {campaign}"),
                " makes this report again from the answers that are kept, without a call.",
            ),
            (
                Code(f"contextcliff campaign new {study}"),
                " and ",
                Code(f"contextcliff profile {study}"),
                " measure it again.",
            ),
            (
                "To share it: ",
                Code(f"contextcliff export {study} FILE"),
                " writes one file with the sample and every answer.",
            ),
        ]
    else:
        again = ", with the options that were given, makes this report again."
        items.append((Code("contextcliff analyze FILE"), again))
    facts: list[Span] = []
    for words, group, key in _FACTS:
        found = dict.fromkeys(_fact(result, group, key) for result in results)
        if known := [value for value in found if value is not None]:
            facts.append(f"; {words} " if facts else f"{words[0].upper()}{words[1:]} ")
            for value in known[:3]:
                facts += [Code(value), ", "]
            facts[-1] = ", ..." if len(known) > 3 else ""
    if facts:
        items.append([*facts, "."])
    return Section("How to reproduce it", [Bullets(items)], level)


_FACTS = (
    ("sample", "hashes", "manifest"),
    ("request", "hashes", "recipe"),
    ("seed of the sample", "seeds", "sampling"),
    ("seed of the analysis", "seeds", "analysis"),
    ("version", "versions", "contextcliff-dagster"),
)


def _fact(result: Cliffs, group: str, key: str) -> str | None:
    values = result.provenance.get(group)
    value = values.get(key) if isinstance(values, Mapping) else None
    return None if value is None or value != value else str(value)[:12]


def provenance_section(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """Hashes, versions, seeds and times of every model."""
    items = [Item(Code(n), _origin(r)) for n, r in zip(names, results, strict=True)]
    blocks = [Bullets(items)] if items else []
    machine = " next to this page has all of it for programs, with every bin's tokens."
    return Section("Of the measurement", [*blocks, Paragraph([Code("report.json"), machine])], 3)


def _origin(result: Cliffs) -> list[Text]:
    keys = ("schema_version", "created_at", "study", "campaign", "task", "tokenizer", "identity")
    origin: list[Text] = [(f"{key}: ", Code(getattr(result, key))) for key in keys]
    for group, content in result.provenance.items():
        if isinstance(content, Mapping):
            origin += [(f"{group} {key}: ", Code(value)) for key, value in content.items()]
        elif content is not None:
            origin.append((f"{group}: ", Code(content)))
    return origin

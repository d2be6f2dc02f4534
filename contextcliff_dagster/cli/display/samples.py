"""Display of prepared studies: bins, prompts, and the estimated cost of measuring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import (
    duration,
    money,
    print_json,
    print_table,
    visible,
)
from contextcliff_dagster.cli.options import gathered_as, together
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.call_plan import PlannedCall
    from contextcliff_dagster.run.study import Prepared
    from contextcliff_dagster.sampling.manifest import Manifest
    from contextcliff_dagster.studies import Study

_SHOWN = 400
"""Characters shown at each end of a shortened document."""

_OPTIONS = together(
    click.option(
        "--show-prompt",
        "examples",
        is_flag=False,
        flag_value=1,
        type=click.IntRange(1, 10_000),
        metavar="[N]",
        help="Show the messages of N examples (default: 1), from short to long, exactly as sent.",
    ),
    click.option("--whole", is_flag=True, help="With --show-prompt, do not shorten documents."),
)


@dataclass(frozen=True, slots=True)
class ShownPrompts:
    """How many ``examples`` to show prompts of, and whether to show their ``whole`` documents."""

    examples: int
    whole: bool

    def calls(self, prepared: Prepared, store: Store) -> list[PlannedCall]:
        """Return the calls of these examples (`experiments.common.measurement.spread_calls`)."""
        from contextcliff_dagster.experiments.common.measurement import spread_calls
        from contextcliff_dagster.experiments.common.study_run import StudyRun
        from contextcliff_dagster.experiments.lookup import partitioned

        with StudyRun.open(prepared.study, store) as run:
            return spread_calls(run, partitioned(prepared.study), self.examples)


def _prompts(examples: int | None, whole: bool) -> ShownPrompts | None:
    if whole and examples is None:
        raise StudyError("--whole needs --show-prompt; add it, or leave out --whole.")
    return ShownPrompts(examples, whole) if examples else None


prompt_options = gathered_as("prompts", _prompts, _OPTIONS)
"""Decorator that passes these options to a command as ``prompts: ShownPrompts | None``."""


def without_temperature(study: Study) -> list[str]:
    """Return the models in ``study`` whose servers are sent no temperature (their `quirks`)."""
    from contextcliff_dagster.inference.models.engine_table import engine_spec
    from contextcliff_dagster.inference.models.models_file import get_model, load_models

    models = load_models()
    entries = {name: get_model(name, models) for name in study.models}
    return [
        name
        for name, entry in entries.items()
        if entry.quirks.temperature == "omit" and engine_spec(entry.engine).remote
    ]


def as_object(call: PlannedCall, omitting: Sequence[str]) -> dict[str, Any]:
    """Return a complete prompt as a JSON object. ``sha256`` is the ``prompt_hash`` of ledger and
    predictions; ``omitting`` are the models that get no temperature."""
    prompt, recipe = call.prompt(), call.recipe
    return {
        "bin": call.bin,
        "length_tokens": call.length_tokens,
        "example_id": call.example.example_id,
        "replicate": call.replicate,
        "mode": prompt.mode,
        "messages": prompt.as_dicts() or None,
        "prompt": prompt.text if prompt.mode == "completion" else None,
        "temperature": recipe.temperature,
        "temperature_omitted_for": [*omitting],
        "max_output_tokens": recipe.max_output_tokens,
        "sha256": prompt.hash,
    }


def as_lines(call: PlannedCall, temperature: str, *, whole: bool) -> Iterator[str]:
    """Yield the lines of a prompt, each message under its role; ``whole`` keeps the full document.
    ``temperature`` comes from `temperature_words`."""
    prompt, recipe = call.prompt(), call.recipe
    wording = f", wording {call.replicate + 1} of {recipe.replicates}" * (recipe.replicates > 1)
    yield (
        f"Prompt of {visible(call.example.example_id)}: bin {call.bin}, "
        f"{count(call.length_tokens, 'token')}, mode {prompt.mode}{wording}; "
        f"at most {count(recipe.max_output_tokens, 'token')} of output, {temperature}"
    )
    named = dict(enumerate(prompt.messages))
    for place, text in enumerate(prompt.contents()):
        yield f"[{named[place].role if named else 'prompt'}]"
        shown = text if whole else _without_middle(text, call.document)
        for line in shown.split("\n"):
            yield visible(line)
    yield f"[end, sha256 {prompt.hash[:16]}...]"


def temperature_words(call: PlannedCall, models: Sequence[str], omitting: Sequence[str]) -> str:
    """Describe the temperature that ``models`` get; those ``omitting`` it get none."""
    if not omitting:
        return f"temperature {call.recipe.temperature:g}"
    if len(omitting) == len(models):
        return "no temperature (quirks in models.yaml)"
    whom = ", ".join(map(visible, omitting))
    return f"temperature {call.recipe.temperature:g} (none to {whom}: quirks in models.yaml)"


def _without_middle(text: str, document: str) -> str:
    """Return ``text`` with the middle of ``document`` left out, if it is long and occurs there."""
    left = len(document) - 2 * _SHOWN
    if left <= _SHOWN or document not in text:
        return text
    note = f"\n[... {left:,} characters left out; --whole shows them ...]\n"
    return text.replace(document, document[:_SHOWN] + note + document[-_SHOWN:], 1)


_SOURCES_SHOWN, _MOST_SOURCES = 3, 12
_QUESTION_SHOWN = 80


def print_prepared(
    prepared: Prepared, store: Store, prompts: ShownPrompts | None = None, *, as_json: bool
) -> None:
    """Print the frozen sample by bin, the estimated cost, and prompts, if asked for."""
    calls = prompts.calls(prepared, store) if prompts else []
    omitting = without_temperature(prepared.study) if prompts else []
    if as_json:
        shown = {"prompts": [as_object(call, omitting) for call in calls]} if prompts else {}
        print_json({**_as_object(prepared, store), **shown})
        return
    _print_sample(prepared, store)
    for call in calls:
        whole = prompts is not None and prompts.whole
        temperature = temperature_words(call, prepared.study.models, omitting)
        click.echo("\n" + "\n".join(as_lines(call, temperature, whole=whole)))


def _as_object(prepared: Prepared, store: Store) -> dict[str, Any]:
    study, manifest = prepared.study, prepared.manifest
    estimate = {"study": study.name, "estimate": prepared.estimate.to_dict()}
    if manifest is None:  # the experiments generate their own documents
        return estimate
    path = store.manifest_dir(study.name) / "manifest.json"
    return {
        "study": study.name,
        "manifest": str(path) if prepared.kept else None,
        "sha256": manifest.sha256,
        "bins": [asdict(b) for b in manifest.bins],
        "corpus": manifest.header["corpus"],
        "audit": prepared.audit,
        "answers_not_in_text": _answers_not_in_text(manifest),
        **estimate,
    }


def _print_sample(prepared: Prepared, store: Store) -> None:
    from contextcliff_dagster.experiments.common.documents import file_list

    study, manifest = prepared.study, prepared.manifest
    if manifest is None:
        _print_too_long(prepared)
        click.echo(estimate_sentence(prepared))
        return
    sources = _sources(manifest)
    drawn = Counter(manifest.examples.column("bin").to_pylist())
    print_table(
        ("BIN", "TOKENS", "MEDIAN", "IN SAMPLE", "EXAMPLES", "DOCUMENTS")
        + (("SOURCES",) if sources else ()),
        [
            (
                b.bin,
                f"{b.edge_low:,} to {b.edge_high:,}" if b.merged_into is None else "",
                f"{b.median_tokens:,}" if b.median_tokens is not None else "",
                drawn[b.bin],
                f"{b.n:,}" if b.merged_into is None else f"merged into {b.merged_into}",
                f"{b.n_documents:,}" if b.merged_into is None else "",
                *([sources.get(b.bin, "")] if sources else []),
            )
            for b in manifest.bins
        ],
    )
    account = manifest.header["corpus"].get("account", {})
    if summary := account.get("summary"):
        click.echo(f"\nCorpus: {summary}")
    _print_too_long(prepared)
    if lost := _answers_not_in_text(manifest):
        click.echo(lost["sentence"])
    if prepared.kept and (files := file_list(study, store, account)):
        click.echo(f"Outcome of each file: {files}")
    for sentence in filter(None, (_few(manifest, drawn, study), _unused(manifest, drawn, study))):
        click.echo(f"\n{sentence}")
    click.echo(f"\n{estimate_sentence(prepared)}")
    digest = f"sha256 {manifest.sha256[:16]}..."
    if prepared.kept:
        path = store.manifest_dir(study.name) / "manifest.json"
        click.echo(f"Manifest: {path} ({digest})")
    else:
        click.echo(f"This sample ({digest}) is not kept: `prepare` and `profile` freeze it.")


def _print_too_long(prepared: Prepared) -> None:
    too_long: Counter[str] = Counter()  # the controls' calls included
    for line in prepared.estimate.lines:
        too_long[line.model] += line.too_long
    for model, calls in (+too_long).items():
        click.echo(
            f"Too long for {model}, so not sent: {count(calls, 'call')}, "
            "by the study's token count."
        )


def _few(manifest: Manifest, drawn: Counter[str], study: Study) -> str:
    """Return a sentence about bins with fewer examples than requested, or "" if none has fewer."""
    requested, most = study.sampling.samples_per_bin, study.sampling.questions_per_document
    bins = [length_bin for length_bin in manifest.bins if length_bin.merged_into is None]
    few = [length_bin for length_bin in bins if drawn[length_bin.bin] < requested]
    if not few:
        return ""
    sentence = (
        f"{len(few):,} of {len(bins):,} bins have fewer than the {requested:,} examples asked for"
    )
    held_back = sum(drawn[length_bin.bin] < length_bin.n for length_bin in few)
    if not held_back:
        return f"{sentence}; IN SAMPLE is all they hold."
    who = "they hold" if held_back == len(few) else f"{held_back:,} of them hold"
    each = "one question" if most == 1 else f"{most:,} questions"
    return (
        f"{sentence}; {who} more, but at most {each} a document "
        f"{'is' if most == 1 else 'are'} asked (--questions-per-document N)."
    )


def _unused(manifest: Manifest, drawn: Counter[str], study: Study) -> str:
    """Return a sentence about questions beyond the number asked for, or "" if there is none."""
    requested, bins = study.sampling.samples_per_bin, manifest.bins
    full = [b for b in bins if b.merged_into is None and drawn[b.bin] == requested < b.n]
    unused, of = sum(b.n - requested for b in full), sum(b.n for b in bins)
    if not unused:
        return ""
    return (
        f"Of {of:,} questions, {unused:,} stay unused: {requested:,} are asked in each bin. Raise "
        "`sampling.samples_per_bin` (--samples-per-bin N) to ask more."
    )


def _answers_not_in_text(manifest: Manifest) -> dict[str, Any] | None:
    """Count the sample's questions without an accepted answer in their document; None if there
    are none."""
    from contextcliff_dagster.experiments.common.measurement import EVERYTHING
    from contextcliff_dagster.scoring.containment import not_in_text

    planned = [s.example for b in manifest.bins for s in manifest.planned(b.bin, EVERYTHING)]
    planned = [e for e in planned if e.metadata.get("answer_type") != "unanswerable"]
    missing, asked = not_in_text(planned, manifest.document_text)
    if not missing:
        return None
    first = shorten(missing[0].question, _QUESTION_SHOWN, placeholder=" ...")
    sentence = (
        f"For {len(missing):,} of {asked:,} questions of the sample, no accepted answer occurs in "
        f"the document's text; the first is {first!r}. Unless these answers are in other words, "
        "check how the files were read."
    )
    return {"questions": len(missing), "of": asked, "sentence": sentence}


def _sources(manifest: Manifest) -> dict[str, str]:
    """Return the shares of sources in each bin's sample, largest first; empty if there is only one
    source or more than 12."""
    examples = manifest.examples
    if "source" not in examples.column_names:
        return {}
    by_bin: dict[str, Counter[str]] = {}
    for key, source in zip(
        examples.column("bin").to_pylist(), examples.column("source").to_pylist(), strict=True
    ):
        by_bin.setdefault(key, Counter())[source or "unnamed"] += 1
    if not 2 <= len({source for counts in by_bin.values() for source in counts}) <= _MOST_SOURCES:
        return {}
    return {key: _shares(counts) for key, counts in by_bin.items()}


def _shares(counts: Counter[str]) -> str:
    total = counts.total()
    first = [f"{name} {n / total:.0%}" for name, n in counts.most_common(_SOURCES_SHOWN)]
    hidden = len(counts) - _SOURCES_SHOWN
    return ", ".join([*first, f"and {hidden} more"] if hidden > 0 else first)


def estimate_sentence(prepared: Prepared) -> str:
    """Return a sentence with the calls, tokens, money and time that measuring would take."""
    e = prepared.estimate
    if not e.calls:
        if any(line.overflow for line in e.lines):
            return "Nothing to send: the prompts left to measure are too long for their model."
        ended = "is answered or waits in a batch" if e.waiting else "has its outcome in the ledger"
        return f"Nothing new to measure: every call {ended}."
    parts = [count(e.calls, "call"), f"about {e.tokens:,} tokens"]
    if e.usd and e.usd_in_batches is not None:
        streamed, batched = (f"about {money(usd)}" for usd in (e.usd_streamed, e.usd_in_batches))
        ways = (f"{batched} in batches", f"{streamed} streamed")
        parts.append("{} ({})".format(*(ways if e.in_batches else reversed(ways))))
    elif e.usd:
        parts.append(f"about {money(e.usd)}")
    if e.price_unknown:
        parts.append(f"price unknown ({', '.join(e.price_unknown)})")
    if not e.in_batches:
        parts.append(f"about {duration(e.seconds)}")
    sentences = [f"To measure: {', '.join(parts)}."]
    controls = prepared.study.sections.get("controls", ())
    for name in dict.fromkeys(line.control for line in e.lines if line.control):
        lines = [line for line in e.lines if line.control == name]
        left = sum(line.calls - line.cached - line.overflow for line in lines)
        cost = f", about {money(usd)}" if (usd := sum(line.usd or 0.0 for line in lines)) else ""
        part = f"the control {name}" if name in controls else name
        if name == "oracle" and name in controls and not any(line.calls for line in lines):
            reason = "none gives the position of its evidence"
            sentences.append(f"The control oracle has no example: {reason}.")
        else:
            sentences.append(f"Of these {part}: {count(left, 'call')}{cost}.")
    return " ".join(sentences)

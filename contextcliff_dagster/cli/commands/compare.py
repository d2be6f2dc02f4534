"""`compare`: compare two models, campaigns or studies by their measured answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.cli.display.output import print_json
from contextcliff_dagster.cli.options import (
    DEFAULT_STUDY,
    chance_option,
    common_options,
    folder_option,
    log_options,
)
from contextcliff_dagster.contracts import LengthBin, ScoreFileError, StudyError
from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.store import Store, slug

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.comparison import Measured
    from contextcliff_dagster.score_files import LogOptions
    from contextcliff_dagster.studies import Study


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--study",
    metavar="NAME",
    default=DEFAULT_STUDY,
    show_default=True,
    help="Study for an A or B without one.",
)
@click.option(
    "--campaign",
    metavar="NAME",
    help="Campaign for an A or B without one (default: the newest).",
)
@folder_option("--out", "Folder for the report files (default: in the store).")
@chance_option
@log_options
@common_options
def compare(
    a: str,
    b: str,
    study: str,
    campaign: str | None,
    out: Path | None,
    chance: float,
    log: LogOptions,
    as_json: bool,
) -> None:
    """Compare two measurements, paired by example if they share any; makes no call.

    A and B are [STUDY:]MODEL[@CAMPAIGN], e.g. my-model@2026-11-01 my-model@2026-11-21, or FILE or
    FILE:MODEL for scores and logs that `analyze` reads (--chance applies only to files). When a KV
    policy is compared with the whole cache of the same model, the whole cache is always A.
    """
    from contextcliff_dagster.analysis.comparison import compare as compare_measured
    from contextcliff_dagster.analysis.comparison import whole_cache_first
    from contextcliff_dagster.reporting.comparison import write_comparison
    from contextcliff_dagster.reporting.kv import kv_sentences

    store = Store.default()
    refs = [
        score_file(text, log, chance) or resolve(text, store, study, campaign) for text in (a, b)
    ]
    names = [ref.name(refs) for ref in refs]
    side_a, side_b = (ref.measured(store, name) for ref, name in zip(refs, names, strict=True))
    if whole_cache_first(side_a, side_b):
        refs, names, side_a, side_b = refs[::-1], names[::-1], side_b, side_a
    ref, caps = refs[0], (side_a.cliffs, side_b.cliffs)
    notes = notes_on(side_a, side_b, same=refs[0] == refs[1])
    result = compare_measured(side_a, side_b, ref.bins(store), ref.settings(), notes=notes)
    files = write_comparison(result, out or ref.folder(store, names), caps)
    if as_json:
        paths = {kind: str(path) for kind, path in files._asdict().items()}
        print_json({**to_json(result), "files": paths})
        return
    click.echo(f"{result.sentence}\n")
    for sentence in (*kv_sentences(result), *result.warnings):
        click.echo(f"{sentence}\n")
    click.echo(f"Report:  {files.html}\nPicture: {files.png}")


@dataclass(frozen=True)
class Ref:
    """One measurement: a study's model in one campaign."""

    study: Study
    model: str
    campaign: str

    def name(self, both: Sequence[Ref | ScoreFile]) -> str:
        """Return the model's name, with study and campaign if these differ between the two."""
        name = self.model
        refs = [ref for ref in both if isinstance(ref, Ref)]
        if len({ref.study.name for ref in refs}) > 1:
            name = f"{self.study.name}:{name}"
        return f"{name}@{self.campaign}" if len({ref.campaign for ref in refs}) > 1 else name

    def bins(self, store: Store) -> Sequence[LengthBin]:
        """Return the bins of the study's frozen sample."""
        from contextcliff_dagster.experiments.common.preparation import load_frozen

        return load_frozen(self.study, store).bins

    def settings(self) -> AnalysisSettings:
        """Return the study's settings."""
        return self.study.analysis_settings()

    def folder(self, store: Store, names: Sequence[str]) -> Path:
        """Return the store folder of a comparison with this measurement as A."""
        folder = store.study_dir(self.study.name) / "comparisons"
        return folder / slug("-vs-".join(slug(name) for name in names))

    def measured(self, store: Store, name: str) -> Measured:
        """Return the records and the result."""
        from contextcliff_dagster.analysis.comparison import Measured
        from contextcliff_dagster.experiments.common.preparation import load_frozen
        from contextcliff_dagster.experiments.common.records import read_records
        from contextcliff_dagster.experiments.length_profile.profile_and_report import policy_of
        from contextcliff_dagster.experiments.length_profile.profile_files import (
            by_this_method,
            read_cliffs,
        )

        manifest = load_frozen(self.study, store)
        records = read_records(self.study, store, self.campaign)
        cliffs = {c.model: c for c in read_cliffs(self.study, store, self.campaign)}
        cap = by_this_method(self.study, manifest, records, cliffs[self.model])
        rows = records[records["model"] == self.model]
        return Measured(name, rows, cap, policy_of(self.model))


@dataclass(frozen=True)
class ScoreFile:
    """Scores of one model in a file."""

    path: Path
    model: str | None
    log: LogOptions
    chance: float

    def name(self, both: Sequence[Ref | ScoreFile]) -> str:
        """Return the selected model's name, or the file's name if no model is selected."""
        if self.model is None:
            return self.path.name
        files = {ref.path for ref in both if isinstance(ref, ScoreFile)}
        return f"{self.path.name}:{self.model}" if len(files) > 1 else self.model

    def bins(self, _: Store) -> Sequence[LengthBin]:
        """Return no bins, so that deciles are used."""
        return []

    def settings(self) -> AnalysisSettings:
        """Return the default settings."""
        return AnalysisSettings(second_opinions=False, chance=self.chance)

    def folder(self, _: Store, __: Sequence[str]) -> Path:
        """Return a folder in the working directory, because a file has no study in the store."""
        return Path("comparison")

    def measured(self, _: Store, name: str) -> Measured:
        """Return the records and the result.

        Raises:
            ScoreFileError: the file cannot be used, or it holds several models.
        """
        from contextcliff_dagster.analysis.bin_statistics import ProfileContext
        from contextcliff_dagster.analysis.comparison import Measured
        from contextcliff_dagster.analysis.profile import profile_model
        from contextcliff_dagster.score_files import chosen, read_scores

        models = read_scores(self.path, self.log)
        if self.model is None and len(models) > 1:
            names = ", ".join(f"{self.path.name}:{item.model}" for item in models[:8])
            raise ScoreFileError(
                f"{self.path} holds {len(models)} models: name one for the comparison, as {names}."
            )
        ((model, records),) = chosen(self.path, models, model=self.model, by_model=False)
        context = ProfileContext(
            model,
            task=records.task,
            tokenizer=records.tokenizer,
            length_unit=records.length_unit,
        )
        profile = profile_model(records.frame, [], self.settings(), context)
        return Measured(name, records.frame, profile.cliffs)


def score_file(text: str, log: LogOptions, chance: float = 0.0) -> ScoreFile | None:
    """Return the file that ``text`` names (FILE or FILE:MODEL), or None."""
    if text.partition(":")[0].endswith((".yaml", ".yml")):
        return None
    path, _, model = text.partition(":")
    whole, part = Path(text), Path(path)
    if whole.is_file() or not (model and part.is_file()):
        from contextcliff_dagster.score_files.columns import FORMATS, PACKED

        has_suffix = whole.suffix.lower() in (*FORMATS, *PACKED)
        return ScoreFile(whole, None, log, chance) if whole.is_file() or has_suffix else None
    return ScoreFile(part, model, log, chance)


def resolve(text: str, store: Store, study: str, campaign: str | None) -> Ref:
    """Return the measurement that ``text`` names: [STUDY:]MODEL[@CAMPAIGN].

    A model's own name may hold ``:`` and ``@``: the longest reading as a model wins.

    Raises:
        StudyError: no measurement has that name; the message lists the existing ones.
    """
    from contextcliff_dagster.cli.study_selection import profiled_campaign, profiled_campaigns
    from contextcliff_dagster.experiments.common.preparation import as_drawn
    from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
    from contextcliff_dagster.studies import find_study, read_studies

    head, colon, tail = text.partition(":")
    studies, broken = read_studies()
    names = {*studies, *(broken_study.name for broken_study in broken)}
    named = colon and (head in names or head.endswith((".yaml", ".yml")))
    # A study of that name comes second, because a model may have the same name.
    readings = [(study, text)] + ([(head, tail)] if named else [])
    known: list[str] = []
    for study_name, words in readings:
        chosen = as_drawn(find_study(study_name), store)
        campaigns = profiled_campaigns(store, chosen.name)
        model, at, last = words.rpartition("@")
        wanted = [(words, campaign), *([(model, last)] if at and last in campaigns else ())]
        for name, wanted_campaign in wanted if campaigns else ():
            profiled = profiled_campaign(store, chosen.name, wanted_campaign)
            models = [c.model for c in read_cliffs(chosen, store, profiled)]
            if name in models:
                return Ref(chosen, name, profiled)
            known += [f"{chosen.name}:{other}@{profiled}" for other in models]
    if colon and not named:
        raise StudyError(
            f"No measurement is called {text!r}: study {study!r} has no such model, and there is "
            f"no study {head!r}; there are {', '.join(known or sorted(names))}."
        )
    if not known:  # raises, because there is no campaign
        profiled_campaign(store, find_study(readings[-1][0]).name)
    raise StudyError(
        f"No measurement is called {text!r}; there are {', '.join(dict.fromkeys(known))} "
        "(write [STUDY:]MODEL[@CAMPAIGN])."
    )


def notes_on(one: Measured, other: Measured, *, same: bool) -> list[str]:
    """Return caveats about the two sides; ``same`` says that they are the same measurement."""
    if same:
        return ["A and B are the same measurement."]
    notes = [
        f"The report of {side.name} used an earlier method ({earlier}); its cap here is computed "
        "from its records by the current method."
        for side in (one, other)
        if side.cliffs and (earlier := side.cliffs.provenance.get("earlier_method"))
    ]
    notes += [
        f"The answers of {side.name} were scored by an earlier version of the scorers ({earlier}); "
        "here they are scored again."
        for side in (one, other)
        if side.cliffs and (earlier := side.cliffs.provenance.get("earlier_scorers"))
    ]
    counts = [(side.cliffs and side.cliffs.tokenizer) or "" for side in (one, other)]
    if all(counts) and counts[0] != counts[1]:
        notes.append(
            f"{one.name} counts tokens with {counts[0]}, {other.name} with {counts[1]}; shared "
            "examples use A's lengths."
        )
    return notes

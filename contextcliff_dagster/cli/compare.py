"""`compare`: two models, campaigns or studies against each other, from what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.options import DEFAULT_STUDY, common_options
from contextcliff_dagster.cli.output import print_json
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store, slug

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--study", metavar="NAME", default=DEFAULT_STUDY, show_default=True, help="Where none is named."
)
@click.option("--campaign", metavar="NAME", help="Where none is named (default: the newest).")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the files (default: in the store).",
)
@common_options
def compare(
    a: str, b: str, study: str, campaign: str | None, out: Path | None, as_json: bool
) -> None:
    """Compare two measurements, paired by example where they share any; makes no call.

    A and B are [STUDY:]MODEL[@CAMPAIGN], e.g. my-model@2026-11-01 my-model@2026-11-21.
    """
    from contextcliff_dagster.analysis.comparison import compare as compare_measured
    from contextcliff_dagster.reporting.comparison import write_comparison

    store = Store.default()
    refs = [resolve(text, store, study, campaign) for text in (a, b)]
    names = [ref.name(refs) for ref in refs]
    one, other = (ref.measured(store, name) for ref, name in zip(refs, names, strict=True))
    result = compare_measured(
        one,
        other,
        _bins(refs[0].study, store),
        refs[0].study.analysis_settings(),
        notes=_notes(refs),
    )
    folder = out or _folder(store, refs, names)
    files = write_comparison(result, folder, (one.cliffs, other.cliffs))
    if as_json:
        print_json(
            {**result, "files": {kind: str(getattr(files, kind)) for kind in ("md", "json", "png")}}
        )
        return
    click.echo(f"{result['sentence']}\n")
    for warning in result["warnings"]:
        click.echo(f"{warning}\n")
    click.echo(f"Report:  {files.md}\nPicture: {files.png}")


@dataclass(frozen=True)
class Ref:
    """One measurement: a model of a study in a campaign."""

    study: Study
    model: str
    campaign: str

    def name(self, beside: list[Ref]) -> str:
        """The model, with what it takes to tell it from the one beside it."""
        name = self.model
        if len({ref.study.name for ref in beside}) > 1:
            name = f"{self.study.name}:{name}"
        return f"{name}@{self.campaign}" if len({ref.campaign for ref in beside}) > 1 else name

    def measured(self, store: Store, name: str) -> Any:
        """Records and result.

        Raises:
            StudyError: the model has no records in the campaign.
        """
        from contextcliff_dagster.analysis.comparison import Measured
        from contextcliff_dagster.defs.steps.judgement import read_records
        from contextcliff_dagster.defs.steps.profiles import read_cliffs

        records = read_records(self.study, store, self.campaign)
        cliffs = {c["model"]: c for c in read_cliffs(self.study, store, self.campaign)}
        return Measured(name, records[records["model"] == self.model], cliffs[self.model])


def resolve(text: str, store: Store, study: str, campaign: str | None) -> Ref:
    """What ``text`` names: [STUDY:]MODEL[@CAMPAIGN].

    A model's own name may hold ``:`` and ``@``: the longest reading as a model wins.

    Raises:
        StudyError: nothing measured is called so; the sentence lists what there is.
    """
    from contextcliff_dagster.cli.measured import profiled_campaign, profiled_campaigns
    from contextcliff_dagster.defs.steps.profiles import read_cliffs
    from contextcliff_dagster.studies import find_study, load_studies

    head, colon, rest = text.partition(":")
    named = colon and (head in load_studies() or head.endswith((".yaml", ".yml")))
    # A study of that name comes second: a model may be called so, too.
    readings = [(study, text)] + ([(head, rest)] if named else [])
    there: list[str] = []
    for study_name, words in readings:
        chosen = find_study(study_name)
        if not profiled_campaigns(store, chosen.name):
            profiled_campaign(store, chosen.name) if len(readings) == 1 else None
            continue
        model, at, last = words.rpartition("@")
        for wanted, name in ((campaign, words), (last, model)) if at else ((campaign, words),):
            if name == words or wanted in profiled_campaigns(store, chosen.name):
                found = profiled_campaign(store, chosen.name, wanted)
                models = [c["model"] for c in read_cliffs(chosen, store, found)]
                if name in models:
                    return Ref(chosen, name, found)
                there += [f"{chosen.name}:{known}@{found}" for known in models]
    if not there:
        profiled_campaign(store, find_study(readings[-1][0]).name)
    raise StudyError(
        f"Nothing measured is called {text!r}; there are {', '.join(dict.fromkeys(there))} "
        "(write [STUDY:]MODEL[@CAMPAIGN])."
    )


def _bins(study: Study, store: Store) -> list[Any]:
    from contextcliff_dagster.defs.steps.preparation import load_frozen

    return list(load_frozen(study, store).bins)


def _notes(refs: list[Ref]) -> list[str]:
    one, other = refs
    if one == other:
        return ["A and B are the same measurement."]
    if one.study.name != other.study.name and one.study.tokenizer != other.study.tokenizer:
        return [
            f"{one.study.name} counts tokens with {one.study.tokenizer}, {other.study.name} with "
            f"{other.study.tokenizer}: where examples are shared, lengths are A's."
        ]
    return []


def _folder(store: Store, refs: list[Ref], names: list[str]) -> Path:
    return (
        store.study_dir(refs[0].study.name)
        / "comparisons"
        / slug(f"{slug(names[0])}-vs-{slug(names[1])}")
    )

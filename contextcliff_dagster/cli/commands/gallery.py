"""`gallery`: measured studies as a static site; `card`: the safe context for a model card."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.display.output import print_either, print_json
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import (
    DEFAULT_STUDY,
    common_options,
    folder_option,
    profiled_campaign_option,
    with_answers_option,
)
from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.store import Store, write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.cli.commands.compare import Ref

_IN_THE_PAGE = (".*", "questions.png", "sensitivity.png")
"""Files that a report's page embeds, or that its reader does not need."""


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@folder_option("--output", "Folder of the site.", default=Path("gallery"), show_default=True)
@with_answers_option
@common_options
def gallery(paths: tuple[Path, ...], output: Path, with_answers: bool, as_json: bool) -> None:
    """Make a static site of exported studies: caps by model and task, each with its report.

    PATH is a file of `contextcliff export`, or a folder of such files.
    """
    from contextcliff_dagster.cli.display.output import dagster_log
    from contextcliff_dagster.reporting.caps_site import check_folder
    from contextcliff_dagster.reporting.gallery import MARK, Entry, write_gallery
    from contextcliff_dagster.reporting.report_files import as_shown, model_folders
    from contextcliff_dagster.run.study import rebuild_archive
    from contextcliff_dagster.store import slug

    check_folder(output, MARK, "gallery")
    files = _archives(paths)
    entries: list[Entry] = []
    known: dict[str, Path] = {}
    with TemporaryDirectory(prefix="contextcliff-") as unpacked:
        made = Path(unpacked) / "reports"
        for place, file in enumerate(files):
            if sys.stderr.isatty():
                say(f"{file.name} ({place + 1} of {len(files)})")
            with file.open("rb") as content:
                digest = file_digest(content, "sha256").hexdigest()
            if (first := known.setdefault(digest, file)) != file:
                say(f"Left out: {file.name} holds the same as {first.name}.")
                continue
            with dagster_log(False):
                summary, done, store = rebuild_archive(
                    file, Path(unpacked) / str(place), with_answers=with_answers
                )
            results = as_shown(done.cliffs)
            if not results:
                say(f"Left out: {file.name} has no length profile, so there is no cap.")
                continue
            name = f"{slug(done.study.name)}-{slug(done.campaign)}"
            while (made / name).exists():
                name = f"{name}-{place}"
            report = store.report_dir(done.study.name, done.campaign)
            shutil.copytree(report, made / name, ignore=shutil.ignore_patterns(*_IN_THE_PAGE))
            for picture in (made / name).rglob("*.png"):
                _shrink(picture)
            folders = [f"models/{folder}/" for folder in model_folders(results)]
            entries += [
                Entry(file.name, summary.sha256, f"reports/{name}/{folder}report", result)
                for folder, result in zip(folders or [""] * len(results), results, strict=True)
            ]
        if not entries:
            raise StoreError(
                f"No study of {_named(paths)} has a length profile, so there is no cap."
            )
        _replace(made, output / "reports")
        index = write_gallery(entries, output)
    text = f"{len(entries)} results of {len(known)} exported studies: {index}"
    print_either({"index": str(index), "results": len(entries)}, text, as_json=as_json)


def _archives(paths: Sequence[Path]) -> list[Path]:
    """The exported files that ``paths`` name or hold, each once.

    Raises:
        StoreError: a path is not there or is no such file, or none holds any.
    """
    from contextcliff_dagster.run.study import is_archive

    archives: list[Path] = []
    for path in paths:
        if path.is_dir():
            archives += sorted(f for f in path.iterdir() if f.is_file() and is_archive(f))
        elif not path.exists():
            raise StoreError(f"There is no {path}.")
        elif path.is_file() and is_archive(path):  # a pipe would be waited for
            archives.append(path)
        else:
            raise StoreError(
                f"{path} is no file that `contextcliff export` writes; give such files, or a "
                "folder of them."
            )
    if not archives:
        raise StoreError(
            f"{_named(paths)} holds no exported study; write one with `contextcliff export STUDY "
            "FILE`."
        )
    return list(dict.fromkeys(archive.resolve() for archive in archives))


def _shrink(picture: Path) -> None:
    """A palette of 64 colours, a third of the size: a site is sent around."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def _named(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def _replace(made: Path, reports: Path) -> None:
    """Put ``made`` in the place of ``reports``; the earlier ones go only once these are written."""
    fresh, old = (reports.with_name(f".{reports.name}.{kind}") for kind in ("new", "old"))
    try:
        for rest in (fresh, old):
            shutil.rmtree(rest, ignore_errors=True)
        shutil.copytree(made, fresh)
        if reports.exists():
            reports.rename(old)
        fresh.rename(reports)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{reports} cannot be written: {error.strerror or error}.") from error


@click.command()
@click.argument("model")
@click.option("--study", metavar="NAME", help="Its study, where several have measured the model.")
@profiled_campaign_option
@folder_option("--out", "Folder of the files.", default=Path("model-card"), show_default=True)
@common_options
def card(model: str, study: str | None, campaign: str | None, out: Path, as_json: bool) -> None:
    """Write MODEL's safe context as a block for its model card, JSON-LD and a badge; makes no call.

    card.md, card.jsonld and badge.svg, of the newest profiled campaign. For a model without a
    cap they give the reason.
    """
    from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
    from contextcliff_dagster.reporting.model_card import (
        BADGE,
        badge_svg,
        card_json_ld,
        card_markdown,
        headline,
        json_ld_text,
    )
    from contextcliff_dagster.reporting.report_files import for_readers

    store = Store.default()
    ref = _measured_as(model, store, study, campaign)
    measured = ref.measured(store, model).cliffs
    cliffs = from_json(Cliffs, for_readers()(to_json(measured)))
    files = {
        "card.md": card_markdown(cliffs),
        "card.jsonld": json_ld_text(cliffs) + "\n",
        BADGE: badge_svg(cliffs),
    }
    for name, text in files.items():
        write_atomic(out / name, text.encode(), private=False)  # made to be published
    if as_json:
        print_json(card_json_ld(cliffs))
        return
    click.echo(f"{cliffs.model}: {headline(cliffs)}")
    for name in files:
        click.echo(f"Written: {out / name}")


def _measured_as(model: str, store: Store, study: str | None, campaign: str | None) -> Ref:
    """The measurement of ``model``: in ``study``, or in the only one that has it.

    Raises:
        StudyError: none has it, or several have.
    """
    from contextcliff_dagster.cli.commands.compare import resolve
    from contextcliff_dagster.cli.study_selection import profiled_campaigns
    from contextcliff_dagster.studies import read_studies

    if study is not None:
        return resolve(model, store, study, campaign)
    measured = {name: profiled_campaigns(store, name) for name in read_studies()[0]}
    names = sorted(
        name
        for name, campaigns in measured.items()
        if any(
            (store.profile_dir(name, profiled, model) / "cliffs.json").is_file()
            for profiled in campaigns
            if campaign in (None, profiled)
        )
    )
    if len(names) > 1:
        raise StudyError(
            f"{model!r} is measured in {len(names)} studies ({', '.join(names)}); choose one with "
            "--study NAME."
        )
    if names or {":", "@"} & set(model):
        return resolve(model, store, names[0] if names else DEFAULT_STUDY, campaign)
    there = sorted(name for name, campaigns in measured.items() if campaigns)
    studies = f"studies with one: {', '.join(there) or 'none'}"
    of = f" in campaign {campaign!r}" if campaign else ""
    raise StudyError(
        f"No study of {store.root} has a length profile of {model!r}{of} ({studies}); see "
        "`contextcliff report STUDY`, or measure it with `contextcliff profile`."
    )

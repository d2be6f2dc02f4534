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

from contextcliff_dagster.cli.display.output import dagster_log, print_either, print_json
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import (
    DEFAULT_STUDY,
    common_options,
    folder_option,
    profiled_campaign_option,
    with_answers_option,
)
from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.store import Store, slug, write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.cli.commands.compare import Ref

_IN_THE_PAGE = (".*", "questions.png", "sensitivity.png")
"""Patterns of files to leave out, because they are in the report's page or of no use to readers."""


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@folder_option("--output", "Folder for the site.", default=Path("gallery"), show_default=True)
@with_answers_option
@common_options
def gallery(paths: tuple[Path, ...], output: Path, with_answers: bool, as_json: bool) -> None:
    """Build a static site of exported studies: caps by model and task, each with its report.

    PATH is a file of `contextcliff export`, or a folder of such files.
    """
    from contextcliff_dagster.reporting.caps_site import check_folder
    from contextcliff_dagster.reporting.gallery import MARK, Entry, write_gallery
    from contextcliff_dagster.reporting.report_files import as_shown, model_folders
    from contextcliff_dagster.run.study import rebuild_archive

    check_folder(output, MARK, "gallery")
    files = _archives(paths)
    entries: list[Entry] = []
    file_by_digest: dict[str, Path] = {}
    with TemporaryDirectory(prefix="contextcliff-") as unpacked:
        reports = Path(unpacked) / "reports"
        for place, file in enumerate(files):
            if sys.stderr.isatty():
                say(f"{file.name} ({place + 1} of {len(files)})")
            with file.open("rb") as content:
                digest = file_digest(content, "sha256").hexdigest()
            if (first := file_by_digest.setdefault(digest, file)) != file:
                say(f"Left out: {file.name} is identical to {first.name}.")
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
            while (reports / name).exists():
                name = f"{name}-{place}"
            report = store.report_dir(done.study.name, done.campaign)
            shutil.copytree(report, reports / name, ignore=shutil.ignore_patterns(*_IN_THE_PAGE))
            for picture in (reports / name).rglob("*.png"):
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
        _replace(reports, output / "reports")
        index = write_gallery(entries, output)
    text = f"{count(len(entries), 'result')} of {len(file_by_digest)} exported: {index}"
    print_either({"index": str(index), "results": len(entries)}, text, as_json=as_json)


def _archives(paths: Sequence[Path]) -> list[Path]:
    """Return the exported files that ``paths`` name or contain, without duplicates."""
    from contextcliff_dagster.run.study import is_archive

    archives: list[Path] = []
    for path in paths:
        if path.is_dir():
            archives += sorted(f for f in path.iterdir() if f.is_file() and is_archive(f))
        elif not path.exists():
            raise StoreError(f"{path} does not exist; check the path.")
        elif path.is_file() and is_archive(path):  # reading a pipe would block
            archives.append(path)
        else:
            raise StoreError(
                f"{path} is not a file of `contextcliff export`; give exported files, or a "
                "folder of them."
            )
    if not archives:
        raise StoreError(
            f"{_named(paths)} holds no exported study; write one with `contextcliff export STUDY "
            "FILE`."
        )
    return list(dict.fromkeys(archive.resolve() for archive in archives))


def _shrink(picture: Path) -> None:
    """Reduce a picture to 64 colours, a third of its size, because sites are shared."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def _named(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def _replace(source: Path, reports: Path) -> None:
    """Replace ``reports`` by ``source``; delete the old reports only once the new are written."""
    fresh, old = (reports.with_name(f".{reports.name}.{kind}") for kind in ("new", "old"))
    try:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.copytree(source, fresh)
        if reports.exists():
            reports.rename(old)
        fresh.rename(reports)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{reports} cannot be written: {error.strerror or error}.") from error


@click.command()
@click.argument("model")
@click.option("--study", metavar="NAME", help="Study to use if several have measured the model.")
@profiled_campaign_option
@folder_option("--out", "Folder for the files.", default=Path("model-card"), show_default=True)
@common_options
def card(model: str, study: str | None, campaign: str | None, out: Path, as_json: bool) -> None:
    """Write MODEL's safe context as a block for its model card, JSON-LD and a badge; makes no call.

    Writes card.md, card.jsonld and badge.svg for the newest profiled campaign. For a model
    without a cap they give the reason.
    """
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
    """Return the measurement of ``model`` in ``study``, or in the only study that has one."""
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
    profiled_names = sorted(name for name, campaigns in measured.items() if campaigns)
    studies = f"studies with a profile: {', '.join(profiled_names) or 'none'}"
    of = f" in campaign {campaign!r}" if campaign else ""
    raise StudyError(
        f"No study of {store.root} has a length profile of {model!r}{of} ({studies}); see "
        "`contextcliff report STUDY`, or measure it with `contextcliff profile`."
    )

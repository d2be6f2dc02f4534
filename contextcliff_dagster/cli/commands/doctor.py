"""`doctor`: what is installed, reachable and writable, and what to do about the rest."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from contextcliff_dagster.cli.dagster_home import dagster_home
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.cli.output import print_json, print_table
from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.store import PACKAGE, Store

State = Literal["ok", "note", "fault"]
_LOW_DISK = 1 << 30
_REACH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. A ``note`` stands in nobody's way; a ``fault`` does."""

    what: str
    state: State
    said: str


@click.command()
@click.option("--offline", is_flag=True, help="Do not try to reach the models' endpoints.")
@common_options
def doctor(offline: bool, as_json: bool) -> None:
    """Check what is installed, reachable and writable."""
    findings = [*_installed(), *_engines_of_others(), *_writable(), *_readable()]
    if not offline:
        findings += asyncio.run(_reachable())
    faults = sum(finding.state == "fault" for finding in findings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        mark = {"ok": "ok", "note": "--", "fault": "XX"}
        print_table(("", "WHAT", "FINDING"), [(mark[f.state], f.what, f.said) for f in findings])
        click.echo(
            "\nAll checks passed." if not faults else f"\n{faults} marked XX must be fixed first."
        )
    if faults:
        raise click.exceptions.Exit(2)


def _installed() -> list[Finding]:
    def version(name: str) -> str | None:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    python = platform.python_version()
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    found = [
        Finding(
            "contextcliff",
            "ok",
            f"{version('contextcliff-dagster') or 'not installed'}, {PACKAGE}",
        ),
        Finding(
            "python",
            "ok" if supported else "fault",
            python if supported else f"{python} is not supported: use 3.11, 3.12 or 3.13",
        ),
    ]
    for name in ("dagster", "dagster-webserver", "aiohttp", "tiktoken"):
        known = version(name)
        found.append(
            Finding(
                name,
                "ok" if known else "fault",
                known or "not installed: install contextcliff-dagster again",
            )
        )
    for name, use in _optional().items():
        known = version(name)
        found.append(
            Finding(
                name,
                "ok" if known else "note",
                known or f"not installed; {use}, nothing else needs it",
            )
        )
    return found


def _engines_of_others() -> list[Finding]:
    """Engines of other packages, where there are any."""
    from contextcliff_dagster.inference.models.engine_specs import (
        BUILT_IN,
        engine_entry_points,
        engine_spec,
    )

    found = []
    for name, point in engine_entry_points().items():
        what = f"engine {name}"
        if name in BUILT_IN:
            hidden = f"{point.value} is hidden by the built-in engine of that name; rename it"
            found.append(Finding(what, "note", hidden))
            continue
        try:
            engine_spec(name)
            found.append(Finding(what, "ok", point.value))
        except EngineError as error:
            found.append(Finding(what, "fault", str(error)))
    return found


def _optional() -> dict[str, str]:
    """Package -> what it is for."""
    from contextcliff_dagster.inference.models.engine_specs import BUILT_IN

    engines = {
        spec.package: f"{spec.use} (extra: {spec.extra})"
        for spec in BUILT_IN.values()
        if spec.package
    }
    return {
        "torch": "trains the reference models",
        **engines,
        "genai-prices": "knows prices of public endpoints (extra: prices)",
    }


def _writable() -> list[Finding]:
    store = Store.default()
    found = [_try_to_write("store", store.root), _try_to_write("dagster home", dagster_home(store))]
    room = shutil.disk_usage(_nearest_folder(store.root)).free
    found.append(
        Finding(
            "disk",
            "ok" if room > _LOW_DISK else "fault",
            f"{room / 1e9:.1f} GB free at {store.root}",
        )
    )
    return found


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _try_to_write(what: str, folder: Path) -> Finding:
    """Write a byte where the first real write would go; nothing is left behind."""
    place = _nearest_folder(folder)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        return Finding(
            what,
            "fault",
            f"{place} cannot be written ({fault.strerror}); "
            "point --store or CONTEXTCLIFF_HOME elsewhere",
        )
    if folder.exists() and not folder.is_dir():
        return Finding(
            what, "fault", f"{folder} is a file; point --store or CONTEXTCLIFF_HOME at a folder"
        )
    return Finding(what, "ok", str(folder) if folder.is_dir() else f"{folder} (will be made)")


def _readable() -> list[Finding]:
    return [
        _told("models.yaml", _models),
        _told("studies", _studies),
        _told("ledger", _ledger),
        _told("tokenizers", _tokenizers),
    ]


def _told(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, "ok", look())
    except ContextCliffError as fault:
        return Finding(what, "fault", str(fault))


def _models() -> str:
    from contextcliff_dagster.inference.models.registry import load_models, model_files

    return f"{len(load_models())} models from {', '.join(str(path) for path in model_files())}"


def _studies() -> str:
    from contextcliff_dagster.studies import load_studies

    return ", ".join(load_studies())


def _ledger() -> str:
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    store = Store.default()
    if not store.has_ledger:
        return f"{store.ledger} (will be made)"
    with Ledger.open(store.ledger) as ledger:
        stats, faults = ledger.stats(), ledger.backend.integrity_errors()
    if faults:
        raise ContextCliffError(
            f"{store.ledger} is damaged ({faults[0]}); restore it from a backup."
        )
    return f"{store.ledger}, {stats['answers']:,} answers, {stats['bytes'] / 1e6:.1f} MB"


def _tokenizers() -> str:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

    for name in ("reference", "tiktoken:o200k_base"):
        open_tokenizer(name).count("ready?")
    return "reference and tiktoken:o200k_base count without a network"


async def _reachable() -> list[Finding]:
    from contextcliff_dagster.inference.models.registry import load_models

    try:
        entries = load_models()
    except ContextCliffError:
        return []  # said under models.yaml already
    return list(await asyncio.gather(*(_reach(name) for name in entries)))


async def _reach(name: str) -> Finding:
    """Start and stop the model's engine; an endpoint that is down may not be wanted: a note."""
    from contextcliff_dagster.inference.engines.registry import open_engine
    from contextcliff_dagster.inference.execution.window_check import unknown_window
    from contextcliff_dagster.inference.models.registry import get_model
    from contextcliff_dagster.redaction import written_url

    entry = get_model(name)
    what = f"model {name}"
    if entry.api_key_env and not os.environ.get(entry.api_key_env):
        return Finding(what, "note", f"its key is read from {entry.api_key_env}, which is not set")
    try:
        engine = open_engine(entry)
        if entry.spec.needs_devices or entry.spec.needs_weights:  # gigabytes: only looked at
            window = engine.window_tokens
            said = f"; window {window:,} tokens" if window else ""
            return Finding(what, "ok", f"runtime is installed, not started{said}")
        try:
            await asyncio.wait_for(engine.start(), _REACH_SECONDS)
            window = engine.window_tokens
            if not window:
                return Finding(what, "ok", f"answers. {unknown_window(name)}")
            return Finding(what, "ok", f"answers; window {window:,} tokens")
        finally:
            await engine.stop()
    except TimeoutError:
        where = written_url(entry.base_url or entry.engine)
        return Finding(what, "note", f"no answer from {where} within {_REACH_SECONDS:.0f} s")
    except ContextCliffError as fault:
        state: State = "fault" if entry.engine == "reference" else "note"
        return Finding(what, state, str(fault))

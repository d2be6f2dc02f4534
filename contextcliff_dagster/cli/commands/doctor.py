"""`doctor`: checks of what is installed, reachable and writable, with advice on faults."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

import click

from contextcliff_dagster.cli.dagster_home import dagster_home
from contextcliff_dagster.cli.display.output import print_json, print_table
from contextcliff_dagster.cli.errors import USER_ERROR
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.contracts import (
    ContextCliffError,
    EngineError,
    package_version,
    pip_install,
)
from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster.redaction import written_url
from contextcliff_dagster.store import PACKAGE, Store

# A finding that breaks nothing is a "note"; one that must be fixed is a "fault".
State = Literal["ok", "note", "fault"]
_MARKS: dict[State, str] = {"ok": "ok", "note": "--", "fault": "XX"}
_LOW_DISK = 1 << 30
_REACH_SECONDS = 5.0


class Finding(NamedTuple):
    """The subject of one check, its state, and a sentence about it."""

    what: str
    state: State
    text: str


@click.command()
@click.option("--offline", is_flag=True, help="Do not try to reach the models' endpoints.")
@common_options
def doctor(offline: bool, as_json: bool) -> None:
    """Check what is installed, reachable and writable."""
    findings = [*_installed(), *_extensions(), *_engines_of_others(), *_writable()]
    checks = {
        "models.yaml": _models,
        "studies": _studies,
        "ledger": _ledger,
        "tokenizers": _tokenizers,
    }
    for what, check in checks.items():
        try:
            findings.append(Finding(what, "ok", check()))
        except ContextCliffError as error:
            findings.append(Finding(what, "fault", str(error)))
    if not offline:
        findings += asyncio.run(_reachable())
    broken = sum(finding.state == "fault" for finding in findings)
    if as_json:
        print_json([{"what": f.what, "state": f.state, "said": f.text} for f in findings])
    else:
        print_table(("", "WHAT", "FINDING"), [(_MARKS[f.state], f.what, f.text) for f in findings])
        fix = f"Fix the {broken} problem{'s' * (broken > 1)} marked XX first."
        click.echo(f"\n{fix if broken else 'All checks passed.'}")
    if broken:
        raise click.exceptions.Exit(USER_ERROR)


def _installed() -> list[Finding]:
    from contextcliff_dagster.inference.models.engine_table import BUILT_IN

    python = platform.python_version()
    ours = package_version("contextcliff-dagster") or "not installed"
    findings = [Finding("contextcliff", "ok", f"{ours}, {PACKAGE}")]
    if (3, 11) <= sys.version_info[:2] <= (3, 14):
        findings.append(Finding("python", "ok", python))
    else:
        advice = f"{python} is not supported: use 3.11 to 3.14"
        findings.append(Finding("python", "fault", advice))
    for name in ("dagster", "dagster-webserver", "aiohttp", "tiktoken"):
        found = package_version(name)
        advice = f"not installed: {pip_install('contextcliff-dagster')}"
        findings.append(Finding(name, "ok" if found else "fault", found or advice))
    engines = BUILT_IN.values()
    optional = {
        "torch": "trains the reference models",
        **{spec.package: f"{spec.use} (extra: {spec.extra})" for spec in engines if spec.package},
        "genai-prices": "knows prices of public endpoints (extra: prices)",
    }
    for name, use in optional.items():
        found = package_version(name)
        advice = f"not installed; {use}, nothing else needs it"
        findings.append(Finding(name, "ok" if found else "note", found or advice))
    return [*findings, _kvpress()]


def _kvpress() -> Finding:
    from contextcliff_dagster.inference.engines.kvpress.worker_process import kv_python, kv_versions

    try:
        return Finding("kvpress", "ok", f"{kv_versions('')['kvpress']}, {kv_python()}")
    except EngineError:
        use = "compresses KV caches (`make install-kv`), nothing else needs it"
        return Finding("kvpress", "note", f"its environment is not installed; {use}")


def _extensions() -> list[Finding]:
    """Check that the experiments of extensions can be imported."""
    advice = "reinstall or remove the package that provides it"
    return [
        Finding(f"experiment {name}", "fault", f"{extension.failure}; {advice}")
        if extension.failure
        else Finding(f"experiment {name}", "ok", extension.experiment)
        for name, extension in extensions().items()
    ]


def _engines_of_others() -> list[Finding]:
    """Check the engines that other packages provide."""
    from contextcliff_dagster.inference.models.engine_table import (
        BUILT_IN,
        engine_entry_points,
        engine_spec,
    )

    findings = []
    for name, point in engine_entry_points().items():
        what = f"engine {name}"
        if name in BUILT_IN:
            hidden = f"{point.value} is hidden by the built-in engine of that name; rename it"
            findings.append(Finding(what, "note", hidden))
            continue
        try:
            engine_spec(name)
            findings.append(Finding(what, "ok", point.value))
        except EngineError as error:
            findings.append(Finding(what, "fault", str(error)))
    return findings


def _writable() -> list[Finding]:
    root = Store.default().root
    free = shutil.disk_usage(_nearest_folder(root)).free
    return [
        _try_to_write("store", root),
        _try_to_write("dagster home", dagster_home(Store.default())),
        Finding(
            "disk", "ok" if free > _LOW_DISK else "fault", f"{free / 1e9:.1f} GB free at {root}"
        ),
    ]


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _try_to_write(what: str, folder: Path) -> Finding:
    """Check that a byte can be written in ``folder`` or its nearest parent; leave no file."""
    nearest = _nearest_folder(folder)
    point = "point --store or CONTEXTCLIFF_HOME"
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        problem = f"{nearest} cannot be written ({error.strerror}); {point} elsewhere"
        return Finding(what, "fault", problem)
    if folder.exists() and not folder.is_dir():
        return Finding(what, "fault", f"{folder} is a file; {point} at a folder")
    return Finding(what, "ok", str(folder) if folder.is_dir() else f"{folder} (will be created)")


def _models() -> str:
    from contextcliff_dagster.inference.models.models_file import load_models, model_files

    return f"{len(load_models())} models from {', '.join(str(path) for path in model_files())}"


def _studies() -> str:
    from contextcliff_dagster.studies import read_studies

    studies, broken = read_studies()
    if broken:
        raise ContextCliffError(" ".join(broken_study.error for broken_study in broken))
    return ", ".join(studies)


def _ledger() -> str:
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    store = Store.default()
    if not store.has_ledger:
        return f"{store.ledger} (will be created)"
    with Ledger.open(store.ledger) as ledger:
        stats, damage = ledger.stats(), ledger.backend.integrity_errors()
        waits = ledger.spool.sentence()
    if damage:
        raise ContextCliffError(
            f"{store.ledger} is damaged ({damage[0]}); restore it from a backup."
        )
    summary = f"{store.ledger}, {stats['answers']:,} answers, {stats['bytes'] / 1e6:.1f} MB"
    return f"{summary}. {waits}" if waits else summary


def _tokenizers() -> str:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

    for name in ("reference", "tiktoken:o200k_base"):
        open_tokenizer(name).count("ready?")
    return "reference and tiktoken:o200k_base count without a network"


async def _reachable() -> list[Finding]:
    from contextcliff_dagster.inference.models.models_file import load_models

    try:
        entries = load_models()
    except ContextCliffError:
        return []  # reported under models.yaml already
    return list(await asyncio.gather(*(_reach(name) for name in entries)))


async def _reach(name: str) -> Finding:
    """Start and stop the model's engine; report an unreachable endpoint only as a note.

    An endpoint that answers but lacks the model, or serves nothing at the base URL, is a fault.
    """
    from contextcliff_dagster.inference.engines.base import open_engine
    from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
    from contextcliff_dagster.inference.engines.openai.local_servers import address_error
    from contextcliff_dagster.inference.execution.cost_estimate import unknown_window
    from contextcliff_dagster.inference.models.models_file import (
        SHIPPED_MODELS,
        get_model,
        load_models,
    )

    entry = get_model(name)
    what = f"model {name}"
    if entry.api_key_env and not os.environ.get(entry.api_key_env):
        return Finding(what, "note", f"its key is read from {entry.api_key_env}, which is not set")
    try:
        engine = open_engine(entry)
        if entry.spec.needs_devices or entry.spec.needs_weights:  # gigabytes: not started
            window = engine.window_tokens
            size = f"; window {window:,} tokens" if window else ""
            return Finding(what, "ok", f"runtime is installed, not started{size}")
        try:
            await asyncio.wait_for(engine.start(), _REACH_SECONDS)
            if isinstance(engine, OpenAIEngine) and (wrong := await address_error(entry, engine)):
                # A shipped entry may be unused, with another server at its address.
                shipped = load_models([SHIPPED_MODELS]).get(name) == entry
                return Finding(what, "note" if shipped else "fault", wrong)
            window = engine.window_tokens
            if not window:
                return Finding(what, "ok", f"answers. {unknown_window(name)}")
            return Finding(what, "ok", f"answers; window {window:,} tokens")
        finally:
            await engine.stop()
    except TimeoutError:
        where = written_url(entry.base_url or entry.engine)
        return Finding(what, "note", f"no answer from {where} within {_REACH_SECONDS:.0f} s")
    except ContextCliffError as error:
        return Finding(what, "fault" if entry.engine == "reference" else "note", str(error))

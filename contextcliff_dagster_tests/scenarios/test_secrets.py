"""A key in a header, in an address or echoed by a server is in nothing that is produced.

Three random secrets go out: a bearer key, another header, and the user, password and query of an
address. The server echoes all of it, in every shape of error. Then every file of the store, of
Dagster's home and of the temporary folder, and all that was printed, is searched for them, as they
are and in the forms that addresses, headers and JSON give them.
"""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster_tests.support.files.warehouse_files import rows, write
from contextcliff_dagster_tests.support.records.calls import LedgerSample, plan_of, running
from contextcliff_dagster_tests.support.terminal import Ended, call, run

NAMES = ("by-header", "by-address", "written-down")
FATAL = ["models", "401", "403", "404", "quota", "parameter", "redirect"]
"""Faults that end a run; the others are kept in the ledger."""
KEPT = ["400", "422", "429", "500", "overflow", "text", "json_in_text", "in_stream", "html_stream"]

MODELS = """models:
  by-header:
    engine: openai
    model_id: m
    base_url: {address}/v1?key=${{QUERY_SECRET}}
    api_key_env: BEARER_SECRET
    headers_env: {{X-Also: HEADER_SECRET}}
    tokenizer: reference
    window_tokens: 4096
    max_attempts: 2
    breaker_failures: 1000
  by-address:
    engine: openai
    model_id: m
    base_url: ${{ADDRESS_SECRET}}
    headers_env: {{X-Also: HEADER_SECRET}}
    tokenizer: reference
    window_tokens: 4096
    max_attempts: 2
    breaker_failures: 1000
  written-down:
    engine: openai
    model_id: m
    base_url: {written}
    tokenizer: reference
    window_tokens: 4096
    max_attempts: 2
"""


def new_secret() -> str:
    """Nothing that a pattern would know, with the characters that are written otherwise."""
    return f'{secrets.token_hex(6)}+/%"é={secrets.token_hex(6)}'.replace("é", "~")


def forms(secret: str) -> set[bytes]:
    halves = {secret[:12], secret[-12:]}  # no part of it either
    whole = {
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        base64.b64encode(secret.encode()).decode(),
        # of "user:secret", whose beginning may shift it by one or two characters
        *(base64.b64encode(b"u" * n + secret.encode()).decode()[4:-4] for n in (1, 2)),
    }
    return {form.encode() for form in halves | whole}


def texts(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and what they hold where it packs them."""
    data = path.read_bytes()
    yield data
    if data[:4] == b"PAR1":
        import pyarrow.parquet as pq

        table = pq.ParquetFile(path).read()
        yield repr(table.to_pylist()).encode()
        yield repr(table.schema.metadata).encode()
    elif data[:15] == b"SQLite format 3":
        with closing(sqlite3.connect(path)) as db:
            yield "\n".join(db.iterdump()).encode(errors="replace")
    elif data[:2] == b"PK":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield archive.read(name)


def test_no_secret_is_in_anything_that_is_produced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    contextcliff_home: Path,
    dagster_home: Path,
) -> None:
    bearer, header, query, password, written = (new_secret() for _ in range(5))
    scratch, script = tmp_path / "tmp", tmp_path / "script"
    scratch.mkdir()
    script.write_text("ok")
    data = write(tmp_path / "own.jsonl", rows(60))
    told = {"script": str(script), "delay_ms": 1}
    module = "contextcliff_dagster_tests.support.servers.echoing_server"
    with running("-m", module, json.dumps(told)) as url:
        address = url.removesuffix("/v1")
        host = address.removeprefix("http://")
        coded, literal = (quote(secret, safe="") for secret in (password, written))
        (tmp_path / "models.yaml").write_text(
            MODELS.format(address=address, written=f"http://w:{literal}@{host}/v1?k={literal}")
        )
        for name, value in {
            "BEARER_SECRET": bearer,
            "HEADER_SECRET": header,
            "QUERY_SECRET": quote(query, safe=""),
            "ADDRESS_SECRET": f"http://user:{coded}@{host}/v1?key={quote(query, safe='')}",
            "CONTEXTCLIFF_MODELS": str(tmp_path / "models.yaml"),
            "TMPDIR": str(scratch),
        }.items():
            monkeypatch.setenv(name, value)
        command = ("profile", "--data", str(data), "--samples-per-bin", "2", "--yes")
        each = [word for name in NAMES for word in ("--model", name)]
        ended: dict[str, Ended] = {}

        # Held open, so that its write-ahead log is still there to be searched.
        held = Ledger.open(contextcliff_home / "state.db")
        entries, sample = load_models(), LedgerSample(1, 2)
        for number, fault in enumerate(FATAL):
            script.write_text(fault)
            for name in NAMES:
                refused = pytest.raises(EngineError)
                with Ledger.open(tmp_path / "direct.db") as ledger, refused as caught:
                    measure(plan_of(sample, 2, campaign=name), entries[name], ledger)
                ended[f"{fault} {name} direct"] = Ended(2, "", str(caught.value))
            if number < len(NAMES):
                said = call(*command, "--model", NAMES[number], "--debug", recorded=True)
                assert said.code == 2, (fault, said)
                ended[fault] = said
        script.write_text(" ".join(KEPT))
        ended["kept"] = call(*command, *each, "--verbose", "--json", recorded=True)
        for name in NAMES[:2]:
            said = ended[f"401 {name} direct"]
            assert "[hidden]" in said.err, "the server's words are shown, without the secrets"

        script.write_text("text ok ok ok")
        ended["done"] = run(*command, *each, "--json")
        assert ended["done"].code == 0, ended["done"].err
        study = json.loads(ended["done"].out)["study"]
        for line in [
            "doctor",
            "doctor --json",
            "models",
            "models --json",
            "models diff by-header by-address",
            "models diff by-header written-down --json",
            "studies --json",
            "campaign list --json",
            f"report {study}",
            "ledger stats --json",
            "ledger verify --json",
            f"ledger export {study} {tmp_path / 'calls.jsonl'} --json",
            f"ledger export {study} {tmp_path / 'calls.parquet'}",
            f"export {study} {tmp_path / 'study.zip'} --json",
            "serve by-address",
            "serve written-down",
        ]:
            ended[line] = call(*line.split(), recorded=True)
            assert ended[line].code in (0, 2, 3), (line, ended[line])

    # Its own models.yaml holds one, which is why it says that it should not; what was produced, no.
    (tmp_path / "models.yaml").unlink()
    produced = {name: [said.out.encode(), said.err.encode()] for name, said in ended.items()}
    for root in (contextcliff_home, dagster_home, tmp_path):
        for path in root.rglob("*"):
            if path.is_file():
                produced[str(path)] = list(texts(path))
    held.close()
    ends = {Path(name).suffix for name in produced}
    assert {".db", ".db-wal", ".parquet", ".md", ".json", ".zip", ".jsonl"} <= ends, ends
    dagsters = {path.suffix for path in dagster_home.rglob("*") if path.is_file()}
    assert {".db", ".out", ".err"} <= dagsters, "its event log, and what steps printed"
    found = {
        (what, name)
        for what, secret in {
            "bearer": bearer,
            "header": header,
            "query": query,
            "password": password,
            "written": written,
        }.items()
        for form in forms(secret)
        for name, pieces in produced.items()
        for piece in pieces
        if form in piece
    }
    assert not found, sorted(found)

"""Files behind an address: downloaded once, whole, and without a word of what is secret in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from contextcliff_dagster.cli.app import app
from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.readers.rows import is_url, local_copy
from contextcliff_dagster.corpora.registry import open_corpus

ROWS = "".join(
    json.dumps(
        {
            "document": " ".join(f"w{i}-{k}" for k in range(10 + 3 * i)),
            "question": "Which is the first word?",
            "answers": [f"w{i}-0"],
        }
    )
    + "\n"
    for i in range(30)
).encode()


class _Files(BaseHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        if path.endswith("gone.jsonl"):
            self.send_error(404, "Not here")
            return
        cut = path.endswith("cut.jsonl")
        self.send_response(200)
        kind = "text/html" if path.endswith("page") else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(ROWS) + (100 if cut else 0)))
        self.end_headers()
        self.wfile.write(ROWS)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    _Files.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Files) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_a_file_is_downloaded_once(server: str, tmp_path: Path) -> None:
    first = local_copy(f"{server}/a/my%20qa.jsonl", tmp_path)
    assert first.read_bytes() == ROWS
    assert first.suffix == ".jsonl"
    assert local_copy(f"{server}/a/my%20qa.jsonl", tmp_path) == first
    assert len(_Files.asked) == 1
    assert local_copy(f"{server}/b/my%20qa.jsonl", tmp_path) != first


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/gone.jsonl?token=s3cret", "404 Not here"),
        ("/cut.jsonl?token=s3cret", "ended after|IncompleteRead"),
        ("/page?token=s3cret", "is a web page"),
        ("/with space?token=s3cret", "InvalidURL"),
    ],
)
def test_what_goes_wrong_is_a_sentence_without_the_secret(
    server: str, tmp_path: Path, path: str, said: str
) -> None:
    with pytest.raises(CorpusError, match=said) as raised:
        local_copy(server + path, tmp_path)
    assert "s3cret" not in str(raised.value)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_no_server_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"127.0.0.1:9/x.jsonl .*download it by other means"):
        local_copy("http://127.0.0.1:9/x.jsonl", tmp_path)


def test_a_password_in_the_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="holds a user's name") as raised:
        local_copy("http://user:s3cret@127.0.0.1:9/x.jsonl", tmp_path)
    assert "s3cret" not in str(raised.value)


def test_a_corpus_reads_the_copy(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path))
    corpus = open_corpus("file", {"path": f"{server}/qa.jsonl"})
    assert len(list(corpus.entries())) == 30


def test_the_command_line_takes_an_address(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path))
    command = ["prepare", "--data", f"{server}/qa.jsonl", "--json"]
    for _ in range(2):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["corpus"]["examples"] == 30
    assert _Files.asked == ["/qa.jsonl"]


def test_only_addresses_are_addresses() -> None:
    assert is_url("HTTPS://example.org/x")
    assert not is_url("http/x.jsonl")
    assert not is_url("C:\\data\\x.jsonl")

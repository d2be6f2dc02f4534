"""A study from another person reads and sends nothing that the user does not know of."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import find_study, load_study
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call, on_terminal

SECRET = "the private words"
STUDY = """\
name: theirs
corpus: {{kind: file, path: {path}}}
tokenizer: {tokenizer}
bins: {{count: 2}}
models: [reference-short]
sampling: {{samples_per_bin: 2, pilot_per_bin: 1}}
"""
MODELS = "models:\n  m: {{engine: openai, base_url: '{url}/v1'}}\n"


class Listener(ThreadingHTTPServer):
    """A server that counts tokens, and keeps what it was sent."""

    received: list[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Count(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(body)
        words = json.loads(body).get("prompt", "").split()
        self._answer({"count": len(words), "tokens": list(range(len(words)))})

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener(("127.0.0.1", 0), _Count)
    server.received = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of downloads with a study in it; the user works elsewhere."""
    private = tmp_path / "private"
    private.mkdir()
    rows = [
        {"context": f"{SECRET} {n} " * (5 + n), "question": "Which?", "answers": ["words"]}
        for n in range(20)
    ]
    (private / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (private / "prompt.txt").write_text(SECRET)
    (tmp_path / "downloads").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "downloads"


def _study(folder: Path, path: str, tokenizer: str = "reference", more: str = "") -> str:
    file = folder / "theirs.yaml"
    file.write_text(STUDY.format(path=path, tokenizer=tokenizer) + more)
    return str(file)


def _outside(theirs: Path) -> dict[str, str]:
    data = theirs.parent / "private" / "data.jsonl"
    (theirs / "link.jsonl").symlink_to(data)
    return {"absolute": str(data), "upwards": "../private/data.jsonl", "link": "link.jsonl"}


@pytest.mark.parametrize("way", ["absolute", "upwards", "link"])
def test_a_file_outside_its_folder_is_not_read_unless_trusted(way: str, theirs: Path) -> None:
    file = _study(theirs, _outside(theirs)[way])
    for command in ("prepare", "profile"):
        assert_one_sentence(call(command, file), "corpus.path", "outside", "--trust-study")
    assert not (Store.default().root / "theirs").exists()
    trusted = call("prepare", file, "--trust-study")
    assert trusted.code == 0
    assert trusted.err.startswith("Note: study 'theirs' reads corpus.path ")
    again = call("profile", "theirs")
    assert again.code == 0, again.err


def test_the_home_folder_is_outside(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(theirs.parent / "private"))
    file = _study(theirs, "~/data.jsonl")
    assert_one_sentence(call("prepare", file), "corpus.path", "--trust-study")
    file = _study(theirs, "~nobody-is-called-so/data.jsonl")
    assert_one_sentence(call("prepare", file), "home folder")


def test_an_address_is_outside(theirs: Path, listener: Listener) -> None:
    file = _study(theirs, f"{listener.url}/data.jsonl")
    assert_one_sentence(call("prepare", file), "corpus.path", listener.url)


def test_a_private_file_as_its_prompt_is_refused(theirs: Path) -> None:
    (theirs / "data.jsonl").write_bytes((theirs.parent / "private" / "data.jsonl").read_bytes())
    file = _study(theirs, "data.jsonl", more="prompt: {system: ../private/prompt.txt}\n")
    assert_one_sentence(call("profile", file), "prompt.system", "outside")
    with pytest.raises(StudyError, match=r"prompt\.system"):
        load_study(Path(file)).recipe()


def test_a_part_of_a_mixed_corpus_is_no_way_out(theirs: Path) -> None:
    file = _study(theirs, "data.jsonl")
    mixed = "{kind: mixed, parts: [{kind: file, path: ../private/data.jsonl}]}"
    text = Path(file).read_text().replace("{kind: file, path: data.jsonl}", mixed)
    Path(file).write_text(text)
    assert_one_sentence(call("prepare", file), "corpus.path", "outside")


def test_a_link_in_a_benchmarks_folder_is_no_way_out(theirs: Path) -> None:
    (theirs / "squad").mkdir()
    (theirs / "squad" / "dev.json").symlink_to(theirs.parent / "private" / "data.jsonl")
    file = _study(theirs, "squad")
    Path(file).write_text(Path(file).read_text().replace("kind: file", "kind: squad"))
    assert_one_sentence(call("prepare", file), "corpus.path", "dev.json", "outside")


def test_its_own_files_need_no_leave(theirs: Path) -> None:
    (theirs / "data.jsonl").write_bytes((theirs.parent / "private" / "data.jsonl").read_bytes())
    assert call("prepare", _study(theirs, "data.jsonl")).code == 0


def test_the_users_own_folders_need_no_leave(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _study(theirs, "../private/data.jsonl")
    monkeypatch.chdir(tmp_path)
    project = call("prepare", file)
    assert (project.code, project.err) == (0, "")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(theirs))
    assert "outside" not in call("prepare", "theirs").err
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "theirs.yaml").symlink_to(file)
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path / "own"))
    assert "outside" not in call("prepare", "theirs").err


def test_a_server_that_models_yaml_does_not_list_is_sent_nothing(
    theirs: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = f"server:{listener.url}"
    file = _study(theirs, "data.jsonl", tokenizer)
    (theirs / "data.jsonl").write_bytes((theirs.parent / "private" / "data.jsonl").read_bytes())
    host = listener.url.removeprefix("http://")
    models = theirs.parent / "work" / "models.yaml"
    for folder in (theirs, theirs.parent / "work"):
        monkeypatch.chdir(folder)
        assert_one_sentence(call("prepare", file), host, "CONTEXTCLIFF_MODELS", "--trust-study")
    own = {"CONTEXTCLIFF_STUDIES": str(theirs)}  # nor where the study is the user's own
    assert_one_sentence(call("prepare", "theirs", env=own), host, "models.yaml", "--trust-study")
    data = ("--data", str(theirs.parent / "private" / "data.jsonl"), "--model", "reference-short")
    assert_one_sentence(call("profile", file, *data), "--trust-study")
    models.write_text(MODELS.format(url=listener.url))
    assert_one_sentence(call("prepare", file), host)  # it may have come with the study
    assert listener.received == []
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    assert call("prepare", file).code == 0
    monkeypatch.delenv("CONTEXTCLIFF_MODELS")
    assert call("prepare", "theirs", env=own).code == 0
    assert SECRET in b"".join(listener.received).decode()


@pytest.mark.parametrize("tokenizer", ["server:{url}", "server:m"])
def test_a_cloned_folder_vouches_for_nothing(
    tokenizer: str, theirs: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "models.yaml").write_text(MODELS.format(url=listener.url))
    file = _study(theirs, "../private/data.jsonl", tokenizer.format(url=listener.url))
    monkeypatch.chdir(theirs)
    host = listener.url.removeprefix("http://")
    for command in (("prepare", file), ("profile", file), ("profile", file, "--dry-run")):
        assert_one_sentence(call(*command), "corpus.path", "outside", host, "--trust-study")
    assert listener.received == []
    root = Store.default().root
    assert not root.exists() or not list(root.iterdir())
    assert call("prepare", file, "--trust-study").code == 0
    assert listener.received
    assert call("prepare", "theirs").code == 0
    (theirs / "models.yaml").write_text(MODELS.format(url="http://127.0.0.1:9"))
    moved = tokenizer == "server:m"  # leave for one server is none for another
    assert (call("prepare", "theirs").code == 2) == moved


def test_leave_is_for_what_was_shown(theirs: Path) -> None:
    data = theirs.parent / "private" / "data.jsonl"
    other = data.with_name("other.jsonl")
    other.write_bytes(data.read_bytes())
    (theirs / "link.jsonl").symlink_to(data)
    file = _study(theirs, "link.jsonl")
    assert call("prepare", file, "--trust-study").code == 0
    for name in (file, "theirs"):
        assert call("prepare", name).code == 0
    (theirs / "link.jsonl").unlink()
    (theirs / "link.jsonl").symlink_to(other)
    for name in (file, "theirs"):
        assert_one_sentence(call("prepare", name), "other.jsonl", "--trust-study")
    (theirs / "link.jsonl").unlink()
    (theirs / "link.jsonl").symlink_to(data)
    kept = Store.default().root / "_studies" / "theirs.yaml"
    kept.write_text(kept.read_text().replace("count: 2", "count: 3"))  # another definition
    assert_one_sentence(call("prepare", "theirs"), "corpus.path", "--trust-study")


def test_on_a_terminal_the_user_is_asked(theirs: Path) -> None:
    file = _study(theirs, "../private/data.jsonl")
    refused = on_terminal("prepare", file, typed="n\n")
    assert refused.code == 2
    assert "Allow that?" in refused.err
    assert "Not allowed" in refused.err
    assert not (Store.default().root / "theirs").exists()
    assert on_terminal("prepare", file, typed="y\n").code == 0
    assert (Store.default().root / "theirs").exists()


def test_data_named_on_the_command_line_are_named_again(theirs: Path) -> None:
    file = _study(theirs, "data.jsonl")
    data = str(theirs.parent / "private" / "data.jsonl")
    ended = call("prepare", file, "--data", data, "--model", "reference-short")
    assert ended.code == 0, ended.err
    assert ended.err.startswith("Note: study 'data-")
    assert data in ended.err.splitlines()[0]


def test_an_imported_study_stays_anothers_until_it_is_trusted(
    theirs: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = _study(theirs, str(theirs.parent / "private" / "data.jsonl"))
    made, taken = ("--store", str(tmp_path / "made")), ("--store", str(tmp_path / "taken"))
    archive = str(tmp_path / "x.zip")
    assert call("profile", file, "--trust-study", *made).code == 0
    assert call("export", "theirs", archive, *made).code == 0
    assert call("import", archive, *taken).code == 0
    for command in ("report", "profile"):  # the sample is there: nothing else is read
        ended = call(command, "theirs", *taken)
        assert ended.code == 0, ended.err
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "data.jsonl").write_bytes((theirs.parent / "private" / "data.jsonl").read_bytes())
    for command in (
        ("profile", "theirs", "--dry-run", "--trust-study"),  # which changes nothing
        ("profile", _study(shown, "data.jsonl"), "--dry-run", "--trust-study"),
        ("profile", "theirs", "--samples-per-bin", "1", "--trust-study"),  # the corpus is not read
    ):
        ended = call(*command, *taken)
        assert ended.code == 0, ended.err
        refused = call("prepare", "theirs", *taken)
        assert_one_sentence(refused, "corpus.path", "--trust-study")
    assert call("prepare", "theirs", "--trust-study", *taken).code == 0
    assert call("prepare", "theirs", *taken).code == 0


def test_dagster_refuses_it_in_the_same_words(theirs: Path) -> None:
    from contextcliff_dagster.experiments.common.preparation import prepare_corpus

    study = find_study(_study(theirs, "../private/data.jsonl"))
    with pytest.raises(StudyError, match="--trust-study"):
        prepare_corpus(study, Store.default())
    assert prepare_corpus(study.trusted(), Store.default()).examples == 20

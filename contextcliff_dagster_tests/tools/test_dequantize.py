"""A GGUF file as a folder of safetensors: what llama.cpp and transformers make of the file, vLLM
makes of the folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE, find_weights
from contextcliff_dagster_tests.inference.weights.test_files import gguf as gguf_bytes
from contextcliff_dagster_tests.support.greedy_answers import Answers, answers_of
from tools import dequantize as dequantize_module
from tools.dequantize import dequantize

MODULE = "tools.dequantize"
WINDOW = {"window_tokens": 2048}


@pytest.fixture(scope="module")
def gguf() -> Path:
    entry = {"name": "small", "engine": "llamacpp", "weights": LOCAL_MODEL_FILE}
    return find_weights(ModelEntry.model_validate(entry))


@pytest.fixture(scope="module")
def folder(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a process of its own: torch and its threads are not wanted in this one."""
    target = tmp_path_factory.mktemp("dequantized") / "new" / "small"
    done = subprocess.run(
        [sys.executable, "-m", MODULE, str(gguf), str(target)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{target} is ready.\n"), done.stderr[-3000:]
    assert [path.name for path in target.parent.iterdir()] == ["small"]
    return target


def alike(ours: Answers, theirs: Answers) -> int:
    assert len(ours.texts) == len(theirs.texts) == 20
    assert ours.prompt_tokens == theirs.prompt_tokens, "the same tokenizer and chat template"
    pairs = zip(ours.texts, theirs.texts, strict=True)
    return sum(mine.strip() == other.strip() for mine, other in pairs)


@pytest.mark.vllm
@pytest.mark.local_model
@pytest.mark.timeout(3600)
def test_vllm_answers_from_the_folder_as_others_do_from_the_file(gguf: Path, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert (folder / "chat_template.jinja").is_file()
    vllm = answers_of(
        {
            "name": "folder",
            "engine": "vllm",
            "weights": str(folder),
            "dtype": "float32",
            "vllm": {"kv_cache_gib": 0.5},
            **WINDOW,
        }
    )
    named = {"name": "file", "weights": str(gguf), "threads": 1, **WINDOW}
    torch = answers_of({**named, "engine": "transformers", "dtype": "float32"})
    llama = answers_of({**named, "engine": "llamacpp"})
    found = alike(vllm, torch), alike(vllm, llama)
    print(f"of 20 answers {found[0]} as transformers', {found[1]} as llama.cpp's")
    assert len(set(vllm.texts)) >= 15, "the questions are told apart"
    assert found[0] >= 19, "the same numbers in float32; a tie may fall either way"
    assert found[1] >= 8, "llama.cpp computes with rounded activations"


def test_what_cannot_be_done_is_said_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, new, there = tmp_path / "m.gguf", tmp_path / "new", tmp_path / "there"
    with pytest.raises(EngineError, match=r"m\.gguf cannot be read"):
        dequantize(file, new)
    file.write_bytes(b"version https://git-lfs.github.com")
    with pytest.raises(EngineError, match="is damaged or not a GGUF file"):
        dequantize(file, new)
    file.write_bytes(gguf_bytes({"general.architecture": "tiny"}))
    there.mkdir()
    (there / "mine.txt").write_text("mine")
    with pytest.raises(EngineError, match="there already exists; choose another folder"):
        dequantize(file, there)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "gguf" or None)
    with pytest.raises(
        EngineError, match=r"needs gguf; install with .*contextcliff-dagster\[transformers"
    ):
        dequantize(file, new)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "there"]
    assert [path.name for path in there.iterdir()] == ["mine.txt"]


@pytest.mark.torch
def test_a_file_that_transformers_cannot_read_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="reads GGUF files for transformers: its extra brings it")
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf_bytes({"general.architecture": "tiny"}))
    target = tmp_path / "new"
    command = [sys.executable, "-m", MODULE, str(file), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "take the model's own safetensors instead" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


class Tokenizer:
    """A tokenizer of characters with an end token; ``loses``: a character that it does not read,
    ``begins``: whether its texts have a first token."""

    def __init__(self, eos_token_id: int = 2, loses: str = "", *, begins: bool = False) -> None:
        self.eos_token_id, self.loses, self.first = eos_token_id, loses, [1] if begins else []

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": self.first + [ord(sign) for sign in text if sign not in self.loses]}

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


@pytest.mark.parametrize(
    "written", [Tokenizer(eos_token_id=1), Tokenizer(loses=" "), Tokenizer(begins=True)]
)
def test_a_tokenizer_that_is_written_as_another_is_refused(
    written: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.gguf"
    numbers = {"bos_token_id": 1, "eos_token_id": 2, "add_bos_token": False}
    file.write_bytes(gguf_bytes({f"tokenizer.ggml.{key}": value for key, value in numbers.items()}))
    found = [Tokenizer(), written]
    auto = SimpleNamespace(from_pretrained=lambda folder, *, local_files_only: found.pop(0))
    transformers = SimpleNamespace(AutoTokenizer=auto, __version__="5.2.0")
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    dequantize_module._require_same_tokenizer(file, tmp_path)
    with pytest.raises(
        EngineError, match=r"transformers 5\.2\.0 writes another tokenizer.*'transformers>=5\.23'`"
    ):
        dequantize_module._require_same_tokenizer(file, tmp_path)

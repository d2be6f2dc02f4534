"""Rows of the experiment `continuation` in the tables of the core's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from contextcliff_dagster_tests.cli.bad_input.law import Case
from contextcliff_dagster_tests.cli.bad_input.table_of_files import Place, written
from contextcliff_dagster_tests.extensions.continuation import made_runs

LINES = {
    "continuation compare": "continuation compare run.csv",
    "continuation measure": "continuation measure s.csv --model writer-human",
}
VALUES = {
    **{
        f"continuation s.csv --model writer-human {option}": values
        for option, values in {
            "--max-context": ("", "x", "0", "-1", "1e9", "nan", "1k"),
            "--temp": ("", "x", ",", "1,", "-1", "3", "nan", "1,1", "1;0.5"),
            "--compat": ("", "x"),
            "--word-list": ("s.csv",),
            "--results": ("r",),
            "--out": ("o",),
            "--analyze": (".",),
            "--reanalyze": (".",),
            "--start-context": ("", "x", "-1", "64k"),
            "--max-tokens": ("", "x", "0", "15", "4k"),
            "--model-id": ("", "A b", "../x", "x" * 61, "reference"),
            "--tokenizer-model": ("", "nosuch", "a/b", "tiktoken:x"),
            "--model-name": ("x",),
            "--api-password": ("x",),
            "--api-url": ("http://127.0.0.1:9",),
        }.items()
    },
    "continuation s.csv --api-url": ("", "ftp://x", "http://u:p@127.0.0.1:9", "127.0.0.1:9"),
    "continuation s.csv --api-url http://127.0.0.1:9 --api-password": ("", "a b", "a\nb"),
    "continuation s.csv --model writer-human --compat context-tester --word-list": ("", ".", "x"),
    "continuation --analyze": ("", "x", ".", "s.csv"),
    "continuation --reanalyze": ("", "x", ".", "s.csv"),
    "continuation compare run.csv --tolerance": ("nan", "inf", "0", "1", "-5%", "", "x"),
}
NAMED = (
    "continuation compare {}", "continuation {} --model writer-human",
    "continuation s.csv --model {}",
)  # fmt: skip
_A_RUN = written("context_1024_results.json", '{"averaged_stats": {"cloze_score": 3}}')
PLACES = {
    "continuation": Place(
        "continuation own.txt --model writer-human", "own.txt",
        silent=("not UTF-8", "UTF-16", "deep brackets", "deep braces"),
    ),
    "continuation compare csv": Place("continuation compare own.csv", "own.csv"),
    "continuation compare json": Place(
        "continuation compare .", "metadata.json", ("missing", "UTF-16"), more=_A_RUN
    ),
    "continuation --analyze": Place(
        "continuation --analyze .", "metadata.json", ("missing", "UTF-16"), more=_A_RUN
    ),
    "continuation --word-list": Place(
        "continuation --reanalyze . --word-list own.txt", "own.txt",
        ("deep brackets", "deep braces"), more=_A_RUN,
    ),
}  # fmt: skip
_PROSE: dict[str, tuple[str | bytes | Callable[[], str], str]] = {
    "nothing": ("", "holds no text"),
    "blanks": (" \n\t" * 400, "holds no text"),
    "one sentence": ("It was a fine day in May.", " tokens; 1 passages"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4_000, "own.txt"),
    "two megabytes without a sentence end": (lambda: "word and " * 250_000, "has no sentence end"),
    "two megabytes without a blank": (lambda: "x" * 2_000_000, "has no sentence end"),
    "one sentence again and again": ("It was so. " * 100, "need"),
    "too little for the noise floor": ("It was so, he thought. " * 3_600, "further passages"),
}
"""Of a text to continue, and what its sentence has to name."""
NOT_RUN = {
    "continuation novel.txt --api-url http://localhost:5001": "needs KoboldCpp; "
    "commands/test_measure.py runs it on a server of its own",
    "continuation novel.txt --model my-model --max-context 16k --rounds 5 --temp 0.8 --dry-run": (
        "needs a novel; commands/test_measure.py writes one"
    ),
    "continuation novel.txt letters.epub --model my-model --model-id fine-tune-v2": "likewise",
    "continuation novel.txt --model my-model": "likewise",
    "continuation novel.txt --api-url http://localhost:5001 --compat context-tester --word-list "
    "easy_words.txt": "commands/test_compat.py runs it on a server of its own",
    "continuation --analyze results/run-q4": "needs a finished run; commands/test_again.py",
    "continuation --reanalyze results/run-q4 --word-list easy_words.txt": "likewise",
    "profile continuation-local": "needs a model and novels, and an hour of two cores",
    "profile prose": "is a study on a text of one's own; tests of the experiment measure one",
}


def cases() -> Iterator[Case]:
    """Texts that cannot be continued, runs that cannot be compared."""
    from contextcliff_dagster_tests.cli.bad_input.table_of_contents import wrong_tables

    yield from wrong_tables("continuation compare own.csv")
    line = ("continuation", "own.txt", "--model", "writer-human", "--passages", "1")
    for label, (text, words) in _PROSE.items():

        def make(folder: Path, text: str | bytes | Callable[[], str] = text) -> None:
            data = text() if callable(text) else text
            (folder / "own.txt").write_bytes(data if isinstance(data, bytes) else data.encode())

        yield Case(f"a text of {label}", line, (words,), make)


def write_world(folder: Path) -> None:
    """Two finished runs."""
    for name in ("run-f16", "run-q4"):
        made_runs.write_made_run(folder / "results" / name, name=name)

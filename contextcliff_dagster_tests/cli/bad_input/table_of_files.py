"""Every place that takes a file, times every kind of file that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster_tests.cli.bad_input import bad_files
from contextcliff_dagster_tests.cli.bad_input.law import Case
from contextcliff_dagster_tests.support.extension_tables import added

STUDY = (
    "name: mine\ncorpus: {kind: file, path: own.jsonl}\ntokenizer: reference\n"
    "models: [reference-short]\nprompt: {max_output_tokens: 12}\n"
)


class Place(NamedTuple):
    """A place of a command line, or of a file that it names, which takes a file called ``name``.

    ``fine``: kinds that are no error there. ``silent``: kinds whose sentence need not say the name.
    """

    line: str
    name: str
    fine: tuple[str, ...] = ()
    more: Callable[[Path], object] = lambda folder: None
    env: str = ""
    silent: tuple[str, ...] = ()


REFERENCE = (
    "name: mine\ncorpus: {kind: reference, documents: 60, max_tokens: 200}\nbins: {count: 2}\n"
    "models: [reference-short]\nsampling: {samples_per_bin: 2, pilot_per_bin: 1}\n"
)


def written(name: str, text: str) -> Callable[[Path], object]:
    """Writes ``text`` into a file called ``name`` of the folder it is given."""
    return lambda folder: (folder / name).write_text(text)


def _documents(folder: Path) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "a.txt").write_text("One fine day. " * 40)


_ALL = (*bad_files.NO_FILES, *bad_files.UNREADABLE)

_STUDY_LINES = (
    "profile", "prepare", "report", "calibrate", "baseline set", "baseline show", "baseline check",
    "answers", "policy", "campaign new", "campaign list", "export", "compare a b --study",
)  # fmt: skip
_MODELS_LINES = (
    "models", "models diff a b", "tokenizers", "serve reference-short", "prepare quick --model m",
    "profile quick --model m",
)  # fmt: skip
_PROMPT_FINE = {
    "template": ("deep brackets", "deep braces"),
    "system": ("empty", "deep brackets", "deep braces"),
    "instructions": ("deep brackets", "deep braces"),
}
_GUARDED = written("p.json", bad_files.policy())
_GUARDED_BY_FILE = written("p.json", bad_files.policy(tokenizer="file:own.json"))

_PLACES = {
    # Documents and questions
    "profile --data jsonl": Place("profile --data own.jsonl --model reference-short", "own.jsonl"),
    "prepare --data csv": Place("prepare --data own.csv --model reference-short", "own.csv"),
    "prepare --data json": Place("prepare --data own.json --model reference-short", "own.json"),
    "prepare --data tsv": Place("prepare --data own.tsv --model reference-short", "own.tsv"),
    "prepare --data parquet": Place("prepare --data own.parquet", "own.parquet"),
    "prepare --data txt": Place(
        "prepare --data own.txt", "own.txt", ("folder",), silent=("deep braces", "deep brackets")
    ),
    "report --data": Place("report --data own.jsonl", "own.jsonl", silent=_ALL),
    "--questions": Place(
        "prepare --data docs --questions own.csv", "own.csv", more=_documents
    ),
    "--prompt": Place("prepare quick --prompt own.txt", "own.txt"),
    # Studies
    **{
        f"{line} (study)": Place(
            f"{line} own.yaml out.zip" if line == "export" else f"{line} own.yaml", "own.yaml"
        )
        for line in _STUDY_LINES
    },
    **{
        f"prompt.{key}": Place(
            "prepare mine.yaml", "own.txt", fine,
            more=written(
                "mine.yaml", f"{REFERENCE}tokenizer: reference\nprompt: {{{key}: own.txt}}\n"
            ),
        )
        for key, fine in _PROMPT_FINE.items()
    },
    "corpus.path": Place("prepare mine.yaml", "own.jsonl", more=written("mine.yaml", STUDY)),
    "tokenizer": Place(
        "prepare mine.yaml", "own.json",
        more=written("mine.yaml", f"{REFERENCE}tokenizer: file:own.json\n"),
    ),
    # Models
    **{
        f"{line} (models.yaml)": Place(
            line, "own.yaml", env="CONTEXTCLIFF_MODELS={D}/own.yaml",
            silent=("broken link", "endless device"),
        )
        for line in _MODELS_LINES
    },
    # Scores
    "analyze csv": Place("analyze own.csv", "own.csv"),
    "analyze jsonl": Place("analyze own.jsonl", "own.jsonl"),
    "analyze json": Place("analyze own.json", "own.json"),
    "analyze parquet": Place("analyze own.parquet", "own.parquet"),
    "analyze gz": Place("analyze own.csv.gz", "own.csv.gz"),
    "analyze eval": Place("analyze own.eval", "own.eval"),
    "analyze --aggregated": Place("analyze --aggregated own.csv", "own.csv"),
    "analyze --pool": Place("analyze --pool own.csv own.csv", "own.csv"),
    "compare": Place("compare own.csv own.csv", "own.csv"),
    # Policies
    "guard": Place("guard own.json --tokens 1", "own.json"),
    "guard --file": Place(
        "guard p.json --file own.txt", "own.txt", ("empty", "deep brackets", "deep braces"),
        more=_GUARDED,
    ),
    "guard --tokenizer": Place(
        "guard p.json --file p.json --tokenizer file:own.json", "own.json", more=_GUARDED_BY_FILE
    ),
    # Archives
    "import": Place("import own.zip", "own.zip"),
    "gallery": Place("gallery own.zip", "own.zip"),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All places times all kinds that are an error there."""
    for label, place in {**_PLACES, **added("PLACES")}.items():
        for kind in (*bad_files.NO_FILES, *bad_files.UNREADABLE):
            if kind in place.fine:
                continue
            put = bad_files.make(kind, place.name)

            def make(
                folder: Path, place: Place = place, put: Callable[[Path], object] = put
            ) -> None:
                place.more(folder)
                put(folder)

            name, _, value = place.env.partition("=")
            words = () if kind in place.silent else (place.name,)
            yield Case(
                f"{label}: {kind}",
                tuple(place.line.split()),
                words,
                make,
                {name: value} if name else {},
            )

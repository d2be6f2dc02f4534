"""Write docs/studies.md and docs/models.md from the declarations: `make docs`.

The commands of docs/cli.md are written from their help; the text above them stays unchanged. The
adapters check the options of a corpus themselves: a test compares `CORPUS_OPTIONS` with what they
accept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from contextcliff_dagster.cli.app import app
from contextcliff_dagster.corpora.benchmarks.benchmark_table import BENCHMARKS
from contextcliff_dagster.inference.models.entry import ModelEntry
from contextcliff_dagster.inference.models.models_file import PRESETS, Preset, as_yaml
from contextcliff_dagster.studies.experiment_table import experiment_names, load_experiment
from contextcliff_dagster.studies.study import Study


class Option(NamedTuple):
    """An option of a corpus; ``default`` is text, empty if there is none."""

    type: str
    default: str
    meaning: str
    example: Any


_TASK = Option("text", "", "Only questions of this kind", "clause")
_TASKS = Option("list", "all", "Only questions of these kinds", ["clause", "date"])
_COLUMNS = Option("mapping", "", "Our columns by the names in the table", {"answers": "Antwort"})
_SEED = Option("number", "0", "Another one chooses others", 1)
_SPLIT = "A number of tokens of the reference tokenizer"

CORPUS_OPTIONS: dict[str, dict[str, Option]] = {
    "folder": {
        "path": Option("path", "needed", "A folder of documents, or one", "contracts"),
        "questions": Option(
            "path or recall", "found in the folder", "Table of questions; recall: made", "recall"
        ),
        "columns": _COLUMNS,
        "task": _TASK,
        "tasks": _TASKS,
        "questions_per_document": Option("number", "5", "Made for recall", 3),
        "recall_question": Option(
            "sentence or beginning", "sentence", "beginning: for prompts that begin so", "beginning"
        ),
        "seed": _SEED,
        "min_characters": Option("number", "0", "Shorter documents are left out", 500),
        "limits": Option("mapping", "", "What reading one file may cost", {"seconds": 20}),
    },
    "file": {
        "path": Option("path", "needed", "The table", "examples.jsonl"),
        "format": Option("text", "by the ending", "jsonl, json, csv, tsv, parquet, arrow", "jsonl"),
        "columns": _COLUMNS,
        "task": Option("text", "question_answering", "Of rows that name none", "lookup"),
        "tasks": _TASKS,
    },
    "python-source": {
        "roots": Option("list", "both", "stdlib, site-packages", ["stdlib"]),
        "path": Option("path", "", "A folder instead of them", "my-project"),
        "kinds": Option("list", "all", "Kinds of questions (docs/corpora.md)", ["constant_value"]),
        "task": Option("text", "", "One kind", "constant_value"),
        "files": Option("number", "2000", "Files that are read at most", 500),
        "documents": Option("number", "all", "Documents that are used at most", 300),
        "questions_per_document": Option("number", "6", "At most", 3),
        "min_bytes": Option("number", "1", "Of a file", 600),
        "max_bytes": Option("number", "1000000", "Of a file", 8000),
        "line_question": Option(
            "sentence or beginning", "sentence", "beginning: for prompts that begin so", "beginning"
        ),
        "seed": _SEED,
    },
    "reference": {
        "documents": Option("number", "1000", "Documents to generate", 500),
        "questions": Option("number", "1", "On each document, of each task", 2),
        "task": Option("lookup or two_hop", "", "One of the two", "lookup"),
        "tasks": Option("list", "both", "Both, or one", ["lookup", "two_hop"]),
        "min_tokens": Option("number", "the shortest", _SPLIT, 200),
        "max_tokens": Option("number", "the longest", _SPLIT, 2000),
        "seed": _SEED,
    },
    "mixed": {
        "parts": Option(
            "list",
            "needed",
            "Two corpora or more, each with kind and options (and a `name` of its own)",
            [{"kind": "reference"}, {"kind": "python-source"}],
        ),
    },
}

BENCHMARK: dict[str, Option] = {
    "path": Option("path", "needed", "A file or folder, as published", "data/corpora/squad"),
    "task": _TASK,
    "tasks": _TASKS,
    "unanswerable": Option("leave_out or ask", "leave_out", "Questions without an answer", "ask"),
    "allow_synthetic_length": Option(
        "true or false", "false", "Use tasks whose lengths were manufactured", True
    ),
}
"""Options of every public benchmark; some benchmarks add their own (`own_options`)."""


DOCS = Path(__file__).resolve().parents[1] / "docs"
_MADE = "<!-- Written by `make docs` from the code; change the descriptions there. -->"
_WINDOWS = {
    "server": "reported at each start",
    "written": "reported when the entry is written",
    "yours": "from the model's page: `window_tokens`",
}


def inner_model(info: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a key's section, or None if the key is not a section."""
    if get_origin(info.annotation) is tuple:
        return None  # a list of sections
    kinds = (info.annotation, *get_args(info.annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def description(info: FieldInfo) -> str:
    """Return a key's meaning, or the first paragraph of a section's docstring."""
    inner = inner_model(info)
    text = info.description or (inner.__doc__ or "" if inner else "")
    return " ".join(text.split("\n\n")[0].replace("``", "`").split()).rstrip(".")


def example(key: str, info: FieldInfo) -> dict[str, Any] | None:
    """Return an example of the key with the keys it requires; None for a section."""
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    needs = extra.get("with", {})
    value = info.examples[0] if info.examples else _other_than_default(info)
    if isinstance(value, BaseModel) or inner_model(info):
        return None
    assert isinstance(needs, dict)
    if isinstance(value, tuple):
        value = [v.model_dump(mode="json") if isinstance(v, BaseModel) else v for v in value]
    return {**needs, key: value}


def _other_than_default(info: FieldInfo) -> Any:
    """Return a value other than the default if a key is a choice or a boolean; else the default."""
    default = info.get_default(call_default_factory=True)
    if get_origin(info.annotation) is Literal:
        return get_args(info.annotation)[-1]
    return not default if isinstance(default, bool) else default


def sections(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the keys of ``model`` that are sections, with their models."""
    for key, info in model.model_fields.items():
        if inner := inner_model(info):
            yield key, inner


def experiment_sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the experiments whose key is a section, with the section's model."""
    for name in experiment_names():
        kind = load_experiment(name).section
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield name, kind


def studies_page() -> str:
    """Return the text of docs/studies.md."""
    parts = [
        "# Every key of a study",
        _MADE,
        "A study is a YAML file; unknown keys are errors with file, line and key. `contextcliff "
        "init`\nwrites one; [those that are shipped](../studies/README.md) are examples. Paths are "
        "relative to\nthe file.",
        "## The file itself",
        _table(Study, ""),
    ]
    for key, section in sections(Study):
        if key != "corpus":
            parts += [f"## `{key}`", _doc(section), _table(section, key)]
    parts += [
        "## `corpus`",
        "`kind`, and the options of that kind ([what each reads](corpora.md)).",
    ]
    for kind, options in CORPUS_OPTIONS.items():
        parts += [f"### `kind: {kind}`", _options(kind, options)]
    names = ", ".join(f"`{name}`" for name in BENCHMARKS)
    table = [_options("squad", BENCHMARK)]
    for name, benchmark in BENCHMARKS.items():
        for option, values in benchmark.own_options.items():
            entry = Option(" or ".join(values), values[0], f"Of `{name}`", values[-1])
            table.append(_option(name, option, entry))
    parts += ["### Public benchmarks", f"{names}:", "\n".join(table)]
    rows, by_name = [], dict(experiment_sections())
    for name in experiment_names():
        experiment = load_experiment(name)
        if experiment.section is not None:
            doc = " ".join((type(experiment).__doc__ or "").split())
            sample = as_yaml({name: experiment.example})[1:-1]
            kind = "section" if name in by_name else _type(experiment.section)
            rows.append(_row(f"`{name}`", kind, "", doc, f"`{sample}`"))
    parts += [
        "## Experiments",
        "Each experiment has a key of its own; the length profile needs none.",
        "\n".join([_HEAD, *rows]),
    ]
    for key, section in by_name.items():
        parts += [f"### `{key}`", _doc(section), _table(section, key)]
    return "\n\n".join(parts) + "\n"


def models_page() -> str:
    """Return the text of docs/models.md."""
    parts = [
        "# Every key of models.yaml",
        _MADE,
        "`models:` maps a name to an entry. Yours are in `./models.yaml`, or in the file that\n"
        "`CONTEXTCLIFF_MODELS` names; one of the same name replaces a shipped one. `contextcliff "
        "init` and\n`contextcliff models add` write entries; [engines](inference.md) has the whole "
        "story of each.",
        "## Presets",
        "What `--preset NAME` writes, after the documentation of each. Where it says *not tried*, "
        "this project\nhas never called the real service.",
        "\n".join(
            [
                "| preset | address | key | quirks | context window | tried |",
                "|---|---|---|---|---|---|",
                *(_preset(preset) for preset in PRESETS.values()),
            ]
        ),
        *(f"- [{p.title}]({p.source}): {p.note}" for p in PRESETS.values() if p.note),
        "Parameters that single models refuse (a temperature of 0) are in no preset: the small "
        "call of `init`\nmeets the refusal and adds the quirk to the entry.",
        "## An entry",
        _table(ModelEntry, "", leave_out="name"),
    ]
    for key, section in sections(ModelEntry):
        parts += [f"## `{key}`", _doc(section), _table(section, key)]
    text = "\n\n".join(parts) + "\n"
    return re.sub(r"(?m)^(- .*)\n\n(?=- )", r"\1\n", text)


_HEAD = "| key | type | default | meaning | example |\n|---|---|---|---|---|"


def _table(model: type[BaseModel], within: str, leave_out: str = "") -> str:
    rows = [_HEAD]
    for key, info in model.model_fields.items():
        if key == leave_out:
            continue
        sample = example(key, info)
        if inner_model(info):
            cells = "section", "", f"[below](#{key})"
        else:
            assert sample is not None
            text = as_yaml({within: sample} if within else sample)
            cells = _type(info.annotation), _default(info), f"`{text[1:-1]}`"
        rows.append(_row(f"`{key}`", *cells[:2], description(info), cells[2]))
    return "\n".join(rows)


def _options(kind: str, options: Mapping[str, Option]) -> str:
    return "\n".join([_HEAD, *(_option(kind, *item) for item in options.items())])


def _option(kind: str, name: str, option: Option) -> str:
    sample = as_yaml({"corpus": {"kind": kind, name: option.example}})[1:-1]
    return _row(f"`{name}`", option.type, f"{option.default}", option.meaning, f"`{sample}`")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").replace("``", "`").split())


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "needed"
    value = info.get_default(call_default_factory=True)
    if value is None or value in ("", {}):
        return ""
    if isinstance(value, tuple):
        value = [v.model_dump(mode="json") if isinstance(v, BaseModel) else v for v in value]
    return f"`{str(value).lower() if isinstance(value, bool) else as_yaml(value)}`"


_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", dict: "mapping"}


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if annotation is type(None):
        return ""
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return " or ".join(filter(None, map(_type, get_args(annotation))))
    if origin is tuple:
        return "list"
    if hasattr(annotation, "__metadata__"):
        return _type(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _TYPES.get(origin or annotation, str(annotation))


def _preset(preset: Preset) -> str:
    quirks = f"`{as_yaml(dict(preset.quirks))}`" if preset.quirks else ""
    key = f"`{preset.api_key_env}`" if preset.api_key_env else ""
    tried = preset.tried or "not tried on the real service"
    window = _WINDOWS[preset.window]
    return _row(f"`{preset.name}`", f"`{preset.base_url}`", key, quirks, window, tried)


_COMMANDS = re.compile(r"(?<=\n## Commands\n\n).*", re.S)
_RANGE = re.compile(r"(; )?[\d.]*<?=?x[<>]=?[\d.]+(?=\])")


def cli_page() -> str:
    """Return the text of docs/cli.md: its text above "Commands", then every command."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    commands = command_sections()
    return _COMMANDS.sub(lambda _: commands, page)


def command_sections() -> str:
    """Return one section per command: its arguments, help and options."""
    commands = list(_commands(app, ""))
    counted = Counter(option for _, command in commands for option in _cli_options(command))
    common = [option for option, times in counted.items() if 2 * times > len(commands)]
    parts = [_MADE, "Options of nearly every command:", "\n".join(sorted(common))]
    for name, command in commands:
        pieces = command.collect_usage_pieces(click.Context(command))
        arguments = " ".join(piece for piece in pieces if piece != "[OPTIONS]")
        parts.append(f"{'###' + '#' * name.count(' ')} `{name}`")
        if arguments and not isinstance(command, click.Group):
            parts.append(f"Arguments: `{arguments}`")
        parts += _paragraphs(command.help or "")
        own_options = [option for option in _cli_options(command) if option not in common]
        parts.append("\n".join(own_options))
    return "\n\n".join(filter(None, parts)) + "\n"


def _commands(group: click.Group, within: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, each group before its commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{within}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{within}{name} ")


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a command's help without its preformatted examples."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n") if "\b" not in part)
    return [part.replace("<", r"\<") for part in paragraphs if part]


def _cli_options(command: click.Command) -> list[str]:
    """Return one list item per option: its names, and its help without number ranges."""
    context = click.Context(command)
    options = (option for option in command.params if isinstance(option, click.Option))
    records = (option.get_help_record(context) for option in options)
    rows = [(record[0], _RANGE.sub("", record[1])) for record in records if record]
    return [f"- `{names}`: {' '.join(text.replace('[]', '').split())}" for names, text in rows]


PAGES = {"studies.md": studies_page, "models.md": models_page, "cli.md": cli_page}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

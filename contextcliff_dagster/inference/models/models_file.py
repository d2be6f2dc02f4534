"""The registry of models: named serving configurations, presets, and adding an entry.

``models.yaml`` maps a name to an engine, a model id, an endpoint, a window, prices and the quirks
of real endpoints. The store's file (`kept_models_file`) overrides the shipped file name by name.
Both are overridden by the file that ``CONTEXTCLIFF_MODELS`` names, or else by ``models.yaml`` in
the working folder.

Presets are widely used servers: address, key variable, quirks, and source of the window.
`contextcliff init` and `contextcliff models add` write them into the user's models.yaml. Each row
follows the server's own documentation (``source``); docs/models.md shows the table, and which of
them this project has called.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import pydantic

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster.inference.models.entry import ModelEntry as ModelEntry
from contextcliff_dagster.inference.models.entry import Name, Strict
from contextcliff_dagster.inference.models.entry import Price as Price
from contextcliff_dagster.inference.models.entry import Quirks as Quirks
from contextcliff_dagster.inference.models.kv_variants import Models, kv_policy, parse_kv_variant
from contextcliff_dagster.private_files import atomic_path, folder_lock
from contextcliff_dagster.store import PACKAGE, store_root, write_atomic
from contextcliff_dagster.user_files import read_file
from contextcliff_dagster.yaml_config import load_validated, yaml_text

if TYPE_CHECKING:
    import yaml

SHIPPED_MODELS = PACKAGE / "models.yaml"


class _ModelsFile(Strict):
    models: dict[Name, ModelEntry]

    @pydantic.model_validator(mode="before")
    @classmethod
    def _names_from_keys(cls, data: Any) -> Any:
        models = data.get("models") if isinstance(data, Mapping) else None
        if not isinstance(models, Mapping):
            return data
        named = dict(models)
        for key, entry in models.items():
            if isinstance(entry, Mapping):
                named[key] = {"name": key, **entry}
                if (name := named[key]["name"]) != key:
                    raise ValueError(f"model {key!r} has `name: {name}`; leave `name` out")
        return {**data, "models": named}


def model_files(*, here: bool = True) -> list[Path]:
    """Return the files of the registry; later ones override earlier ones.

    ``here``: include the file of the working folder.
    """
    store_file = kept_models_file()
    shared = [path for owner in extensions().values() if (path := owner.own("models.yaml"))]
    files = [SHIPPED_MODELS, *shared, *([store_file] if store_file.is_file() else [])]
    if user_file := os.environ.get("CONTEXTCLIFF_MODELS"):
        return [*files, Path(user_file).expanduser()]
    local = Path("models.yaml")
    return [*files, local] if here and local.is_file() else files


def kept_models_file() -> Path:
    """Return the store's own file, for models that a command has found at an address."""
    return store_root() / "_models.yaml"


def load_models(paths: Sequence[Path] | None = None) -> Models:
    """Return name -> entry of ``paths`` or `model_files()`; later files replace whole entries.

    A variant of an entry (`kv_variants`) is also found by name, though not listed.

    Raises:
        StudyError: an entry is invalid; the message gives file, line and key.
    """
    entries = Models()
    for path in model_files() if paths is None else paths:
        try:
            stat = path.stat()
            stamp = stat.st_mtime_ns, stat.st_size
        except OSError:
            stamp = 0, 0
        entries.update(_load_file(path.resolve(), stamp))
    return entries


def get_model(name: str, models: Mapping[str, ModelEntry] | None = None) -> ModelEntry:
    """Return the entry or variant called ``name``; raise StudyError listing the known models."""
    models = load_models() if models is None else Models(models)
    try:
        return models[name]
    except KeyError as error:
        if isinstance(error.__cause__, StudyError):  # a variant that its engine does not support
            raise error.__cause__ from None
    variant = parse_kv_variant(name)
    if variant and variant.base in models:
        raise StudyError(
            f"Model {name!r} cannot be made of {variant.base!r}, which is itself a variant; use "
            f"the model without `+{variant.base.rpartition('+')[2]}`."
        )
    base, _, policy = name.rpartition("+")
    if base in models and kv_policy(policy):
        raise StudyError(f"Model {name!r} needs a budget, for instance {name}@0.2.")
    raise StudyError(
        f"There is no model {name!r}; there are {', '.join(sorted(models))}. "
        "Add it to ./models.yaml (or the file that CONTEXTCLIFF_MODELS names)."
    )


@cache
def _load_file(path: Path, stamp: tuple[int, int]) -> dict[str, ModelEntry]:
    """Return a file's entries, cached by path and modification time for long-lived processes."""
    del stamp
    entries = load_validated(path, _ModelsFile).models
    for name, entry in entries.items():
        if weights := entry.weights:
            # Relative to the file that names them; a bare name may also be a fetched model.
            place = path.parent / Path(weights).expanduser()
            if weights != place.name or place.exists():
                entries[name] = entry.model_copy(update={"weights": str(place)})
        if bundle := entry.ca_bundle:
            bundle = str(path.parent / Path(bundle).expanduser())
            entries[name] = entries[name].model_copy(update={"ca_bundle": bundle})
    return entries


_HEAD = "# Kept by contextcliff for its studies; your own models belong into models.yaml.\n"


@contextmanager
def kept_model(new: NewEntry) -> Iterator[ModelEntry]:
    """Add ``new`` to this store's models, and drop it again unless a study of the store uses it.

    An entry of the same name in the user's models.yaml takes precedence.

    Raises:
        StudyError: a field of the entry is unknown.
        StoreError: the store cannot be written.
    """
    new.checked()
    _change(new.name, dict(new.fields))
    try:
        yield load_models()[new.name]
    finally:
        files = (store_root() / "_studies").glob("*.yaml")
        if not any(new.name in file.read_text("utf-8") for file in files):
            _change(new.name, None)


def _change(name: str, entry: Mapping[str, Any] | None) -> None:
    import yaml

    file = kept_models_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(file.parent):
            kept = yaml.safe_load(file.read_bytes())["models"] if file.exists() else {}
            kept.pop(name, None)
            if entry is not None:
                kept[name] = dict(entry)
            if kept:
                write_atomic(file, (_HEAD + yaml.safe_dump({"models": kept})).encode())
            else:
                file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"{file} cannot be written ({error.strerror or error}); point --store or "
            "CONTEXTCLIFF_HOME at a writable folder."
        ) from error
    if not kept:
        with suppress(OSError):  # remove the store's folder again if we made it
            file.parent.rmdir()


Window = Literal["server", "written", "yours"]
"""Source of the context window: the server, at each start; the server once, when the entry is
written; or the user, from the model's documentation."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A kind of server, with the settings to reach it.

    ``title``: its name as its makers write it. ``base_url``: its usual address; for servers on this
    machine, with their default port. ``source``: the page that documents this. ``tried``: this
    project's calls to it. ``api_key_env``: variable for the key in its documentation. ``quirks``:
    those of the entry that differ from the defaults. ``note``: advice before measuring, as a
    comment of the entry. ``concurrency``: calls at a time; None for the default.
    """

    name: str
    title: str
    base_url: str
    source: str
    window: Window
    tried: str = ""
    api_key_env: str | None = None
    quirks: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    concurrency: int | None = None

    @property
    def local_port(self) -> int | None:
        """The server's usual port on this machine; None for a service elsewhere."""
        parts = urlsplit(self.base_url)
        return parts.port if parts.hostname == "127.0.0.1" else None


_KNOWN = {"probes": "omit"}
"""Quirk for servers of known kind, which are not probed for vLLM, llama.cpp and others."""

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "openai",
            "OpenAI",
            "https://api.openai.com/v1",
            "https://platform.openai.com/docs/api-reference/chat/create",
            "yours",
            api_key_env="OPENAI_API_KEY",
            # `max_tokens` is deprecated there, and refused by reasoning models.
            quirks={"max_tokens_parameter": "max_completion_tokens", **_KNOWN},
            note="Name a dated model: the model behind an alias changes without notice.",
        ),
        Preset(
            "anthropic",
            "Anthropic",
            "https://api.anthropic.com/v1",
            "https://platform.claude.com/docs/en/api/openai-sdk",
            "yours",
            api_key_env="ANTHROPIC_API_KEY",
            # Its list of models takes another header than the key of this interface.
            quirks={"model_list": "omit", **_KNOWN},
            note="Its OpenAI-compatible interface is meant for testing and comparing models.",
        ),
        Preset(
            "gemini",
            "Gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "https://ai.google.dev/gemini-api/docs/openai",
            "yours",
            api_key_env="GEMINI_API_KEY",
            quirks=_KNOWN,
            note="Thinking counts against the output limit: raise `max_output_tokens` of the study "
            "where answers are empty.",
        ),
        Preset(
            "openrouter",
            "OpenRouter",
            "https://openrouter.ai/api/v1",
            "https://openrouter.ai/docs/api-reference/overview",
            "written",
            api_key_env="OPENROUTER_API_KEY",
            quirks=_KNOWN,
            note="It passes calls on to several providers, whose windows and weights differ: fix "
            "one in your account's settings before you compare.",
        ),
        Preset(
            "nvidia",
            "NVIDIA's hosted NIM",
            "https://integrate.api.nvidia.com/v1",
            "https://docs.api.nvidia.com/nim/reference/llm-apis",
            "yours",
            api_key_env="NVIDIA_API_KEY",
            quirks=_KNOWN,
        ),
        Preset(
            "ollama",
            "Ollama",
            "http://127.0.0.1:11434/v1",
            "https://docs.ollama.com/api/openai-compatibility",
            "written",
            note="Ollama cuts a longer prompt without an error. Set OLLAMA_CONTEXT_LENGTH there, "
            "and the same number here.",
            concurrency=1,
        ),
        Preset(
            "lmstudio",
            "LM Studio",
            "http://127.0.0.1:1234/v1",
            "https://lmstudio.ai/docs/developer/openai-compat",
            "written",
            note="The window is the one that the model is loaded with in LM Studio.",
            concurrency=1,
        ),
        Preset(
            "vllm",
            "vLLM",
            "http://127.0.0.1:8000/v1",
            "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
            "server",
            tried="version 0.32, on a CPU",
        ),
        Preset(
            "llamacpp",
            "llama.cpp",
            "http://127.0.0.1:8080/v1",
            "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
            "server",
            tried="its server inside xllamacpp 2026.10, on a CPU",
            note="Start llama-server with --no-context-shift; -c divided by -np is the window.",
            concurrency=1,
        ),
        Preset(
            "koboldcpp",
            "KoboldCpp",
            "http://127.0.0.1:5001/v1",
            "https://github.com/LostRuins/koboldcpp/wiki",
            "server",
            concurrency=1,
        ),
        Preset(
            "nim",
            "NVIDIA NIM",
            "http://127.0.0.1:8000/v1",
            "https://docs.nvidia.com/nim/large-language-models/latest/reference/api-reference.html",
            "server",
        ),
    )
}


def get_preset(name: str) -> Preset:
    """Return the preset called ``name``; raise StudyError listing the known presets."""
    if name not in PRESETS:
        raise StudyError(f"Unknown preset {name!r}; choose one of {', '.join(PRESETS)}.")
    return PRESETS[name]


_FILE_HEAD = """\
# Your models; every key is explained in docs/models.md. Keys and passwords stay in environment
# variables: only the names of these are here.
"""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A new model called ``name`` with its ``fields`` as in models.yaml.

    ``comments``: field -> comment at the end of its line. ``notes``: comment lines above the entry.
    ``hints``: lines below it, commented out.
    """

    name: str
    fields: Mapping[str, Any]
    comments: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    hints: Sequence[str] = ()

    def checked(self) -> ModelEntry:
        """Return the validated entry.

        Raises:
            StudyError: a field's value is invalid; values of keys and tokens are not shown.
        """
        try:
            return ModelEntry.model_validate({"name": self.name, **self.fields})
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["loc"] == ("name",):
                raise StudyError(
                    f"{self.name[:120]!r} cannot be the name of a model: letters, digits and "
                    "._/:@+-, at most 120, beginning with a letter or a digit."
                ) from None
            key = ".".join(map(str, first["loc"])) or "entry"
            what = str(first["msg"]).removeprefix("Value error, ")
            raise StudyError(f"Model {self.name!r}: {key}: {what}; correct that.") from None

    def lines(self, indent: int, newline: str = "\n") -> str:
        """Return the entry as text that is indented by ``indent`` blanks."""
        pad = " " * indent
        rows = [f"{pad}# {note}" for note in self.notes]
        rows.append(f"{pad}{as_yaml(self.name)}:")
        for key, value in self.fields.items():
            comment = f"   # {self.comments[key]}" if key in self.comments else ""
            rows.append(f"{pad}{pad or '  '}{key}: {as_yaml(value)}{comment}")
        rows += [f"{pad}{pad or '  '}# {hint}" for hint in self.hints]
        return "".join(f"{row}{newline}" for row in rows)


def as_yaml(value: Any) -> str:
    """Return ``value`` as YAML on one line."""
    return yaml_text(value, one_line=True).removesuffix("...\n").strip()


def own_models_file() -> Path:
    """Return the file that has, or will have, the user's entries."""
    return Path(os.environ.get("CONTEXTCLIFF_MODELS") or "models.yaml").expanduser().absolute()


def known_models() -> dict[str, ModelEntry]:
    """Return the written entries, even if the user's file does not exist yet."""
    file = own_models_file()
    return dict(load_models([SHIPPED_MODELS, *([file] if file.exists() else [])]))


@contextmanager
def added(new: NewEntry) -> Iterator[Path]:
    """Write ``new`` into the user's models.yaml, and undo that if the block raises.

    An existing entry with the same fields is left unchanged. Other commands wait meanwhile.

    Raises:
        StudyError: the name is taken, the file is malformed or not writable; nothing is changed.
    """
    path = own_models_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(path.parent):
            before = read_file(path) if path.exists() else None
            entry = new.checked()
            existing = known_models().get(new.name)
            if existing is not None and existing != entry:
                raise StudyError(taken(new.name))
            if existing is None:
                _write(path, with_entry(before, new, path))
            try:
                yield path
            except BaseException:
                if existing is None:
                    _restore(path, before)
                raise
    except StoreError as error:
        cause = error.__cause__
        reason = getattr(cause, "strerror", None) or str(cause or error)
        raise StudyError(_not_writable(path, reason)) from error
    except OSError as error:
        raise StudyError(_not_writable(path, error.strerror or str(error))) from error


def taken(name: str) -> str:
    """Return a sentence saying that a model of this name already exists."""
    return (
        f"Model {name!r} already exists and was not changed; choose another name, or edit its "
        "entry in models.yaml."
    )


def with_entry(before: bytes | None, new: NewEntry, path: Path) -> bytes:
    """Return the file with the entry added at the end; all existing bytes stay the same.

    Raises:
        StudyError: the file's form does not allow that.
    """
    import yaml

    if before is None:
        return f"{_FILE_HEAD}\nmodels:\n{new.lines(2)}".encode()
    text = before.decode("utf-8")
    newline = "\r\n" if "\r\n" in text else "\n"
    by_hand = StudyError(
        f"{path} has its `models` in a form that cannot be extended automatically; add this "
        f"entry by hand: {as_yaml({new.name: dict(new.fields)})}"
    )
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if root is not None and isinstance(root.value, list) else []
    models = next((value for name, value in pairs if name.value == "models"), None)
    if not isinstance(models, yaml.MappingNode) or models.flow_style or not models.value:
        raise by_hand
    indent = models.value[0][0].start_mark.column
    lines = text.splitlines(keepends=True)
    place = _end_of(models, lines, indent)
    if lines and place == len(lines) and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += newline
    lines.insert(place, new.lines(indent, newline))
    after = "".join(lines)
    old, wanted = yaml.safe_load(text), yaml.safe_load(after)
    expected = {**old, "models": {**old["models"], new.name: dict(new.fields)}}
    if wanted != expected:  # an anchor, a tab, a document end or the like
        raise by_hand
    return after.encode("utf-8")


def _end_of(models: yaml.Node, lines: Sequence[str], indent: int) -> int:
    """Return the number of lines up to the end of the last entry, with its comments."""
    ends: list[tuple[int, int]] = []
    pending: list[Any] = [models]
    while pending:
        node = pending.pop()
        if isinstance(node.value, list) and node.value and not node.flow_style:
            parts = [
                part for one in node.value for part in (one if isinstance(one, tuple) else [one])
            ]
            pending += parts
        else:
            ends.append((node.end_mark.line, node.end_mark.column))
    line, column = max(ends)
    place = line + (column > 0)
    for number in range(place, len(lines)):
        stripped = lines[number].lstrip(" ")
        if not stripped.startswith("#") or len(lines[number]) - len(stripped) <= indent:
            break
        place = number + 1
    return place


def _write(path: Path, data: bytes) -> None:
    real = path.resolve()  # a link stays one
    mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else None
    with atomic_path(real, private=False) as temporary:
        temporary.write_bytes(data)
        if mode is not None:
            temporary.chmod(mode)


def _restore(path: Path, before: bytes | None) -> None:
    if before is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, before)


def _not_writable(path: Path, reason: str) -> str:
    return (
        f"{path} cannot be written ({reason}); run the command in a folder that you may write to, "
        "or name another file in CONTEXTCLIFF_MODELS."
    )

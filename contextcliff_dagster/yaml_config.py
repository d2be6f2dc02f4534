"""Validated YAML files written by users; every error names the file, line and key."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from contextcliff_dagster.contracts import ContextCliffError, StudyError
from contextcliff_dagster.user_files import read_file

if TYPE_CHECKING:
    import pydantic
    import yaml

Model = TypeVar("Model", bound="pydantic.BaseModel")

_MOST_BYTES = 1 << 19
_MOST_NODES = 200_000
_DEEPEST = 100
_NAMES_OF_VARIABLES = {"api_key_env", "headers_env"}
"""Keys under which users sometimes put the secret itself instead of a variable's name."""


def load_validated(path: Path, model: type[Model]) -> Model:
    """Return the YAML file at ``path`` as a validated ``model``.

    A key given twice is an error (plain YAML readers silently keep the last). Values under unknown
    keys are never repeated in a message: they may be secrets.

    Raises:
        StudyError: the file is missing, unreadable, not YAML, or does not fit ``model``; the
            message names the file, the line and the key, and says what was expected.
    """
    import pydantic

    node, data = _read(path)
    if not isinstance(data, dict):
        raise StudyError(
            f"{path}, line 1: the file should hold keys and values; write `key: value` lines."
        )
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        errors = error.errors(include_url=False)
        # A misspelt required key is reported as missing, too; the unknown key says more.
        errors.sort(key=lambda details: details["type"] != "extra_forbidden")
        raise _sentence(errors[0], node, path, model) from None
    except ContextCliffError as error:
        raise StudyError(f"{path}: {error}") from None


def _read(path: Path) -> tuple[yaml.Node, Any]:
    import yaml

    try:
        text = read_file(path, _MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise StudyError(f"{path} does not exist; check the path.") from None
    except UnicodeDecodeError as error:
        raise StudyError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8."
        ) from None
    except OSError as error:
        raise StudyError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions."
        ) from None
    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is None:
            raise StudyError(f"{path} is empty; write at least one `key: value` line.")
        _refuse_duplicate_keys(node, path)
        _refuse_too_much(node, path)
        return node, loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        known = isinstance(error, yaml.constructor.ConstructorError)
        what = "" if known else " is not valid YAML"
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise StudyError(f"{path}{where}{what}: {problem}; correct that line.") from None
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML raises these for an invalid date, a number of 5,000 digits, or `!!bool maybe`.
        reason = " ".join(str(error).split("; ")[0].split()) or "of another type than it says"
        raise StudyError(f"{path} has a value that cannot be read ({reason}); correct it.") from (
            None
        )


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Return PyYAML's safe loader with a limit on nesting, because it recurses."""
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > _DEEPEST:
                problem = f"more than {_DEEPEST} levels of keys and lists"
                raise yaml.composer.ComposerError(None, None, problem, self.get_mark())
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    return Loader


def yaml_text(value: Any, *, one_line: bool = False) -> str:
    """Return ``value`` as YAML with keys in order; every text is read back unchanged."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, written: str) -> yaml.Node:
        # These are line breaks in YAML; PyYAML would fold them in any other style.
        style = '"' if any(line_end in written for line_end in "\x85\u2028\u2029") else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", written, style)

    Dumper.add_representer(str, text)
    layout: dict[str, Any] = {"default_flow_style": True, "width": 1_000_000} if one_line else {}
    return str(yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, **layout))


def _refuse_too_much(root: yaml.Node, path: Path) -> None:
    """Refuse circular aliases, and aliases that unfold to implausibly many values.

    Raises:
        StudyError: there are such aliases; the message names the line.
    """
    import yaml

    # Values and levels of a node; None: its parts are being counted.
    sizes: dict[int, tuple[int, int] | None] = {}

    def count(node: yaml.Node) -> tuple[int, int]:
        if id(node) in sizes:
            size_and_levels = sizes[id(node)]
            if size_and_levels is None:
                raise StudyError(
                    f"{path}, line {node.start_mark.line + 1}: an alias holds itself; remove it."
                )
            return size_and_levels
        sizes[id(node)] = None
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        counts = [count(part) for part in parts]
        size = 1 + sum(values for values, _ in counts)
        levels = 1 + max((below for _, below in counts), default=0)
        sizes[id(node)] = size, levels
        if levels > _DEEPEST:
            raise StudyError(
                f"{path}, line {node.start_mark.line + 1}: its aliases unfold to more than "
                f"{_DEEPEST} levels of keys and lists; write fewer."
            )
        if size > _MOST_NODES:
            raise StudyError(
                f"{path}, line {node.start_mark.line + 1}: its aliases unfold to more than "
                f"{_MOST_NODES:,} values; write them out, or fewer."
            )
        return size, levels

    count(root)


def _refuse_duplicate_keys(root: yaml.Node, path: Path) -> None:
    import yaml

    stack, visited = [root], set()
    while stack:
        node = stack.pop()
        if id(node) in visited:  # aliases may form a cycle
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = key.value
                may_repeat = name == "<<" or not isinstance(name, str)
                if not may_repeat and name in seen:
                    raise StudyError(
                        f"{path}, line {key.start_mark.line + 1}: key {name!r} appears twice; "
                        "remove one."
                    )
                if not may_repeat:
                    seen.add(name)
                stack.append(value)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)


def _locate(root: yaml.Node, location: Iterable[int | str]) -> tuple[list[str], int]:
    """Return the keys along ``location``, even if the last is missing, and their line."""
    import yaml

    node, parts, line = root, [], root.start_mark.line + 1
    steps = list(map(str, location))
    for depth, step in enumerate(steps, start=1):
        if step == "[key]":  # the error is about the preceding key, not its value
            break
        inner: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        if isinstance(node, yaml.MappingNode):
            inner = {str(key.value): (key, value) for key, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            inner = {str(index): (item, item) for index, item in enumerate(node.value)}
        if step in inner:
            place, node = inner[step]
            line = place.start_mark.line + 1
            parts.append(step)
        elif isinstance(node, yaml.MappingNode) and depth == len(steps) and "[" not in step:
            parts.append(step)  # missing key; union tags of the validator are not keys
    return parts, line


def _sentence(
    error: Any, root: yaml.Node, path: Path, model: type[pydantic.BaseModel]
) -> StudyError:
    parts, line = _locate(root, error["loc"])
    key = ".".join(parts) or "(top level)"
    kind, value = error["type"], error["input"]
    where = f"{path}, line {line}, key {key!r}"
    if kind == "extra_forbidden":
        last = parts[-1] if parts else ""
        if last in {"api_key", "key", "token", "secret"}:
            hint = (
                "secrets come from the environment only: give the variable's name as `api_key_env`"
            )
        else:
            known = sorted(_field_names(model))
            near = difflib.get_close_matches(last, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "remove it or correct its spelling"
        return StudyError(f"{where}: there is no such key; {hint}.".replace("?.", "?"))
    if kind == "missing":
        return StudyError(f"{where} is missing; add it.")
    if kind == "string_pattern_mismatch" and _NAMES_OF_VARIABLES & set(parts):
        what = "a header" if error["loc"][-1] == "[key]" else "an environment variable"
        # Not repeated: it may be the secret itself.
        return StudyError(f"{where}: should be the name of {what}; correct it.")
    text = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    text = re.sub(r"^(Input|String|Keys) should", "should", text).split(", unable to parse")[0]
    text = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping", text).rstrip(".")
    if kind in {"value_error", "assertion_error"}:
        return StudyError(f"{where}: {text}.")
    names = {dict: "not a mapping", list: "not a list", type(None): "and is empty"}
    return StudyError(f"{where}: {text}, {names.get(type(value), f'not {reprlib.repr(value)}')}.")


def _field_names(model: type[pydantic.BaseModel]) -> set[str]:
    """Return every key name that may occur anywhere under ``model``, for spelling advice."""
    import pydantic

    names: set[str] = set()
    todo: list[Any] = [model]
    done: set[Any] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, type) and issubclass(item, pydantic.BaseModel):
            if item in done:
                continue
            done.add(item)
            for name, info in item.model_fields.items():
                names.add(info.alias or name)
                todo.append(info.annotation)
        else:
            todo.extend(get_args(item))
    return names

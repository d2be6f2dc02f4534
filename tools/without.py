"""Make a copy of the checkout without some extensions: python -m tools.without FOLDER NAME...

It removes all that belongs to them: code, tests, pages, benchmarks, extras, entry points, and the
parts of other pages that name them. The copy's tests, `make docs` and `make profile` pass.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import yaml

from contextcliff_dagster.contracts.extensions import extensions

ROOT = Path(__file__).parents[1]
_OWN_FOLDERS = ("contextcliff_dagster/extensions", "contextcliff_dagster_tests/extensions")


def main(folder: Path, names: Collection[str]) -> None:
    """Write the copy into ``folder``, which must not exist."""
    if unknown := sorted(set(names) - extensions().keys()):
        sys.exit(f"There is no extension {unknown[0]!r}; choose from {', '.join(extensions())}.")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    words = [word for name in names for word in _words(name)]
    for file in filter(None, listed.split("\0")):
        source, target = ROOT / file, folder / file
        if not source.is_file() or _belongs_to(file, names):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if target.suffix == ".md" and not file.startswith("docs/results/"):
            target.write_text(_pruned(target.read_text("utf-8"), words), "utf-8")
        if target.suffix == ".patch" and _names_any(target.read_text("utf-8"), names):
            target.unlink()
    settings = folder / "pyproject.toml"
    settings.write_text(_without_lines(settings.read_text("utf-8"), names), "utf-8")


def _belongs_to(file: str, names: Collection[str]) -> bool:
    return any(
        file.startswith(tuple(f"{parent}/{name}/" for parent in _OWN_FOLDERS))
        or re.fullmatch(rf"(docs|benchmarks)/{name}[-_.].*", file)
        for name in names
    )


def _words(name: str) -> Iterator[str]:
    """Yield the names that identify an extension: its own, commands, exports, engines, models."""
    ext = extensions()[name]
    yield from (name, *ext.commands, *ext.exports, *(engine.name for engine in ext.engines))
    if models := ext.own("models.yaml"):
        yield from yaml.safe_load(models.read_text("utf-8"))["models"]


def _names_any(text: str, words: Collection[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(word)}s?(?![\w])", text, re.I) for word in words)


def _pruned(text: str, words: Collection[str]) -> str:
    """Return ``text`` without sections, paragraphs, rows and items that name any of ``words``."""
    blocks: list[str] = []
    below = 0
    for block in re.split(r"\n{2,}", text):
        heading = re.match(r"(#+) ", block)
        if below and heading and len(heading[1]) <= below:
            below = 0
        if below:
            continue
        if not _names_any(block, words):
            blocks.append(block)
        elif heading and "\n" not in block.strip():
            below = len(heading[1])
        else:
            parts = re.split(r"\n(?=\||- |    \S|#)", block)
            remaining = [part for part in parts if not _names_any(part, words)]
            blocks += ["\n".join(remaining)] if len(remaining) > 2 * block.startswith("|") else []
    return "\n\n".join(blocks).rstrip() + "\n"


def _without_lines(text: str, names: Collection[str]) -> str:
    """Return ``text`` without the entry points, extras and import contracts of ``names``."""
    for name in names:
        text = re.sub(rf"(?m)^{name} = .*\n", "", text)
        text = re.sub(rf'"{name} \| ', '"', text)
        text = re.sub(rf' \| {name}(?=[ "])', "", text)
    wall = re.compile(r"\[\[tool\.importlinter\.contracts\]\]\n(?:(?!\n\n).)*?\n\n", re.DOTALL)
    empty = re.compile(rf'layers = \["({"|".join(names)})"\]')
    return wall.sub(lambda match: "" if empty.search(match[0]) else match[0], text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""What pages point at is there: links, files, functions, rooms; and every page is in the index."""

from __future__ import annotations

import importlib
import re
import tomllib
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT
from contextcliff_dagster_tests.support.paths import DOCS

PACKAGE = ROOT / "contextcliff_dagster"
WITH_INNER_ROOMS = tuple(
    PACKAGE / room for room in ("analysis", "inference", "experiments", "extensions")
)
INDEX = DOCS / "README.md"
GENERATED = {"report.md", "index.md"}
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / folder / "README.md" for folder in ("studies", "docker", "data")),
]
TOUR = [DOCS / "architecture.md", DOCS / "contributing.md"]
"""Pages about the code: every path and name on them is looked up."""
SMALL_FILES = {
    "private_files",
    "yaml_config",
    "redaction",
    "retry",
    "user_files",
    "freed_memory",
    "step_progress",
    "thoughts",
    "web_guard",
}
"""Layers that the README leaves to the tour."""
TO_COME = re.compile(r"[<*]|NAME|DIR")
"""In a path: parts that the reader fills in."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"^    .*$", "", text, flags=re.M)


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def code_of(page: Path) -> set[str]:
    """Everything between single backticks."""
    return set(re.findall(r"`([^`\n]+)`", prose(page)))


def lies_somewhere(path: str) -> bool:
    return any((folder / path).exists() for folder in (ROOT, PACKAGE, *WITH_INNER_ROOMS))


def resolves(dotted: str) -> bool:
    """Whether ``room.module.Class.method`` below the package is there."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(["contextcliff_dagster", *parts[:end]])
        try:
            found = find_spec(name)
        except ModuleNotFoundError:
            continue
        if found is not None:
            value = importlib.import_module(name)
            for part in parts[end:]:
                if not hasattr(value, part):
                    return False
                value = getattr(value, part)
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


def test_the_index_has_every_page_once() -> None:
    linked = [
        (DOCS / target.partition("#")[0]).resolve()
        for target in re.findall(
            r"^(?:-|\d\.) \[.*?\]\(([^)]+)\): ", INDEX.read_text("utf-8"), re.M
        )
    ]
    assert len(linked) == len(set(linked))
    written = {page for page in PAGES if page.is_relative_to(DOCS) and page.name not in GENERATED}
    pages = written - {INDEX}
    outside = {ROOT / "README.md", *(ROOT / name / "README.md" for name in ("studies", "docker"))}
    assert set(linked) == {*pages, *outside}
    assert "(docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_path_for_readers_is_seven_short_pages() -> None:
    path = re.findall(r"^\d\. \[.*?\]\(([^)]+)\): ", INDEX.read_text("utf-8"), re.M)
    words = [len((DOCS / page).read_text("utf-8").split()) for page in path]
    assert len(path) == 7
    assert sum(words) <= 12_000, dict(zip(path, words, strict=True))
    opening = (DOCS / "method.md").read_text("utf-8").partition("\n# ")[0]
    assert len(opening.split()) <= 900


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_of_code_that_a_page_names_is_there(page: Path) -> None:
    for text in code_of(page):
        for path in re.findall(r"(?:[\w.-]+/)+[\w.-]+\.py\b", text):
            assert TO_COME.search(path) or lies_somewhere(path), path
        room, _, rest = text.partition(".")
        if room and re.fullmatch(r"\w+(\.\w+)+", rest) and (PACKAGE / room).is_dir():
            assert resolves(text), text


@pytest.mark.parametrize("page", TOUR, ids=name_of)
def test_every_path_and_every_function_of_the_tour_is_there(page: Path) -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    paths = {
        text
        for text in code_of(page)
        if re.fullmatch(r"[\w.-]+(/[\w.-]*)+|[\w-]+\.(py|toml|md)", text)
        and not TO_COME.search(text)
    }
    names = {
        text
        for text in code_of(page)
        if re.fullmatch(r"\w+(\.\w+)+", text) and text.split(".")[0] in rooms and text not in paths
    }
    assert len(paths) > 20
    assert len(names) > 15
    assert not [path for path in sorted(paths) if not lies_somewhere(path)]
    assert not [name for name in sorted(names) if not resolves(name)]
    # A misspelt room would not be looked up at all.
    assert not [
        text
        for text in code_of(page)
        if re.fullmatch(r"\w+\.\w+(\.\w+)+", text) and text not in names
    ]


def test_the_tour_lists_the_layers_in_their_order() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    for contract in contracts["contracts"]:
        if contract["type"] != "layers":
            continue
        (container,) = contract["containers"]
        folder = ROOT / container.replace(".", "/")
        layers = [room for layer in contract["layers"] for room in re.findall(r"\w+", layer)]
        suffix = [f"{room}/" if (folder / room).is_dir() else f"{room}.py" for room in layers]
        title = "layer, from the top" if "." not in container else f"room of `{folder.name}/`"
        rows = re.findall(r"^\| (.*?) \|", text.partition(f"| {title} |")[2].split("\n\n")[0], re.M)
        assert re.findall(r"`([\w./]+)`", " ".join(rows)) == suffix, container


def test_the_readme_lists_the_layers_in_their_order() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    table = (ROOT / "README.md").read_text("utf-8").partition("| layer, from the top |")[2]
    rows = re.findall(r"^\| (`.*?) \|", table.split("\n\n")[0], re.M)
    rooms = [re.findall(r"\w+", row) for row in rows]
    assert {room for row in rooms for room in row} == {*layers} - SMALL_FILES
    ends = [(min(map(layers.index, row)), max(map(layers.index, row))) for row in rooms]
    assert all(above[1] < below[0] for above, below in pairwise(ends))


def test_a_path_or_a_name_that_is_not_there_is_noticed() -> None:
    assert resolves("experiments.common.experiment.Experiment.sources")
    assert not resolves("experiments.common.experiment.Experiment.mistake")
    assert not resolves("experiments.mistake.experiment")
    assert lies_somewhere("sampling/draw_manifest.py")
    assert not lies_somewhere("sampling/mistake.py")

"""Figures on the structure of the code, each next to its limit.

    python benchmarks/house.py [--list]

Import cycles count run-time imports anywhere in a file; a second count adds imports for type
checkers. Lines of code include the package and tools/, without tests and schemas. `--list` names
every cycle, large folder, long file and long function. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, TESTS = "contextcliff_dagster", "contextcliff_dagster_tests"
EXTENSIONS = f"{PACKAGE}/extensions"
HELPERS_OF_TESTS = (f"{TESTS}.support.", f"{TESTS}.extensions.")
"""Test modules that benchmarks may import: shared helpers and an extension's own."""
# What the product has come to. Raising one takes a sentence of reason in docs/architecture.md.
MOST_LINES, MOST_CORE_LINES, MOST_FILES = 113_010, 84_940, 480
MOST_IMPORTS, MOST_TYPED_CYCLES = 90, 2
LONG_FILE, LONG_FUNCTION, MOST_IN_FOLDER = 800, 100, 16
MOST_LONG_FUNCTIONS = 1  # `profile_model` puts a whole result together


class Figure(NamedTuple):
    """One line of the table; a figure with ``limit`` None is shown but not checked."""

    name: str
    value: int
    limit: int | None
    places: list[str]


def modules() -> dict[str, Path]:
    """Return module name -> path for the package and tools/; a folder maps to its `__init__`."""
    named = {}
    for folder in (PACKAGE, "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from (other, *run_time_nodes(other))
            continue
        yield child
        yield from run_time_nodes(child)


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the dotted paths of all modules and names that ``nodes`` import."""
    paths: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            paths.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            paths.update(f"{node.module}.{alias.name}" for alias in node.names)
    return paths


def import_graph(
    trees: dict[str, ast.AST],
    nodes: Callable[[ast.AST], Iterable[ast.AST]] = run_time_nodes,
) -> dict[str, set[str]]:
    """Return module -> imported modules, each the longest known prefix of an imported path."""
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        graph[name] = set()
        for path in imported(nodes(tree)):
            while path and path not in trees:
                path = path.rpartition(".")[0]
            if path and path != name:
                graph[name].add(path)
    return graph


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or not (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                out.append(sorted(component))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(out)


def files_per_folder(paths: Iterable[Path]) -> dict[str, int]:
    """Count the Python files of each folder except `__init__`, largest first."""
    counts: dict[str, int] = {}
    for path in paths:
        if path.name != "__init__.py":
            folder = path.parent.relative_to(ROOT).as_posix()
            counts[folder] = counts.get(folder, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def imports_of_tests(paths: Iterable[Path], allowed: tuple[str, ...]) -> list[str]:
    """Return imports of tests outside ``allowed``, including imports for type checkers."""
    places = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            places += [
                f"{path.relative_to(ROOT)}:{node.lineno} imports {name}"
                for name in names
                if any(part.startswith("test_") for part in name.split("."))
                or (name.startswith(TESTS) and not name.startswith(allowed))
            ]
    return places


def long_functions(named: dict[str, Path], trees: dict[str, ast.AST]) -> list[str]:
    """Return the functions with more than `LONG_FUNCTION` lines after signature and docstring."""
    places = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[min(ast.get_docstring(node) is not None, len(node.body) - 1)]
                lines = (node.end_lineno or node.lineno) - first.lineno + 1
                if lines > LONG_FUNCTION:
                    places.append(f"{lines:>4} {named[name].relative_to(ROOT)} {node.name}")
    return sorted(places, reverse=True)


def lines_of_imports(tree: ast.AST) -> int:
    """Count the lines of import statements anywhere in the file."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def figures() -> list[Figure]:
    named = modules()
    trees: dict[str, ast.AST] = {
        name: ast.parse(path.read_text(encoding="utf-8")) for name, path in named.items()
    }
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in named.values()
    }
    product = sum(lines.values())
    core = sum(n for path, n in lines.items() if not path.startswith(f"{EXTENSIONS}/"))
    imports = sum(map(lines_of_imports, trees.values()))
    cycles = import_cycles(import_graph(trees))
    typed = import_cycles(import_graph(trees, ast.walk))
    folders = files_per_folder(named.values())
    counted = [f"{count:>3} {folder}" for folder, count in folders.items()]
    of_tests = imports_of_tests(named.values(), ())
    of_tests += imports_of_tests((ROOT / "benchmarks").glob("*.py"), HELPERS_OF_TESTS)
    long = sorted(((n, path) for path, n in lines.items() if n > LONG_FILE), reverse=True)
    functions = long_functions(named, trees)
    return [
        Figure("lines of the product", product, MOST_LINES, []),
        Figure("lines of the core, without extensions", core, MOST_CORE_LINES, []),
        Figure("files of the product", len(named), MOST_FILES, []),
        Figure("imports, in 0.1% of all lines", imports * 1_000 // product, MOST_IMPORTS, []),
        Figure("import cycles", len(cycles), 0, [" <-> ".join(c) for c in cycles]),
        Figure(
            "import cycles, with those of types alone",
            len(typed),
            MOST_TYPED_CYCLES,
            [" <-> ".join(c) for c in typed],
        ),
        Figure("files in the largest folder", max(folders.values()), MOST_IN_FOLDER, counted[:5]),
        Figure(
            f"files of more than {LONG_FILE} lines",
            len(long),
            0,
            [f"{n:>4} {path}" for n, path in long],
        ),
        Figure(
            f"functions of more than {LONG_FUNCTION} lines",
            len(functions),
            MOST_LONG_FUNCTIONS,
            functions,
        ),
        Figure("imports of tests", len(of_tests), 0, of_tests),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name what is counted")
    everything = parser.parse_args().list
    broken = False
    print(f"{'figure':<38} {'value':>7} {'limit':>7}")
    for name, value, limit, places in figures():
        beyond = limit is not None and value > limit
        broken |= beyond
        shown = "" if limit is None else f"{limit:,}"
        print(f"{name:<38} {value:>7,} {shown:>7}{'  broken' if beyond else ''}")
        for place in places if everything or beyond else ():
            print(f"    {place}")
    sys.exit(int(broken))


if __name__ == "__main__":
    main()

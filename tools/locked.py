"""Print the part of requirements.lock that some extras need, with hashes (`--require-hashes`).

    python tools/locked.py [NAME...]            # what the project needs, and its extras or groups
    python tools/locked.py --only NAME...       # what these need, without the project
    python tools/locked.py --outside [NAME...]  # what these name and the lock lacks: no hash for it

Installing the whole lock would install every extra. The lock's comments (``# via``) say which
package needs which. This runs before anything is installed, so it uses only the standard library.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def _name(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def roots(names: list[str], only: bool) -> list[str]:
    """Return the requirements of extras and groups and, unless ``only``, of the project itself.

    Raises:
        KeyError: pyproject.toml has no extra or group of that name.
    """
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = table.get("dependency-groups", {}) | table["project"]["optional-dependencies"]
    base = [] if only else table["project"]["dependencies"]
    return [*base, *(requirement for name in names for requirement in extras[name])]


def entries(lock: str) -> dict[str, list[str]]:
    """Return package -> its entries in the lock; several if versions differ by Python version."""
    by_package: dict[str, list[str]] = {}
    for entry in re.split(r"^(?=\w)", lock, flags=re.MULTILINE)[1:]:
        by_package.setdefault(_name(entry), []).append(entry)
    return by_package


def with_what_they_bring(names: set[str], locked: dict[str, list[str]]) -> list[str]:
    """Return the entries of ``names`` and all their dependencies, in lock order.

    An extra's dependency counts as its package's, so at worst too much is installed.
    """
    dependencies: dict[str, set[str]] = {}
    for name, texts in locked.items():
        for via in re.findall(r"^ +# via (.*)$", "".join(texts), re.MULTILINE):
            for parent in via.split(", "):
                dependencies.setdefault(_name(parent), set()).add(name)
    needed, new = set[str](), names
    while new:
        needed |= new
        new = {dependency for name in new for dependency in dependencies.get(name, ())} - needed
    return [text for name, texts in locked.items() if name in needed for text in texts]


def main() -> None:
    """Print the entries of the requested extras and groups."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="extras or groups; also EXTRA,EXTRA")
    parser.add_argument("--only", action="store_true", help="without the project's own needs")
    parser.add_argument("--outside", action="store_true", help="what the lock lacks")
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    arguments = parser.parse_args()
    names = [name for word in arguments.names for name in word.split(",") if name]
    try:
        requirements = roots(names, arguments.only)
    except KeyError as unknown:
        sys.exit(f"pyproject.toml has no extra or group {unknown}.")
    locked = entries(arguments.lock.read_text("utf-8"))
    if arguments.outside:
        print("".join(f"{each}\n" for each in requirements if _name(each) not in locked), end="")
    else:
        packages = {_name(each) for each in requirements} & locked.keys()
        print("".join(with_what_they_bring(packages, locked)), end="")


if __name__ == "__main__":
    main()

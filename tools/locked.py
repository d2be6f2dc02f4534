"""The part of requirements.lock that some extras need, with its hashes, for `--require-hashes`.

    python tools/locked.py [NAME...]            # what the project needs, and its extras or groups
    python tools/locked.py --only NAME...       # what these need, without the project
    python tools/locked.py --outside [NAME...]  # what these name and the lock lacks: no hash for it

The whole lock would install what everybody needs. What brings what is in the lock's own comments
(``# via``). This runs before anything is installed, so it imports Python's own library alone.
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
    """The requirements of extras and groups of pyproject.toml, and of the project itself.

    Raises:
        KeyError: no extra and no group has that name.
    """
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    known = table.get("dependency-groups", {}) | table["project"]["optional-dependencies"]
    own = [] if only else table["project"]["dependencies"]
    return [*own, *(requirement for name in names for requirement in known[name])]


def entries(lock: str) -> dict[str, list[str]]:
    """Package -> its entries in the lock; several where the version depends on Python's."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"^(?=\w)", lock, flags=re.MULTILINE)[1:]:
        found.setdefault(_name(entry), []).append(entry)
    return found


def with_what_they_bring(names: set[str], locked: dict[str, list[str]]) -> list[str]:
    """The entries of ``names`` and of all that these need, in the order of the lock.

    A need of a package's extra counts as the package's: at worst something more is installed.
    """
    brought: dict[str, set[str]] = {}
    for name, texts in locked.items():
        for via in re.findall(r"^ +# via (.*)$", "".join(texts), re.MULTILINE):
            for parent in via.split(", "):
                brought.setdefault(_name(parent), set()).add(name)
    wanted, new = set[str](), names
    while new:
        wanted |= new
        new = {each for name in new for each in brought.get(name, ())} - wanted
    return [text for name, texts in locked.items() if name in wanted for text in texts]


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="extras or groups; also EXTRA,EXTRA")
    parser.add_argument("--only", action="store_true", help="without the project's own needs")
    parser.add_argument("--outside", action="store_true", help="what the lock lacks")
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    given = parser.parse_args()
    names = [name for word in given.names for name in word.split(",") if name]
    try:
        wanted = roots(names, given.only)
    except KeyError as unknown:
        sys.exit(f"pyproject.toml has no extra and no group {unknown}.")
    locked = entries(given.lock.read_text("utf-8"))
    if given.outside:
        print("".join(f"{each}\n" for each in wanted if _name(each) not in locked), end="")
    else:
        found = {_name(each) for each in wanted} & locked.keys()
        print("".join(with_what_they_bring(found, locked)), end="")


if __name__ == "__main__":
    main()

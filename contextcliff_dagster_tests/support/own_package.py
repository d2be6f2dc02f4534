"""A package with the code that a page of docs prints, as an installer leaves it."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.paths import DOCS


def block(page: str, section: str, language: str) -> str:
    """The one block of ``language`` under the heading ``section`` of ``page``."""
    text = (DOCS / page).read_text(encoding="utf-8")
    below = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", below, re.DOTALL)
    return str(found)


@contextmanager
def installed_package(
    folder: Path, module: str, page: str, section: str, *further: str
) -> Iterator[None]:
    """Within, ``my_package`` is installed: the section's Python as ``module``, and its entry
    points with the lines ``further``."""
    site = folder / "site"
    (site / "my_package").mkdir(parents=True)
    (site / "my_package" / "__init__.py").touch()
    code = block(page, section, "python")
    (site / "my_package" / f"{module}.py").write_text(code, encoding="utf-8")
    declared = tomllib.loads(block(page, section, "toml"))
    ((group, names),) = declared["project"]["entry-points"].items()
    about = site / "my_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in names.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, *further]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield
    for name in [name for name in sys.modules if name.split(".")[0] == "my_package"]:
        del sys.modules[name]

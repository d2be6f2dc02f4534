"""The locked versions fit the project file, and name no place to get them from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT

LOCK = (ROOT / "requirements.lock").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PINS = [Requirement(pin) for pin in re.findall(r"^[\w.-]+==[^\\\n]+", LOCK, re.MULTILINE)]


def locked_versions() -> dict[str, set[Version]]:
    """Package -> its versions; several where they depend on Python's."""
    versions: dict[str, set[Version]] = {}
    for pin in PINS:
        (specifier,) = pin.specifier
        versions.setdefault(canonicalize_name(pin.name), set()).add(Version(specifier.version))
    return versions


def test_what_the_project_needs_is_locked_at_a_version_that_it_allows() -> None:
    """`make lock` was forgotten where this fails."""
    (extras,) = re.findall(r"\$\(foreach extra,([\w ]+),--extra", MAKEFILE)
    (groups,) = re.findall(r"\$\(foreach group,([\w ]+),--group", MAKEFILE)
    wanted = [*PYPROJECT["project"]["dependencies"]]
    for extra in extras.split():
        wanted += PYPROJECT["project"]["optional-dependencies"][extra]
    for group in groups.split():
        wanted += PYPROJECT["dependency-groups"][group]
    assert {"hatchling", "uv", "pip-audit"} <= locked_versions().keys()
    versions = locked_versions()
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name != "torch":  # its CPU build is installed by itself
            assert name in versions, name
            assert all(requirement.specifier.contains(v) for v in versions[name]), requirement


def test_every_pin_has_a_hash_and_no_line_an_address() -> None:
    stanzas = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(stanzas) == len(PINS) > 100
    for stanza in stanzas:
        assert re.search(r"^ +--hash=sha256:[0-9a-f]{64}", stanza, re.MULTILINE), stanza
    options = [line for line in LOCK.splitlines() if line.lstrip().startswith("-")]
    assert all(line.lstrip().startswith("--hash=sha256:") for line in options)
    assert "://" not in LOCK


def test_torch_and_what_it_brings_are_left_to_the_build_for_this_machine() -> None:
    assert not [name for name in locked_versions() if re.match(r"torch|triton|nvidia|cuda", name)]


def part(*arguments: str) -> list[str]:
    """The names that `tools/locked.py` prints for ``arguments``, or its whole lines."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "locked.py", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    if "--outside" in arguments:
        return done.stdout.splitlines()
    for entry in re.split(r"^(?=\w)", done.stdout, flags=re.MULTILINE)[1:]:
        assert entry in LOCK  # with all its hashes
    return [canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", done.stdout, re.M)]


def test_only_what_is_wanted_of_the_lock_is_installed() -> None:
    base = part()
    assert {"dagster", "numpy", "openai"} <= set(base)
    assert not {"pytest", "mypy", "kubernetes", "celery", "hatchling", "uv"} & set(base)
    assert {*base, "psycopg2-binary", "hatchling"} < set(part("postgres", "build"))
    assert part("postgres", "build") == part("postgres,build")
    assert part("--only", "uv") == ["uv"]
    assert {"pip-audit", "requests"} < set(part("--only", "audit"))
    assert "dagster" not in part("--only", "audit")


def test_what_is_wanted_and_not_locked_is_named() -> None:
    assert part("--outside", "test", "dev", "dg", "local", "prose", "build", "postgres") == []
    assert part("--outside", "reference") == ["torch"]
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "locked.py", "tets"], capture_output=True, text=True
    )
    assert done.returncode
    assert "no extra or group 'tets'" in done.stderr


def planned(*arguments: str) -> str:
    """What ``make`` would do in a fresh clone."""
    command = ["/usr/bin/make", "-n", "-W", "pyproject.toml", *arguments]
    own = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "VENV", "LOCK"))}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True)
    return done.stdout


def test_make_installs_what_is_locked() -> None:
    for name in ("base", "dev", "test"):
        hashed = f"--require-hashes --requirement .venv/bin/.{name}-locked.txt"
        assert planned("install-dev").count(hashed) == 2  # by uv, or by pip
    assert planned("install-dev").count("--no-deps --no-build-isolation --editable .") == 6
    assert "--require-hashes" not in planned("LOCK=", "install-dev")
    assert "--editable '.[dev,dg]'" in planned("LOCK=", "install-dev")
    assert planned("audit").count("--require-hashes --requirement $locked") == 2


def test_vulnerabilities_are_looked_for_at_every_commit_and_every_night() -> None:
    for script in ("run", "nightly"):
        text = (ROOT / ".ci" / script).read_text("utf-8")
        assert "in_background audit make audit" in text
        assert re.search(r"^await .*\baudit\b", text, re.MULTILINE)


def test_packages_that_declare_no_licence_are_named_with_theirs() -> None:
    """In docs: the bill of materials has nothing to show for them."""
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    undeclared = set()
    for name in part():
        try:
            told = metadata(name)
        except PackageNotFoundError:  # of another Python, or another system
            continue
        classifiers = told.get_all("Classifier") or []
        if not (told["License-Expression"] or told["License"] or "License ::" in str(classifiers)):
            undeclared.add(name)
    assert undeclared == set(re.findall(r"^   - `([\w-]+)`: [\w.-]+, ", page, re.MULTILINE))


SERVICE = """#!{python}
import json, sys
names = [line.split("==")[0] for line in open(sys.argv[2])]
print("Found things", file=sys.stderr)
{body}
print(json.dumps({{"dependencies": [answer(name) for name in names], "fixes": []}}))
"""
FINE = 'answer = lambda name: {"name": name, "version": "1", "vulns": []}'
UNKNOWN = 'answer = lambda name: {"name": name, "skip_reason": f"{name} is unknown"}'
SILENT = 'sys.exit("Could not connect")'
BAD = """
def answer(name):
    found = {"id": "PYSEC-1", "aliases": ["CVE-2"], "fix_versions": ["2"]}
    return {"name": name, "version": "1", "vulns": [found] if name == "b" else []}
"""


@pytest.mark.parametrize(
    ("body", "allowed", "code", "words"),
    [
        (FINE, "", 0, "Audited 2 packages: 0 known"),
        (UNKNOWN, "", 0, "Audit skipped: no vulnerability service answered (a is unknown)"),
        (SILENT, "", 0, "Audit skipped: no vulnerability service answered (Could not connect)"),
        (BAD, "", 1, "b 1: PYSEC-1, fixed in 2"),
        (BAD, "PYSEC-3  not ours\n# PYSEC-1 neither\n", 1, "PYSEC-1"),
        (BAD, "PYSEC-1  we never call it\n", 0, "0 known"),
        (BAD, "\nCVE-2  we never call it\n", 0, "0 known"),
    ],
)
def test_the_audit(body: str, allowed: str, code: int, words: str, tmp_path: Path) -> None:
    program, lock, list_ = tmp_path / "pip-audit", tmp_path / "lock", tmp_path / "allowed"
    program.write_text(SERVICE.format(python=sys.executable, body=body))
    program.chmod(0o755)
    hashed = "\\\n    --hash=sha256:00\n"
    lock.write_text(f"# made\na==1 {hashed}b==1 ; python_version > '3' {hashed}")
    list_.write_text(allowed)
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "audit.py", program, lock, list_],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, words in done.stdout) == (code, True), done.stdout + done.stderr


def test_a_missing_audit_program_is_named() -> None:
    done = subprocess.run(
        [sys.executable, ".ci/audit.py", "/nowhere/pip-audit", "requirements.lock"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "/nowhere/pip-audit" in done.stdout

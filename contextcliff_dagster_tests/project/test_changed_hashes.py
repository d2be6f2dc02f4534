"""A package that is not the one that was locked stops `make`, by uv and by pip, and the image.

In a checkout of three small wheels, with this one's Makefile, tools/locked.py and Dockerfile.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pip
import pytest

from contextcliff_dagster_tests.project.deployment.files import DOCKERFILE
from contextcliff_dagster_tests.support.paths import CHECKOUT

PROJECT = """
[build-system]
requires = ["shed"]
build-backend = "shed"
[project]
name = "small"
version = "1.0"
dependencies = ["tiny"]
[project.optional-dependencies]
postgres = ["tiny"]
[dependency-groups]
build = ["shed"]
uv = ["uv"]
"""
SHED = """
import zipfile

{write_wheel}

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return write_wheel(folder, "small", {{}})

build_editable = build_wheel
"""


def write_wheel(folder: str, name: str, files: dict[str, str]) -> str:
    """A wheel of version 1.0; its file name."""
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    file = f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{file}", "w") as archive:
        files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16  # one of them is a program
            archive.writestr(entry, text)
    return file


def uv() -> str:
    own = Path(sys.executable).parent / "uv"
    found = str(own) if own.exists() else shutil.which("uv")
    if found is None:
        pytest.skip("needs uv, which make install brings where it can")
    return found


class Checkout:
    """The small project, its lock, and where its packages come from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools").mkdir()
        (folder / "index").mkdir()
        for file in ("Makefile", "tools/locked.py"):
            shutil.copy(CHECKOUT / file, folder / file)
        (folder / "pyproject.toml").write_text(PROJECT)
        shed = SHED.format(write_wheel=inspect.getsource(write_wheel))
        # A uv of version 1.0, which is the real one.
        program = f'#!/bin/sh\nexec "{uv()}" "$@"\n'
        for name, files in {
            "shed": {"shed.py": shed},
            "tiny": {"tiny.py": ""},
            "uv": {"uv-1.0.data/scripts/uv": program},
        }.items():
            write_wheel(str(folder / "index"), name, files)
        self.lock()
        self.bin = folder / ".venv" / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True
        )
        # The pip that is here: a copy of its own takes seconds to install.
        (site,) = folder.glob(".venv/lib/python*/site-packages")
        (site / "pip").symlink_to(Path(pip.__file__).parent)
        (self.bin / "pip").write_text(f'#!/bin/sh\nexec "{self.bin}/python" -m pip "$@"\n')
        (self.bin / "pip").chmod(0o755)

    def lock(self, changed: str = "") -> None:
        """Write the lock; the package ``changed`` has another hash in it."""
        lines = []
        for name in ("shed", "tiny", "uv"):
            wheel = self.folder / "index" / f"{name}-1.0-py3-none-any.whl"
            digest = hashlib.sha256(wheel.read_bytes() + changed.encode() * (name == changed))
            lines.append(f"{name}==1.0 \\\n    --hash=sha256:{digest.hexdigest()}\n")
        (self.folder / "requirements.lock").write_text("".join(lines))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        given = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "EXTRAS": "postgres",
            "PIP_CONFIG_FILE": os.devnull,
            "UV_CACHE_DIR": str(self.folder / "cache"),
        }
        for tool in ("PIP", "UV"):
            given |= {f"{tool}_NO_INDEX": "1", f"{tool}_FIND_LINKS": str(self.folder / "index")}
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("MAKE", "VENV", "LOCK", "PIP_", "UV_", "PYTHON"))
        }
        return subprocess.run(
            command,
            cwd=self.folder,
            env=kept | given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def install(self, by: str) -> subprocess.CompletedProcess[str]:
        """As ``make install`` does by ``uv`` or ``pip``, or as the Dockerfile does."""
        if by != "image":
            return self.run("/usr/bin/make", f"INSTALLER={by}", ".venv/bin/.base")
        build, image = re.findall(r"^RUN (?:--mount.*\\\n)?((?:.*\\\n)*.*)$", DOCKERFILE, re.M)
        packages, useradd, _ = image.partition("\\\n    && useradd")
        assert useradd
        script = f"set -e\n{build}\n{packages}".replace("/wheels", str(self.folder / "wheels"))
        return self.run("sh", "-c", script)

    def installed(self) -> set[str]:
        found = self.folder.glob(".venv/lib/python*/site-packages/*.dist-info")
        return {path.name.partition("-")[0] for path in found}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("by", ["uv", "pip", "image"])
def test_what_was_locked_is_installed(by: str, checkout: Checkout) -> None:
    done = checkout.install(by)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trying again" not in done.stderr
    wanted = {"small", "tiny", "shed"} | ({"uv"} if by == "uv" else set())
    assert checkout.installed() == wanted


@pytest.mark.parametrize(
    ("by", "changed"),
    [
        ("uv", "uv"),
        ("uv", "tiny"),
        ("uv", "shed"),
        ("pip", "tiny"),
        ("pip", "shed"),
        ("image", "tiny"),
        ("image", "shed"),
    ],
)
def test_a_changed_hash_stops_it(by: str, changed: str, checkout: Checkout) -> None:
    checkout.lock(changed)
    done = checkout.install(by)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    if by == "uv" and changed != "uv":
        assert "Hash mismatch" in done.stderr  # its own word, before pip's
    assert not {changed, "small"} & checkout.installed()
    assert not (checkout.bin / ".base").exists()

"""A folder in which nothing can be written, by root neither."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nobody write in ``folder``: by a mount for root, by permissions for anybody else."""
    if os.geteuid():
        for path in folder.rglob("*"):
            path.chmod(0o500 if path.is_dir() else 0o400)
        folder.chmod(0o500)
        yield
        folder.chmod(0o700)
        return
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "--bind", str(folder), str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs the right to mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)

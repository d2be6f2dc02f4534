"""A file system in memory, for what tests write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
_ROOM = 4 * 1024**3  # a run of all tests leaves 0.6 GiB


def roomy(folder: Path) -> bool:
    """Whether all tests fit into ``folder``, and may start programs that they write there."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    without_programs = bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))
    return not without_programs and shutil.disk_usage(folder).free >= _ROOM

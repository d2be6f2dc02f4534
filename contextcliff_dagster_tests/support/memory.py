"""A file system in memory, for what tests write, and the memory of a process that runs them."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from functools import _lru_cache_wrapper
from pathlib import Path

import pytest

from contextcliff_dagster.freed_memory import return_freed_memory

MEMORY = Path("/dev/shm")
_ROOM = 4 * 1024**3  # a run of all tests leaves 0.6 GiB


def roomy(folder: Path) -> bool:
    """Whether all tests fit into ``folder``, and may start programs that they write there."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    without_programs = bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))
    return not without_programs and shutil.disk_usage(folder).free >= _ROOM


class Valve:
    """After a test that leaves its process large: collects garbage, which `conftest` makes rare,
    and empties the product's caches, of vocabularies and weights above all."""

    _ROOMY = 600 << 20
    _MORE = 50 << 20

    def __init__(self) -> None:
        self._opens_at = self._ROOMY

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        if _resident() > self._opens_at:
            _empty_caches()
            gc.collect()
            return_freed_memory()
            self._opens_at = max(self._ROOMY, _resident() + self._MORE)


def _empty_caches() -> None:
    for name, module in [*sys.modules.items()]:
        if name.startswith("contextcliff_dagster."):
            for value in [*vars(module).values()]:
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system has no /proc."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

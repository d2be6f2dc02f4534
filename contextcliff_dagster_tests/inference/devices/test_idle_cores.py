"""Threads for an engine on the CPU: as many as there are idle cores, at least one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contextcliff_dagster.inference.devices import discovery as module
from contextcliff_dagster.inference.devices.discovery import idle_cores, usable_cores


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight processors on four physical cores, all of them ours, no quota."""
    monkeypatch.setattr(module, "_CPUS", tmp_path / "cpus")
    monkeypatch.setattr(module, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(module, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for cpu in range(8):
        write(tmp_path / f"cpus/cpu{cpu}/topology/core_cpus_list", f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def busy(machine: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """What the kernel counts while ``share`` of the processors' time is used."""
    ticks = [0, 0]

    def pass_time(seconds: float) -> None:
        ticks[0] += round(1000 * share)
        ticks[1] += round(1000 * (1 - share))
        write(machine / "proc/stat", f"cpu  {ticks[0]} 0 0 {ticks[1]} 0 0 0 0 0 0\ncpu0 1 2 3\n")

    pass_time(0)
    monkeypatch.setattr(module.time, "sleep", pass_time)


@pytest.mark.parametrize(
    ("share", "threads"), [(0.0, 4), (0.25, 4), (0.5, 4), (0.75, 2), (0.9, 1), (1.0, 1)]
)
def test_busy_cores_are_left_to_others(
    machine: Path, monkeypatch: pytest.MonkeyPatch, share: float, threads: int
) -> None:
    busy(machine, monkeypatch, share)
    assert idle_cores() == threads


def test_affinity_and_quota_bound_it(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable_cores() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 4, 1}, raising=False)
    assert usable_cores() == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(machine / "proc/self/cgroup", "0::/user/run\n")
    write(machine / "cgroup/user/run/cpu.max", "max 100000\n")
    assert usable_cores() == 4
    write(machine / "cgroup/user/cpu.max", "250000 100000\n")
    assert usable_cores() == 2
    write(machine / "cgroup/user/cpu.max", "50000 100000\n")
    assert usable_cores() == 1
    write(machine / "cgroup/user/cpu.max", "nonsense\n")
    write(machine / "cgroup/cpu/cpu.cfs_quota_us", "300000\n")
    write(machine / "cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert usable_cores() == 3


def test_without_the_kernels_count_the_load_decides(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for load, threads in ((0.0, 4), (6.4, 2), (99.0, 1)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert idle_cores() == threads
    write(machine / "proc/stat", "nothing\n")
    assert idle_cores() == 1

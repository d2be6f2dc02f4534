"""Devices are leased whole, in turn, and fall free by the kernel alone. Devices here are names."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.inference.devices.discovery import Gpus
from contextcliff_dagster_tests.support.lease_holders import holders

LONG = 120.0


class Holder:
    """A program on leased devices, started by the launcher; it lives until it is told to end."""

    def __init__(self, gpus: Gpus, purpose: str, program: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "contextcliff_dagster.inference.devices.launch"),
                *("--for", purpose, str(gpus), "--", "sh", "-c", program),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.printed: queue.Queue[str] = queue.Queue()
        self.said: queue.Queue[str] = queue.Queue()
        for stream, lines in (
            (self.process.stdout, self.printed),
            (self.process.stderr, self.said),
        ):
            threading.Thread(target=self._collect, args=(stream, lines), daemon=True).start()

    @staticmethod
    def _collect(stream: Iterator[str], lines: queue.Queue[str]) -> None:
        for line in stream:
            lines.put(line.rstrip("\n"))

    @property
    def visible(self) -> str:
        """What CUDA would see; waits for the lease."""
        return self.printed.get(timeout=LONG)

    @property
    def waits(self) -> str:
        """What it said because it must wait; waits until it does."""
        return self.said.get(timeout=LONG)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(LONG)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(LONG)


Start = Callable[..., Holder]
HOLD = 'echo "$CUDA_VISIBLE_DEVICES"; read _'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTEXTCLIFF_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "left,right")
    return tmp_path / "leases"


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Holder] = []

    def begin(gpus: Gpus = 1, purpose: str = "a test", program: str = HOLD) -> Holder:
        started.append(Holder(gpus, purpose, program))
        return started[-1]

    yield begin
    for holder in started:
        holder.process.kill()
        holder.process.wait(LONG)


def is_free(device: str) -> bool:
    return device not in holders()


def until(happens: Callable[[], bool]) -> None:
    """Wait until it did."""
    began = time.monotonic()
    while not happens():
        assert time.monotonic() - began < LONG
        time.sleep(0.01)


def test_two_at_once_get_different_devices_and_a_third_its_turn(start: Start) -> None:
    first, second = start(purpose="one"), start(purpose="two")
    assert {first.visible, second.visible} == {"left", "right"}
    third = start(purpose="three")
    sentence = third.waits
    assert sentence.startswith("three waits for 1 of 2 GPUs: ")
    for holder, purpose in ((first, "one"), (second, "two")):
        assert f"held by {purpose} (pid {holder.process.pid})" in sentence
    first.end()
    assert third.visible in ("left", "right")
    second.end()
    third.end()
    assert third.said.empty()  # once is enough
    assert holders() == {}


def test_kill_dash_nine_frees_the_device_at_once(start: Start) -> None:
    first = start(2)
    assert first.visible == "left,right"
    second = start(1)
    assert second.waits
    first.kill()
    assert second.visible == "left"
    assert is_free("right")


def test_who_came_first_is_served_first_and_many_are_not_starved(start: Start) -> None:
    first, second = start(), start()
    assert {first.visible, second.visible} == {"left", "right"}
    both = start(2, "both")
    assert "both waits for 2 of 2 GPUs" in both.waits
    small = start(1, "small")
    assert "1 ahead in line" in small.waits
    first.end()
    # One is free, and belongs to the first in line, who needs two.
    until(lambda: sum("both" in holder for holder in holders().values()) == 1)
    second.end()
    assert both.visible in ("left,right", "right,left")
    assert small.printed.empty()
    both.end()
    assert small.visible == "left"


def test_one_killed_in_line_is_not_waited_for(start: Start) -> None:
    first = start(2)
    assert first.visible
    waiting, last = start(2), start(1)
    assert waiting.waits
    assert last.waits
    waiting.kill()
    first.end()
    assert last.visible == "left"


def test_without_devices_there_is_one_lane(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "none")
    first = start("auto", "one")
    assert first.visible == ""
    second = start("auto", "two")
    assert second.waits == (
        f"two waits for the CPU lane of this machine: it is held by one (pid {first.process.pid})."
    )
    first.kill()
    assert second.visible == ""


def test_auto_is_one_device_where_there_is_one(start: Start) -> None:
    assert start("auto").visible == "left"


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        ("left,right", "needs 3 GPUs, but this machine has 2 (left, right): "),
        ("none", "needs 3 GPUs, but this machine has none: "),
    ],
)
def test_more_than_there_are_is_refused(
    there: str, sentence: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", there)
    refused = start(3, "big")
    assert f"big {sentence}" in refused.waits
    assert refused.process.wait(LONG) == 2


# A child that outlives the one that leased: of no concern, handed the lease, or forked.
CHILD = """
import os, signal, subprocess, sys
from contextcliff_dagster.inference.devices.leases import lease_descriptors, leased
with leased(1, "parent"):
    fork = sys.argv[1] == "forked" and os.fork() == 0
    if fork:
        sys.stdin.read()
        os._exit(0)
    if sys.argv[1] != "forked":
        passed = lease_descriptors() if sys.argv[1] == "handed" else ()
        subprocess.Popen(["sh", "-c", "read _"], pass_fds=passed, stdin=sys.stdin)
    print("ready", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("launched", [False, True], ids=["leased itself", "by the launcher"])
@pytest.mark.parametrize(
    ("kind", "keeps"), [("unrelated", False), ("handed", True), ("forked", True)]
)
def test_only_children_that_work_on_the_device_hold_it_on(
    kind: str, keeps: bool, launched: bool
) -> None:
    command = [sys.executable, "-c", CHILD, kind]
    if launched:
        launcher = [
            sys.executable,
            "-m",
            "contextcliff_dagster.inference.devices.launch",
            "1",
            "--",
        ]
        command = [*launcher, *command]
    ours, theirs = os.pipe()
    parent = subprocess.Popen(command, stdin=ours, stdout=subprocess.PIPE)
    os.close(ours)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        assert not is_free("left")
        parent.kill()
        parent.wait(LONG)
        if keeps:
            # A device that was freed would be so as soon as the process is gone.
            assert not is_free("left")
        else:
            until(lambda: is_free("left"))
    finally:
        parent.kill()
        os.close(theirs)  # the child reads its end
    until(lambda: is_free("left"))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word on a dead parent is Linux's")
def test_a_launched_program_ends_with_the_process_that_wanted_it(start: Start) -> None:
    launch = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-m', 'contextcliff_dagster.inference.devices.launch',\n"
        "    '--with-parent', str(os.getpid()), '1', '--', 'sleep', '1000'])\n"
        "import signal; signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", launch])
    until(lambda: not is_free("left"))
    parent.kill()
    parent.wait(LONG)
    until(lambda: is_free("left"))

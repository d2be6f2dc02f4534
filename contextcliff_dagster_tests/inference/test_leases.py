"""Devices are leased whole, in turn, and fall free by the kernel alone. Devices here are names."""

from __future__ import annotations

import json
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
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference import devices
from contextcliff_dagster.inference import leased as process_devices
from contextcliff_dagster.inference.devices import Device, Gpus, machine_devices, most
from contextcliff_dagster.inference.leased import leased
from contextcliff_dagster.inference.leases import Lease, WaitStopped, holders, lease

LONG = 60.0
FREED_WITHIN = 5.0


class Holder:
    """A program on leased devices, started by the launcher; it lives until it is told to end."""

    def __init__(self, gpus: Gpus, purpose: str, program: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "contextcliff_dagster.inference.launch"),
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


def until(happens: Callable[[], bool], seconds: float = LONG) -> float:
    """Seconds until it did."""
    began = time.monotonic()
    while not happens():
        assert time.monotonic() - began < seconds
        time.sleep(0.01)
    return time.monotonic() - began


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
    began = time.monotonic()
    first.kill()
    assert second.visible == "left"
    assert time.monotonic() - began < FREED_WITHIN
    assert is_free("right")


def test_who_came_first_is_served_first_and_many_are_not_starved(start: Start) -> None:
    first, second = start(), start()
    assert {first.visible, second.visible} == {"left", "right"}
    both = start(2, "both")
    assert "both waits for 2 of 2 GPUs" in both.waits
    small = start(1, "small")
    assert "1 ahead in line" in small.waits
    first.end()
    # One is free, and belongs to who stands first and needs two.
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
        ("left,right", "needs 3 GPUs, and this machine has 2 (left, right): "),
        ("none", "needs 3 GPUs, and this machine has none: "),
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
from contextcliff_dagster.inference.leased import lease_descriptors, leased
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
        launcher = [sys.executable, "-m", "contextcliff_dagster.inference.launch", "1", "--"]
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
            until(lambda: is_free("left"), FREED_WITHIN)
    finally:
        parent.kill()
        os.close(theirs)  # the child reads its end
    until(lambda: is_free("left"))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word on a dead parent is Linux's")
def test_a_launched_program_ends_with_the_process_that_wanted_it(start: Start) -> None:
    launch = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-m', 'contextcliff_dagster.inference.launch',\n"
        "    '--with-parent', str(os.getpid()), '1', '--', 'sleep', '1000'])\n"
        "import signal; signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", launch])
    until(lambda: not is_free("left"))
    parent.kill()
    parent.wait(LONG)
    until(lambda: is_free("left"), FREED_WITHIN)


def test_a_process_shows_cuda_what_it_leased_and_forgets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    before = dict(os.environ)
    with leased(2, "outer"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "left,right"
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        with leased(1, "inner"):  # has them already
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "left,right"
        with pytest.raises(EngineError, match=r"inner needs 3 .* already has"), leased(3, "inner"):
            pass
        assert holders() == dict.fromkeys(("left", "right"), f"outer (pid {os.getpid()})")
    assert dict(os.environ) == before
    assert holders() == {}


def test_a_process_that_has_opened_a_device_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # CUDA reads the mask once: another device could not be shown to this process any more.
    monkeypatch.setattr(process_devices, "_opened_a_device", lambda: True)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CONTEXTCLIFF_LEASED"):
        monkeypatch.setenv(name, "")  # so that they are put back afterwards
        monkeypatch.delenv(name)
    with leased(1, "first"):
        pass
    assert not is_free("left")
    with leased(1, "second"):
        assert is_free("right")
    cannot = pytest.raises(EngineError, match="already has left, which it cannot exchange")
    with cannot, leased(2, "third"):
        pass
    process_devices._let_go({})
    assert is_free("left")


def test_what_is_leased_for_a_process_is_not_leased_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_LEASED", "6,7")
    with leased(2, "here"):
        pass
    assert not folder.exists()
    with pytest.raises(EngineError, match="already has 6, 7"), leased(3, "here"):
        pass
    monkeypatch.setenv("CONTEXTCLIFF_LEASED", "cpu")
    with leased("auto", "here"):
        pass
    with pytest.raises(EngineError, match="already has the CPU lane"), leased(1, "here"):
        pass


def test_threads_of_one_process_take_turns() -> None:
    inside, log = threading.Event(), []

    def measure(name: str) -> None:
        with leased(1, name):
            log.append(f"{name} begins")
            inside.set()
            if name == "first":
                until(lambda: second.is_alive())
            log.append(f"{name} ends")

    first = threading.Thread(target=measure, args=("first",))
    second = threading.Thread(target=measure, args=("second",))
    first.start()
    assert inside.wait(LONG)
    second.start()
    for thread in (first, second):
        thread.join(LONG)
    assert log == ["first begins", "first ends", "second begins", "second ends"]


def test_whoever_waits_can_be_stopped() -> None:
    mine = lease(2, "mine")
    told: list[str] = []
    with pytest.raises(WaitStopped):
        lease(1, "theirs", say=told.append, stop=lambda: bool(told))
    assert len(told) == 1
    mine.close()
    lease(1, "mine again").close()


def test_a_deleted_file_is_not_mistaken_for_a_free_device(folder: Path) -> None:
    lease(1, "before").close()
    (folder / "left.device").unlink()
    held = lease(1, "after")
    assert held.visible == "left"
    assert "after" in holders()["left"]
    held.close()


def test_a_folder_that_cannot_be_had_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONTEXTCLIFF_LEASES", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="CONTEXTCLIFF_LEASES"):
        lease(1, "a test")


def test_without_a_folder_of_ones_own_it_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextcliff_dagster.inference.leases import _folder

    monkeypatch.delenv("CONTEXTCLIFF_LEASES")
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert _folder().stat().st_mode & 0o777 == 0o700
    assert str(os.getuid()) in _folder().name


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose driver names three GPUs."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '0, GPU-aaa1\\n1, GPU-bbb2\\n2, GPU-ccc3\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CONTEXTCLIFF_DEVICES")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices._driver_devices.cache_clear()
    yield
    devices._driver_devices.cache_clear()


A, B, C = Device("0", "GPU-aaa1"), Device("1", "GPU-bbb2"), Device("2", "GPU-ccc3")


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, (A, B, C)),
        ("2,0", (C, A)),
        ("GPU-bbb2", (B,)),
        ("GPU-cc,1", (C, B)),
        ("1,1,GPU-bbb", (B,)),
        ("", ()),
        ("0,-1,2", (A,)),
        ("MIG-77", (Device("MIG-77", "MIG-77"),)),
    ],
)
def test_a_device_has_one_key_under_every_mask(
    mask: str | None, expected: tuple[Device, ...], driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    assert machine_devices() == expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "none")
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "0,1,2" if mask is None else mask)
    assert machine_devices() == expected


@given(st.lists(st.one_of(st.integers(0, 9), st.just("auto"))))
def test_the_most_serves_each(wanted: list[Gpus]) -> None:
    enough = most(wanted)
    numbers = [n for n in wanted if isinstance(n, int)]
    assert enough in [*wanted, 0]
    if enough == "auto":
        assert not any(numbers)
    else:
        assert all(enough >= n for n in numbers)
        assert enough > 0 or "auto" not in wanted


def test_the_holder_is_a_json_object_for_other_programs(folder: Path) -> None:
    held: Lease = lease(1, "a test")
    assert json.loads((folder / "left.device").read_text()) == {
        "pid": os.getpid(),
        "purpose": "a test",
    }
    held.close()

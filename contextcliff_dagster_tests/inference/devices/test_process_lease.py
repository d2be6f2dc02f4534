"""One process and its devices: what it shows CUDA, what it keeps, and which devices there are."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices import discovery
from contextcliff_dagster.inference.devices import leases as process_devices
from contextcliff_dagster.inference.devices.discovery import Device, Gpus, machine_devices, most
from contextcliff_dagster.inference.devices.leases import Lease, WaitStopped, lease, leased
from contextcliff_dagster_tests.support.lease_holders import holders

LONG = 120.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTEXTCLIFF_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "left,right")
    return tmp_path / "leases"


def is_free(device: str) -> bool:
    return device not in holders()


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
    inside, begun, log = threading.Event(), threading.Event(), []

    def measure(name: str) -> None:
        with leased(1, name):
            log.append(f"{name} begins")
            inside.set()
            if name == "first":
                assert begun.wait(LONG)
            log.append(f"{name} ends")

    first = threading.Thread(target=measure, args=("first",))
    second = threading.Thread(target=measure, args=("second",))
    first.start()
    assert inside.wait(LONG)
    second.start()
    begun.set()
    for thread in (first, second):
        thread.join(LONG)
    assert log == ["first begins", "first ends", "second begins", "second ends"]


def test_whoever_waits_can_be_stopped() -> None:
    mine = lease(2, "mine")
    told: list[str] = []
    with pytest.raises(WaitStopped):
        lease(1, "theirs", on_wait=told.append, should_stop=lambda: bool(told))
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
    from contextcliff_dagster.inference.devices.leases import _folder

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
    discovery._driver_devices.cache_clear()
    yield
    discovery._driver_devices.cache_clear()


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

"""Worker processes: their death costs one file, they outlive nobody, and order is kept."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.extraction import (
    Extracted,
    Limits,
    Unusable,
    extract_all,
    extractor_version,
    pool,
)
from contextcliff_dagster_tests.support.child_processes import alive, busy, children, wait_until
from contextcliff_dagster_tests.support.files import document_files as made


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A file that a reader does not come to an end with within any limit used here."""
    path = tmp_path / "endless.pdf"
    path.write_bytes(made.endless_pdf())
    return path


class Clock:
    """A clock of the test's own, that `tick` seconds pass by at every look."""

    def __init__(self) -> None:
        self.now, self.tick = 0.0, 0.0

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which files are waited for."""
    clock = Clock()
    monkeypatch.setattr(pool, "time", clock)
    return clock


def texts(folder: Path, n: int) -> list[Path]:
    paths = [folder / f"{i}.txt" for i in range(n)]
    for i, path in enumerate(paths):
        path.write_text(f"text {i} " + "x" * (i % 7 * 20_000))
    return paths


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_paths(tmp_path: Path, workers: int) -> None:
    paths = texts(tmp_path, 200)
    paths[50:50] = [tmp_path / "gone.txt"]
    results = list(extract_all(paths, Limits(workers=workers)))
    assert [result.path for result in results] == paths
    assert [r.text.split()[1] for r in results if isinstance(r, Extracted)] == [
        str(i) for i in range(200)
    ]
    assert results[50] == Unusable(paths[50], "is no longer there")


def test_paths_are_taken_as_they_are_needed(tmp_path: Path) -> None:
    taken = 0

    def paths() -> Iterator[Path]:
        nonlocal taken
        for path in texts(tmp_path, 300):
            taken += 1
            yield path

    results = extract_all(paths())
    for _ in range(10):
        next(results)
    assert taken <= 100
    results.close()


def test_long_texts_do_not_pile_up(tmp_path: Path, endless: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text("word " * 2_000_000)
    taken = 0

    def paths() -> Iterator[Path]:
        nonlocal taken
        yield endless
        for _ in range(40):
            taken += 1
            yield long

    first = next(extract_all(paths(), Limits(seconds=3, memory_mb=4000, workers=2)))
    assert isinstance(first, Unusable)
    assert taken <= 6


def test_a_worker_that_is_killed_costs_the_file_it_held(tmp_path: Path, endless: Path) -> None:
    paths = [endless, *texts(tmp_path, 5)]
    killed = threading.Thread(
        target=lambda: (
            wait_until(busy),
            [os.kill(child, signal.SIGKILL) for child in busy()],
        )
    )
    killed.start()
    results = list(extract_all(paths, Limits(seconds=100, workers=1)))
    killed.join()
    assert results[0] == Unusable(
        endless, "had its reader killed from outside, perhaps because memory ran out"
    )
    assert all(isinstance(result, Extracted) for result in results[1:])


def test_workers_that_are_killed_as_they_start_cost_no_more_than_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_PROGRAM", "import os; os.kill(os.getpid(), 9)")
    reason = "had its reader killed from outside, perhaps because memory ran out"
    paths = texts(tmp_path, 3)
    assert list(extract_all(paths)) == [Unusable(path, reason) for path in paths]


def test_a_file_that_takes_too_long_is_given_up(tmp_path: Path, endless: Path) -> None:
    paths = [*texts(tmp_path, 2), endless, *texts(tmp_path, 2)]
    results = list(extract_all(paths, Limits(seconds=1)))
    assert [isinstance(result, Unusable) for result in results] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert results[2] == Unusable(endless, "takes more than the 1 s allowed")
    assert children() == []


def test_a_file_that_is_waited_for_too_long_is_given_up(endless: Path, clock: Clock) -> None:
    def stop() -> None:
        wait_until(busy)
        for child in busy():
            os.kill(child, signal.SIGSTOP)
        clock.tick = 0.5

    stopped = threading.Thread(target=stop)
    stopped.start()
    limits = Limits(seconds=100, clock_seconds=4, workers=1)
    assert list(extract_all([endless], limits)) == [
        Unusable(endless, "took longer than 4 s by the clock")
    ]
    stopped.join()


def test_time_that_the_caller_takes_counts_for_no_file(
    tmp_path: Path, endless: Path, clock: Clock
) -> None:
    limits = Limits(seconds=100, clock_seconds=2, workers=2)
    results = extract_all([*texts(tmp_path, 1), endless], limits)
    next(results)
    clock.now += 2.5  # longer than the second file may take
    asked, clock.tick = clock.now, 0.1
    assert next(results) == Unusable(endless, "took longer than 2 s by the clock")
    assert clock.now - asked > 1


MEMORY_REASON = "needs more than the 100 MB of memory allowed"


def test_a_file_that_needs_too_much_memory_is_given_up(tmp_path: Path) -> None:
    body = f"<w:p><w:r><w:t>{'A' * 60_000_000}</w:t></w:r></w:p>"
    python, library = tmp_path / "python.docx", tmp_path / "library.pdf"
    python.write_bytes(made.docx(body))
    library.write_bytes(made.pdf_of_stream(b"q " * 40_000_000, packed=True))
    limits = Limits(memory_mb=100, unpacked_mb=5000, text_mb=5000, workers=1)
    paths = [python, *texts(tmp_path, 2), library, *texts(tmp_path, 2)]
    results = list(extract_all(paths, limits))
    assert results[0] == Unusable(python, MEMORY_REASON)
    assert results[3] == Unusable(
        library, f"makes its reader crash (SIGABRT), most likely as it {MEMORY_REASON}"
    )
    assert sum(isinstance(result, Extracted) for result in results) == 4


def test_memory_is_watched_where_the_system_does_not_limit_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LIMITS_ADDRESS_SPACE", False)
    path = tmp_path / "large.pdf"
    stream = b"BT /F 12 Tf 50 700 Td " + b"(Hello there) Tj " * 1_000_000 + b"ET"
    path.write_bytes(made.pdf_of_stream(stream, packed=True))
    assert list(extract_all([path], Limits(memory_mb=100))) == [Unusable(path, MEMORY_REASON)]


def test_what_a_worker_was_left_with_by_others_is_not_held_against_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker that dies at its second file, whatever that is.
    dying = (
        "import itertools, os; from contextcliff_dagster.corpora.extraction import worker; "
        "seen = itertools.count(); read = worker.read_file; worker.read_file = lambda *a: "
        "os.abort() if next(seen) else read(*a); worker.main()"
    )
    program = pool._PROGRAM
    start = program[: program.index("from contextcliff")]
    monkeypatch.setattr(pool, "_PROGRAM", start + dying)
    results = list(extract_all(texts(tmp_path, 6), Limits(workers=1)))
    assert all(isinstance(result, Extracted) for result in results)


def test_a_worker_that_talks_nonsense_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nonsense = (
        "import os; from contextcliff_dagster.corpora.extraction import worker; "
        "worker.write_message = lambda to, *a, write=worker.write_message: "
        "write(to, *a) if 'ready' in a[0] else os.write(to, b'x' * 50); worker.main()"
    )
    program = pool._PROGRAM
    start = program[: program.index("from contextcliff")]
    monkeypatch.setattr(pool, "_PROGRAM", start + nonsense)
    results = list(extract_all(texts(tmp_path, 2)))
    assert [r.reason for r in results if isinstance(r, Unusable)] == [
        "wrecked its reader's memory"
    ] * 2
    assert children() == []


PARENT = """
import sys
from pathlib import Path
from contextcliff_dagster.corpora.extraction import Limits, extract_all
list(extract_all([Path(sys.argv[1])] * 2, Limits(seconds=1000, clock_seconds=1000, workers=2)))
"""


def test_workers_die_with_their_parent_in_the_middle_of_a_file(endless: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(endless)])
    wait_until(lambda: len(children(parent.pid)) == 2)
    workers = children(parent.pid)
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(map(alive, workers)))  # of their own they have 1,000 s


def test_closing_ends_the_workers_and_leaves_no_descriptor(tmp_path: Path, endless: Path) -> None:
    gc.collect()  # else descriptors that other tests have left go meanwhile
    before = len(list(Path("/dev/fd").iterdir()))
    results = extract_all([*texts(tmp_path, 1), endless, endless], Limits(seconds=100))
    next(results)
    assert children()
    results.close()
    assert children() == []
    gc.collect()
    assert len(list(Path("/dev/fd").iterdir())) <= before


def test_a_fault_of_the_paths_themselves_ends_the_workers(tmp_path: Path) -> None:
    def paths() -> Iterator[Path]:
        yield from texts(tmp_path, 1)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(extract_all(paths()))
    assert children() == []


def test_it_works_from_another_thread_and_with_paths_of_any_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Modules of the same name as the standard library's, in the current folder: never run.
    for name in ("json.py", "zipfile.py", "struct.py"):
        (tmp_path / name).write_text("raise SystemExit('run')")
    odd = Path(os.fsdecode(b"not \xff utf-8\n.txt"))
    odd.write_text("odd")
    results: list[Extracted | Unusable] = []
    paths = [Path("json.py"), odd, Path("nul\0")]
    thread = threading.Thread(target=lambda: results.extend(extract_all(paths)))
    thread.start()
    thread.join()
    assert [result.path for result in results] == paths
    assert [r.text for r in results if isinstance(r, Extracted)] == [
        "raise SystemExit('run')",
        "odd",
    ]
    assert results[2] == Unusable(paths[2], "is no longer there")


def test_workers_that_cannot_start_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_PROGRAM", "import nothing_of_this_name")
    with pytest.raises(CorpusError, match=r"ModuleNotFoundError.*nothing_of_this_name.*reinstall"):
        list(extract_all(texts(tmp_path, 1)))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CorpusError, match="cannot be started: No such file"):
        list(extract_all(texts(tmp_path, 1)))


def test_no_file_starts_no_process() -> None:
    assert list(extract_all([])) == []


@pytest.mark.parametrize("name", ["seconds", "memory_mb", "unpacked_mb", "workers"])
def test_limits_are_above_zero(name: str) -> None:
    with pytest.raises(ValueError, match=f"limit {name} is 0; it must be above 0"):
        Limits(**{name: 0})


def test_what_texts_depend_on_is_named() -> None:
    assert set(extractor_version()) == {"extraction", "pypdfium2", "lxml", "chardetng-py"}

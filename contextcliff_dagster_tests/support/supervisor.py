"""Processes that are killed at random and started again, as `restart: unless-stopped` does."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from contextcliff_dagster_tests.support.postgres import PostgresServer

RESTART_AFTER_S = 1.0


@dataclass
class Service:
    """A long-lived process: how it is started, and what became of it.

    ``deaths``: moment and exit code of each end; ``memory``: moment, age in seconds, and MiB of the
    resident memory of the process with its children but the workers of runs.
    """

    name: str
    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    deaths: list[tuple[float, int]] = field(default_factory=list)
    memory: list[tuple[float, float, float]] = field(default_factory=list)

    def start(self, environment: Mapping[str, str], folder: Path) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started = time.time()

    def family(self) -> list[psutil.Process]:
        """The process and what it has started."""
        with suppress(psutil.NoSuchProcess):
            if self.process is not None:
                root = psutil.Process(self.process.pid)
                return [root, *root.children(recursive=True)]
        return []


def is_run_worker(process: psutil.Process) -> bool:
    """Whether it executes a run: a child of a code server made by `multiprocessing`."""
    with suppress(psutil.Error):
        return "spawn_main" in " ".join(process.cmdline())
    return False


class Supervisor:
    """Keeps services up from a thread of its own, and notes their memory."""

    def __init__(
        self, services: Sequence[Service], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.services = {service.name: service for service in services}
        self._environment, self._folder = environment, folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def _keep(self) -> None:
        looked = 0.0
        while not self._ended.wait(0.25):
            for service in self.services.values():
                code = service.process.poll() if service.process else None
                if code is not None:
                    service.deaths.append((time.time(), code))
                    self._ended.wait(RESTART_AFTER_S)
                    service.start(self._environment, self._folder)
            if time.time() - looked > 10:
                looked = time.time()
                self._note_memory(looked)

    def _note_memory(self, now: float) -> None:
        for service in self.services.values():
            resident = 0
            for process in service.family():
                with suppress(psutil.Error):
                    if not is_run_worker(process):
                        resident += process.memory_info().rss
            service.memory.append((now, now - service.started, resident / 2**20))

    def kill(self, name: str, *, whole: bool) -> None:
        """SIGKILL to the service's process; with ``whole`` to all that it has started as well,
        as when a container dies."""
        family = self.services[name].family()
        for process in family if whole else family[:1]:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def workers(self) -> list[psutil.Process]:
        """The workers of runs that live, those of code servers that are gone, too."""
        mark = self._environment["SOAK"]
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                own = process.uids().real == os.getuid() and is_run_worker(process)
                if own and process.environ().get("SOAK") == mark:
                    found.append(process)
        return found

    @contextmanager
    def running(self) -> Iterator[Supervisor]:
        """Start all in their order; end all, with what they started, afterwards."""
        try:
            for service in self.services.values():
                service.start(self._environment, self._folder)
            self._thread.start()
            yield self
        finally:
            self._ended.set()
            with suppress(RuntimeError):
                self._thread.join(10)
            for service in self.services.values():
                for process in [*service.family(), *self.workers()]:
                    with suppress(psutil.Error):
                        process.kill()
                if service.process is not None:
                    service.process.wait(120)


VICTIMS = {"worker": 9, "postgres": 3, "daemon": 3, "code": 2, "code alone": 2, "webserver": 2}
"""What is killed, and how often. A code server dies with all that it has started, as in a
container, or alone."""


class Chaos:
    """Kills by a seeded plan, and notes each kill."""

    def __init__(
        self,
        seed: int,
        supervisor: Supervisor,
        postgres: PostgresServer,
        say: Callable[[str], None],
    ) -> None:
        self._rng, self._supervisor, self._postgres = random.Random(seed), supervisor, postgres
        self._say = say
        self.kills: list[tuple[float, str, int]] = []

    def once(self) -> None:
        victim = self._rng.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        workers = self._supervisor.workers()
        if victim == "worker":
            until = time.monotonic() + 20
            while not workers and time.monotonic() < until:
                time.sleep(0.2)
                workers = self._supervisor.workers()
            if not workers:
                return
            with suppress(psutil.Error):
                self._rng.choice(workers).kill()
        elif victim == "postgres":
            self._postgres.stop()
            time.sleep(self._rng.uniform(0, 5))
            self._postgres.start()
        else:
            name = victim.split()[0]
            self._supervisor.kill(name, whole=victim == "code")
        # What dies with it: the workers of a code server's container.
        hit = 1 if victim == "worker" else len(workers) if victim == "code" else 0
        self.kills.append((time.time(), victim, hit))
        self._say(f"kill {len(self.kills)}: {victim}, {len(workers)} runs in progress")

    def pause(self, least: float, most: float) -> float:
        """How many seconds there are until the next kill."""
        return self._rng.uniform(least, most)


def own_ends(service: Service, kills: Sequence[tuple[float, str, int]]) -> dict[str, int]:
    """Exit codes of ends that no kill of ours explains."""
    ours = [at for at, victim, _ in kills if victim.split()[0] == service.name]
    ends = [code for at, code in service.deaths if not any(-2 < at - kill < 10 for kill in ours)]
    return {str(code): n for code, n in Counter(ends).items()}


def memory_of(service: Service) -> dict[str, Any]:
    """Resident memory in MiB, a minute after a start: over all, and of the longest life."""
    grown = [one for one in service.memory if one[1] > 60]
    if not grown:
        return {"lives": len(service.deaths) + 1}
    longest = max(grown, key=lambda one: one[1])
    life = [one for one in grown if abs((one[0] - one[1]) - (longest[0] - longest[1])) < 1]
    third = max(1, len(grown) // 3)
    parts = {"first": grown[:third], "middle": grown[third : 2 * third], "last": grown[-third:]}
    return {
        "lives": len(service.deaths) + 1,
        **{
            f"{name}_third": round(statistics.median(o[2] for o in of))
            for name, of in parts.items()
        },
        "most": round(max(one[2] for one in grown)),
        "longest_life_s": round(longest[1]),
        "longest_life_from_to": (round(life[0][2]), round(life[-1][2])),
    }

"""Every test has a store and a Dagster home of its own, and no setting of whoever runs it."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import settings

from contextcliff_dagster_tests.support import examples, tiers
from contextcliff_dagster_tests.support.costs import Meter, Record, ordered
from contextcliff_dagster_tests.support.memory import MEMORY, Valve, roomy
from contextcliff_dagster_tests.support.requirements import require

if TYPE_CHECKING:
    from contextcliff_dagster_tests.support.report_browser import ReportBrowser

# One thread for linear algebra, in the tests and in what they start: as many tests as cores run
# side by side, and threads that wait for each other spin. Targeted sampling took 19 CPU seconds
# that way where one thread takes 2. Said before NumPy or torch is imported.
for _library in ("OPENBLAS", "MKL", "OMP"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# Arrow's own pool keeps what a large table took; the C library's gives it back.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

# The code location shows the shipped examples, which many tests launch.
os.environ.setdefault("CONTEXTCLIFF_EXAMPLES", "1")

# No test asks a model hub in the network; those of one on this machine say so.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Imports and collection leave a few million objects that live as long as the tests do. Looking
# through them for cycles again and again took a twentieth of all CPU time.
gc.set_threshold(100_000, 50, 100)

# Files of tests in memory where there is room: SQLite waits for the disk at every commit, and each
# profile makes hundreds. --basetemp or PYTEST_DEBUG_TEMPROOT says where else.
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and roomy(MEMORY):
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)

settings.load_profile(examples.COMMIT)

_KEPT = {
    "CONTEXTCLIFF_REQUIRE",
    "CONTEXTCLIFF_REAL_DATA",
    "CONTEXTCLIFF_PROSE",
    "CONTEXTCLIFF_SCREENSHOTS",
    "CONTEXTCLIFF_EXAMPLES",
    "CONTEXTCLIFF_LOG_TOOLS",
    "CONTEXTCLIFF_GATEWAY_TOOLS",
    tiers.SEED_VARIABLE,
}


def _settings() -> list[str]:
    names = [name for name in os.environ if name.startswith(("CONTEXTCLIFF_", "DAGSTER_"))]
    return [name for name in names if name not in _KEPT]


# Fixtures of whole modules are made before those of a test, below.
for _name in _settings():
    del os.environ[_name]

# Started as a shell's background job, the tests inherit an ignored SIGINT and pass it on: then no
# child could be ended with Ctrl-C, which many of them are.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_BEFORE = pytest.StashKey[list[str]]()
"""The ids of tests that passed in the run that this one resumes."""


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two first uses of one SQLite DAGSTER_HOME at once corrupt it: never share one between tests.
    for name in _settings():
        monkeypatch.delenv(name)
    # On a busy machine, it would be among the few words of a command that a test is about.
    monkeypatch.setenv("CONTEXTCLIFF_PROGRESS", "off")
    root = tmp_path_factory.mktemp("home", numbered=True)
    for variable, folder in (("CONTEXTCLIFF_HOME", "store"), ("DAGSTER_HOME", "dagster")):
        (root / folder).mkdir()
        monkeypatch.setenv(variable, str(root / folder))
    (root / "dagster" / "dagster.yaml").write_text(
        "telemetry:\n  enabled: false\nnux:\n  enabled: false\n", encoding="utf-8"
    )


@pytest.fixture(autouse=True)
def _interruptible(_isolated: None) -> Iterator[None]:
    """A test leaves Ctrl-C as it found it: the next one may send it."""
    before = _ctrl_c()
    yield
    after = _ctrl_c()
    if after != before:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert after == before


def _ctrl_c() -> tuple[object, bool, int]:
    # Python knows the handlers that it installed itself; a library in C may have taken its place.
    status = Path("/proc/self/status")
    caught = status.is_file() and re.search(r"SigCgt:\s*(\w+)", status.read_text(encoding="ascii"))
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return (
        signal.getsignal(signal.SIGINT),
        not caught or bool(int(caught[1], 16) >> (signal.SIGINT - 1) & 1),
        wakeup,
    )


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    # A third of what a profile of a small study costs is the pixels of its pictures, which only
    # the tests of reporting/ look at.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    draw = FigureCanvasAgg.draw

    def draw_small(canvas: FigureCanvasAgg) -> None:
        canvas.figure.set_dpi(40)
        draw(canvas)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(FigureCanvasAgg, "draw", draw_small)


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    # A request is tried again at once, or when the server asks: the jitter between attempts has
    # tests of its own, in virtual time.
    from contextcliff_dagster.retry import Backoff

    wait_s = Backoff.wait_s

    def asked_s(
        self: Backoff, attempt: int, retry_after_s: float | None, rng: random.Random
    ) -> float:
        return wait_s(replace(self, base_s=0.0), attempt, retry_after_s, rng)

    monkeypatch.setattr(Backoff, "wait_s", asked_s)


@pytest.fixture(scope="module")
def browser() -> Iterator[ReportBrowser]:
    """A window for the reports of one module; only tests marked ``browser`` may ask for it."""
    from contextcliff_dagster_tests.support.report_browser import ReportBrowser

    window = ReportBrowser()
    yield window
    window.close()


@pytest.fixture
def contextcliff_home() -> Path:
    """The store of the running test."""
    return Path(os.environ["CONTEXTCLIFF_HOME"])


@pytest.fixture
def dagster_home() -> Path:
    """The Dagster home of the running test."""
    return Path(os.environ["DAGSTER_HOME"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=get_args(tiers.Tier),
        default="nightly",
        help="run the quick tests, those of a commit, or all (the default); see tiers.toml",
    )
    parser.addoption("--family", action="append", help="run only this family of tiers.toml")
    parser.addoption(
        "--resume",
        type=Path,
        metavar="FILE",
        help="leave out the tests that passed according to FILE, and add to it those that pass now",
    )
    parser.addoption(
        "--write-costs", action="store_true", help="write into costs.json what each test costs"
    )


def pytest_configure(config: pytest.Config) -> None:
    known = {tiers.QUICK, tiers.DEAR, *(family.name for family in tiers.families())}
    if unknown := {*(config.getoption("--family") or ())} - known:
        raise pytest.UsageError(
            f"no family {', '.join(unknown)}: one of {', '.join(sorted(known))}"
        )
    config.pluginmanager.register(Meter())
    config.pluginmanager.register(Valve())
    if hasattr(config, "workerinput"):
        config.stash[_BEFORE] = config.workerinput["before"]
        return
    resumed = tiers.Resumed(config.getoption("--resume"))
    config.stash[_BEFORE] = [*resumed.before]
    config.pluginmanager.register(resumed)
    config.pluginmanager.register(tiers.Summary(resumed.before.values()))
    if config.getoption("--write-costs"):
        config.pluginmanager.register(Record())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    # A worker that takes the place of a crashed one has to collect the same tests.
    node.workerinput["before"] = node.config.stash[_BEFORE]


def pytest_report_header() -> str:
    return f"samples drawn by {tiers.seed()}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.can_skip_collecting(collection_path, config.getoption("--tier")) or None


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_tier = tiers.chosen(items, config.getoption("--tier"))
    if families := config.getoption("--family"):
        of_tier = [item for item in of_tier if tiers.family_of(item) in families]
    before = {*config.stash[_BEFORE]}
    of_tier = [item for item in of_tier if item.nodeid not in before]
    left_out = {*items} - {*of_tier}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    workers = getattr(config, "workerinput", {}).get("workercount")
    # One after the other the tests run in the order of their files.
    items[:] = ordered(of_tier, workers) if workers else of_tier


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    vars(report).update(family=tiers.family_of(item))
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked by what it needs (`requirements`) runs only where that is."""
    for name in (
        "browser", "postgres", "celery", "ray", "torch", "vllm", "local_model", "log_tools",
        "gateway_tools", "kv",
    ):  # fmt: skip
        if item.get_closest_marker(name):
            require(name)

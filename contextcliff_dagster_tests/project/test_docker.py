"""The container files, as far as they can be proved where no Docker daemon runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import yaml

from contextcliff_dagster.inference.engines.open_engine import declared_identity
from contextcliff_dagster.inference.models.models_file import SHIPPED_MODELS, load_models
from contextcliff_dagster_tests.support.dagster_ui import LAUNCH
from contextcliff_dagster_tests.support.dagster_ui import ask as ask_ui
from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT
from contextcliff_dagster_tests.support.postgres import PostgresServer, free_port, running_postgres
from contextcliff_dagster_tests.support.requirements import postgres_bin, require

DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
SECRETS = {"PASSWORD": "POSTGRES_PASSWORD", "TOKEN": "CONTEXTCLIFF_TOKEN"}
TOKEN = "a-token-of-the-tests"


def test_the_dockerfile_passes_hadolint() -> None:
    own = Path(sys.executable).parent / "hadolint"
    hadolint = str(own) if own.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint, of the test extra")
    done = subprocess.run(
        [hadolint, "--no-color", DOCKER / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    lines = (DOCKER / "Dockerfile.dockerignore").read_text("utf-8").split()
    let_through = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = re.findall(r"^COPY ((?!--).*)$", DOCKERFILE, re.MULTILINE)
    assert copied
    for line in copied:
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert source in let_through


def test_the_compose_file_holds_together() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "code", "webserver", "daemon", "vllm"}
    for name, service in services.items():
        assert service["image"]
        for other, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            # Healthy is what is waited for, so the other must be able to say so.
            assert "healthcheck" in services[other] or "HEALTHCHECK" in DOCKERFILE, name
        for mount in service.get("volumes", []):
            source = re.split(r":(?=/)", mount)[0]
            assert (
                source in COMPOSE["volumes"]
                or source.startswith("${CONTEXTCLIFF_")
                or (DOCKER / source).is_file()
            )
    assert (DOCKER / services["code"]["build"]["context"] / "pyproject.toml").exists()


@pytest.mark.parametrize(
    ("variable", "loaded"),
    [
        ("CONTEXTCLIFF_STUDIES", "from contextcliff_dagster.studies import load_studies as load"),
        (
            "CONTEXTCLIFF_MODELS",
            "from contextcliff_dagster.inference.models.models_file import load_models as load",
        ),
    ],
)
def test_studies_and_models_of_ones_own_reach_the_code_location(
    variable: str, loaded: str, tmp_path: Path
) -> None:
    """The variable names the mount inside; outside, a file or folder that is there by default and
    can be read as what it means, from another place than its own."""
    code = COMPOSE["services"]["code"]
    (mount,) = (m for m in code["volumes"] if m.startswith("${" + variable + ":-"))
    found = re.fullmatch(r"\$\{\w+:-(?P<here>[^}]+)\}:(?P<inside>/[^:]+):ro", mount)
    assert found
    assert code["environment"][variable] == found["inside"]
    here = DOCKER / found["here"]
    mounted = tmp_path / Path(found["inside"]).name
    (shutil.copytree if here.is_dir() else shutil.copy)(here, mounted)
    done = subprocess.run(
        [sys.executable, "-c", f"{loaded}; print(sorted(load()))"],
        cwd=tmp_path,
        env=os.environ | {variable: str(mounted)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "reference" in done.stdout


def test_steps_in_containers_are_offered_what_the_code_location_has() -> None:
    """Each variable and folder of one's own that compose gives to `code`, at the same place."""
    text = (DOCKER / "executors" / "docker.yaml").read_text("utf-8")
    code = COMPOSE["services"]["code"]
    for variable, value in code["environment"].items():
        if variable in ("CONTEXTCLIFF_STUDIES", "CONTEXTCLIFF_MODELS"):
            assert f"- {variable}={value}\n" in text
            assert re.search(rf"- /\S+:{value}:ro\n", text)
    uncommented = yaml.safe_load(re.sub(r"# (- [A-Z_]+=|- /)", r"\1", text))
    assert "CONTEXTCLIFF_MODELS=/data/models.yaml" in uncommented["env_vars"]
    assert (
        "/srv/contextcliff/studies:/data/studies:ro" in uncommented["container_kwargs"]["volumes"]
    )
    assert "OPENAI_API_KEY" in yaml.safe_load(text)["env_vars"]


def test_the_file_beside_compose_starts_runs_over_the_docker_executor() -> None:
    compose = yaml.safe_load((DOCKER / "executors" / "compose.docker.yaml").read_text("utf-8"))
    code = compose["services"]["code"]
    inside = code["environment"]["CONTEXTCLIFF_EXECUTOR_CONFIG"]
    (mount,) = (m for m in code["volumes"] if f":{inside}:" in m)
    assert (DOCKER / mount.split(":")[0]).samefile(DOCKER / "executors" / "docker.yaml")
    assert code["environment"]["CONTEXTCLIFF_EXECUTOR"] in code["build"]["args"]["EXTRAS"]
    assert "ARG EXTRAS=postgres\n" in DOCKERFILE
    assert "[${EXTRAS}]" in DOCKERFILE


def test_the_vllm_service_takes_the_type_of_its_cache_from_the_environment() -> None:
    vllm, given = COMPOSE["services"]["vllm"], "${CONTEXTCLIFF_KV_CACHE_DTYPE:-auto}"
    assert vllm["profiles"] == ["vllm"]  # not without being asked for: it needs a GPU
    assert f"--kv-cache-dtype={given}" in vllm["command"]
    # The address has it, too, and so the serving identity: two types are never pooled.
    (alias,) = vllm["networks"]["default"]["aliases"]
    url = COMPOSE["services"]["code"]["environment"]["CONTEXTCLIFF_QWEN_URL"]
    assert alias == f"vllm-{given}"
    assert url == f"${{CONTEXTCLIFF_QWEN_URL:-http://{alias}:8000/v1}}"
    entry = load_models([SHIPPED_MODELS])["Qwen2.5-7B"]
    assert f"--model=${{CONTEXTCLIFF_VLLM_MODEL:-{entry.model_id}}}" in vllm["command"]
    identities = []
    for kind in ("auto", "fp8"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CONTEXTCLIFF_QWEN_URL", f"http://vllm-{kind}:8000/v1")
            identities.append(declared_identity(entry))
    assert identities[0] != identities[1]


def test_the_example_of_an_environment_has_every_variable_with_its_default() -> None:
    text = (DOCKER / "compose.yaml").read_text("utf-8")
    example = (DOCKER / ".env.example").read_text("utf-8")
    asked = dict(re.findall(r"\$\{([A-Z_]+)(?::-([^${}]*))?", text))
    named = dict(re.findall(r"^(?:# )?([A-Z_]+)=(.*)$", example, re.MULTILINE))
    assert asked.keys() == named.keys()
    assert {k: v for k, v in named.items() if k != "CONTEXTCLIFF_QWEN_URL"} == {
        k: v for k, v in asked.items() if k != "CONTEXTCLIFF_QWEN_URL"
    }


def test_nothing_listens_beyond_loopback_and_no_password_is_written_down() -> None:
    for service in COMPOSE["services"].values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
    for secret, value in re.findall(
        r"(?<!HF_)(PASSWORD|TOKEN): (.*)", (DOCKER / "compose.yaml").read_text("utf-8")
    ):
        assert value.startswith(f"${{{SECRETS[secret]}:?")


def test_compose_accepts_the_file() -> None:
    command = ["docker", "compose"]
    if (
        not shutil.which("docker")
        or subprocess.run([*command, "version"], capture_output=True).returncode
    ):
        pytest.skip("needs docker compose (the client alone is enough)")
    done = subprocess.run(
        [*command, "-f", "docker/compose.yaml", "config", "--quiet"],
        cwd=ROOT,
        env=os.environ | {"POSTGRES_PASSWORD": "x", "CONTEXTCLIFF_TOKEN": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def environment_of(service: str) -> dict[str, str]:
    found: dict[str, str] = COMPOSE["services"][service]["environment"]
    return {k: v for k, v in found.items() if not v.startswith("${")}


@contextlib.contextmanager
def started(
    command: list[str], home: Path, environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The command of a container as a process; stopped, with what it started, at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", Path(sys.executable).parent / command[0], *command[1:]],
            cwd=home,
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait(10)


def ask(port: int, query: str, **variables: Any) -> Any:
    return ask_ui(f"http://127.0.0.1:{port}", query, TOKEN, **variables)


def until(seconds: float, question: str, logs: list[Path], check: Any) -> Any:
    deadline = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if found := check():
                return found
        except OSError as error:
            last = error
        time.sleep(1.0)
    said = "\n".join(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-3000:]}" for log in logs)
    raise AssertionError(f"After {seconds:.0f} s still not so: {question} ({last})\n{said}")


@contextlib.contextmanager
def prepared_postgres() -> Iterator[PostgresServer]:
    """A server as the compose file's first start leaves it; seen as Dagster's own role."""
    service = COMPOSE["services"]["postgres"]
    (script,) = (m.split(":")[0] for m in service["volumes"] if "/docker-entrypoint-initdb.d/" in m)
    programs = postgres_bin()
    assert programs is not None
    with running_postgres("unused", service["environment"]["POSTGRES_USER"]) as server:
        done = subprocess.run(
            ["sh", DOCKER / script],
            env=os.environ
            | {
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PGHOST": server.host,
                "PGPORT": str(server.port),
                "PGPASSWORD": server.password,
                "POSTGRES_USER": server.user,
                "POSTGRES_PASSWORD": 'it\'s \\ "quoted"',
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "quoted" not in done.stdout
        dagster = environment_of("code")
        user, database = dagster["DAGSTER_POSTGRES_USER"], dagster["DAGSTER_POSTGRES_DB"]
        yield replace(server, user=user, password='it\'s \\ "quoted"', database=database)


@pytest.fixture
def deployment(
    tmp_path: Path, dagster_home: Path
) -> Iterator[tuple[int, list[Path], PostgresServer]]:
    """Code location, webserver and daemon as the containers start them, over a real PostgreSQL."""
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(DOCKER / name, dagster_home / name)
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    code_port, ui_port = str(free_port()), str(free_port())
    ports = {"4000": code_port, "3000": ui_port, "0.0.0.0": "127.0.0.1"}
    commands = {
        "code": json.loads(command),
        "webserver": COMPOSE["services"]["webserver"]["command"],
        "daemon": COMPOSE["services"]["daemon"]["command"],
    }
    logs = [tmp_path / f"{name}.log" for name in commands]
    with prepared_postgres() as postgres, contextlib.ExitStack() as stack:
        for (name, words), log in zip(commands.items(), logs, strict=True):
            environment = environment_of(name) | {
                "DAGSTER_POSTGRES_HOST": postgres.host,
                "DAGSTER_POSTGRES_PORT": str(postgres.port),
                "DAGSTER_POSTGRES_PASSWORD": postgres.password,
                "DAGSTER_LOGS": str(tmp_path / "logs"),
                "CONTEXTCLIFF_TOKEN": TOKEN,
                "CONTEXTCLIFF_CODE_HOST": "127.0.0.1",
                "CONTEXTCLIFF_CODE_PORT": code_port,
            }
            for mounted in ("CONTEXTCLIFF_STUDIES", "CONTEXTCLIFF_MODELS"):
                environment.pop(mounted, None)
            words = [ports.get(word, word) for word in words]
            stack.enter_context(started(words, dagster_home, environment, log))
            if name == "code":
                _wait_for_code_server(code_port, logs[:1])
        yield int(ui_port), logs, postgres


def _wait_for_code_server(port: str, logs: list[Path]) -> None:
    """The image's HEALTHCHECK, with this port."""
    (check,) = re.findall(r"^ +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    words = [port if word == "4000" else word for word in json.loads(check)]
    program = str(Path(sys.executable).parent / words[0])
    until(
        120,
        "the code server is healthy",
        logs,
        lambda: subprocess.run([program, *words[1:]], capture_output=True).returncode == 0,
    )


@pytest.mark.postgres
def test_the_database_role_owns_its_database_and_nothing_else() -> None:
    require("postgres")
    with prepared_postgres() as dagster:
        rights = "rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"
        (row,) = dagster.execute(f"SELECT {rights} FROM pg_roles WHERE rolname = current_user")
        assert not any(row)
        dagster.execute("CREATE TABLE of_dagster (a int)")
        for refused in (
            *("COPY of_dagster FROM PROGRAM 'echo 1'", "COPY of_dagster TO '/tmp/stolen'"),
            *("SELECT pg_read_file('/etc/passwd')", "CREATE DATABASE other", "CREATE ROLE other"),
            *("ALTER ROLE postgres PASSWORD 'x'", "SELECT rolpassword FROM pg_authid"),
        ):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                dagster.execute(refused)
        # The other databases are closed to it, and the superuser has no password any more.
        for other in (
            replace(dagster, database="postgres"),
            replace(dagster, database="template1"),
            replace(dagster, user="postgres"),
            replace(dagster, user="postgres", password="s3cret"),
        ):
            with pytest.raises(psycopg2.OperationalError):
                other.execute("SELECT 1")


def test_every_image_has_an_exact_tag() -> None:
    text = DOCKERFILE + (DOCKER / "compose.yaml").read_text("utf-8")
    images = re.findall(r"^(?:FROM |\s+image: )(\S+:\S+)", text, re.MULTILINE)
    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[\w/-]+:v?\d+\.\d+(\.\d+)?(-[a-z]+)*(@sha256:[0-9a-f]{64})?", image)


def pin(folder: Path, *options: str, known: str) -> subprocess.CompletedProcess[str]:
    """`pin_digests.py` on a copy, with a client that knows the images that match ``known``."""
    for name in ("pin_digests.py", "Dockerfile", "compose.yaml"):
        if not (folder / name).exists():
            shutil.copy(DOCKER / name, folder / name)
    client = folder / "docker"
    client.write_text(
        "#!/bin/sh\n"
        f'case "$4" in {known}) echo sha256:$(echo "$4" | sha256sum | cut -c-64);;\n'
        "*) echo 'no such host' >&2; exit 1;; esac\n"
    )
    client.chmod(0o755)
    return subprocess.run(
        [sys.executable, folder / "pin_digests.py", *options],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_digests_are_pinned_where_a_registry_answers(tmp_path: Path) -> None:
    before = {name: (DOCKER / name).read_text("utf-8") for name in ("Dockerfile", "compose.yaml")}
    silent = pin(tmp_path, known="nothing")
    assert silent.returncode == 2
    assert silent.stderr.count("left as it is (no such host)") == 3
    assert (tmp_path / "Dockerfile").read_text("utf-8") == before["Dockerfile"]
    assert pin(tmp_path, "--check", known="python:*").returncode == 1
    assert pin(tmp_path, known="python:*").returncode == 0
    written = (tmp_path / "Dockerfile").read_text("utf-8")
    assert len(re.findall(r"^FROM python:\S+@sha256:[0-9a-f]{64}\b", written, re.MULTILINE)) == 2
    assert re.sub(r"@sha256:\w+", "", written) == re.sub(r"@sha256:\w+", "", before["Dockerfile"])
    assert (tmp_path / "compose.yaml").read_text("utf-8") == before["compose.yaml"]
    assert pin(tmp_path, "--check", known="python:*").returncode == 0
    # A tag that moved, or another tag, gets another digest.
    moved = re.sub(r"sha256:\w{4}", "sha256:0000", written)
    (tmp_path / "Dockerfile").write_text(moved, "utf-8")
    assert pin(tmp_path, "--check", known="python:*").returncode == 1
    pin(tmp_path, known="*")
    assert (tmp_path / "Dockerfile").read_text("utf-8") == written
    assert yaml.safe_load((tmp_path / "compose.yaml").read_text("utf-8"))["services"]["postgres"][
        "image"
    ].startswith("postgres:16")
    assert pin(tmp_path, "--check", known="*").returncode == 0


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(420)
def test_the_four_processes_work_together(
    deployment: tuple[int, list[Path], PostgresServer],
) -> None:
    port, logs, postgres = deployment
    assets = until(
        120,
        "the webserver lists the assets of the code location",
        logs,
        lambda: ask(
            port, "{ assetNodes { assetKey { path } isPartitioned dependencyKeys { path } } }"
        )["assetNodes"],
    )
    healthy = "{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }"
    until(
        120,
        "every daemon that is required has sent its heartbeat",
        logs,
        lambda: all(
            status["healthy"]
            for status in ask(port, healthy)["instance"]["daemonHealth"]["allDaemonStatuses"]
            if status["required"]
        ),
    )
    first = next(a for a in assets if not a["dependencyKeys"] and not a["isPartitioned"])
    launched = ask(port, LAUNCH, asset=first["assetKey"]["path"])["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    status = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
    ended = until(
        150,
        "a run started from the UI has ended",
        logs,
        lambda: {"SUCCESS": "SUCCESS", "FAILURE": "FAILURE"}.get(
            ask(port, status, id=launched["run"]["runId"])["runOrError"]["status"]
        ),
    )
    assert ended == "SUCCESS", logs[0].read_text("utf-8", "replace")[-3000:]

    assert postgres.execute("SELECT run_id FROM event_logs LIMIT 1")

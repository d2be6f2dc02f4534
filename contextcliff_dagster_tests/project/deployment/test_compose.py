"""The compose file, as far as it can be proved where no Docker daemon runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from contextcliff_dagster.inference.engines.base import declared_identity
from contextcliff_dagster.inference.models.models_file import SHIPPED_MODELS, load_models
from contextcliff_dagster_tests.project.deployment.files import COMPOSE, DOCKER, DOCKERFILE
from contextcliff_dagster_tests.support.paths import CHECKOUT

SECRETS = {"PASSWORD": "POSTGRES_PASSWORD", "TOKEN": "CONTEXTCLIFF_TOKEN"}


def test_the_compose_file_holds_together() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "code", "webserver", "daemon", "proxy", "vllm"}
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


NOT_OF_STEPS = {
    # Where webserver and daemon find the code server (workspace.yaml); steps load code themselves.
    "CONTEXTCLIFF_CODE_HOST",
    "CONTEXTCLIFF_CODE_PORT",
    # Settings of the executor that starts steps; a step starts none.
    "CONTEXTCLIFF_EXECUTOR_CONFIG",
}
"""Variables that are the code server's own."""
MOUNTED = {"CONTEXTCLIFF_STUDIES", "CONTEXTCLIFF_MODELS"}
"""Variables that name a mount of one's own; without it, steps have those of the image."""


def test_steps_in_containers_have_what_the_code_location_has() -> None:
    """Each variable of `code`, and each folder of one's own at the same place."""
    text = (DOCKER / "executors" / "docker.yaml").read_text("utf-8")
    beside = yaml.safe_load((DOCKER / "executors" / "compose.docker.yaml").read_text("utf-8"))
    of_code = COMPOSE["services"]["code"]["environment"]
    of_code = of_code | beside["services"]["code"]["environment"]
    assert of_code.keys() > NOT_OF_STEPS | MOUNTED
    # A name alone is the value that the run worker has.
    given = dict(line.partition("=")[::2] for line in yaml.safe_load(text)["env_vars"])
    needed = of_code.keys() - NOT_OF_STEPS - MOUNTED
    assert {name: given.get(name, "not given") for name in needed} == dict.fromkeys(needed, "")
    uncommented = yaml.safe_load(re.sub(r"# (- [A-Z_]+=|- /)", r"\1", text))
    for variable in MOUNTED:
        assert f"{variable}={of_code[variable]}" in uncommented["env_vars"]
        mounts = uncommented["container_kwargs"]["volumes"]
        assert [m for m in mounts if re.fullmatch(rf"/\S+:{of_code[variable]}:ro", m)]


@pytest.mark.parametrize("name", ["celery.yaml", "ray.yaml"])
def test_steps_on_other_machines_are_told_what_decides_their_calls(name: str) -> None:
    """Without the address, say, they would call another server, under another identity."""
    text = (DOCKER / "executors" / name).read_text("utf-8")
    of_code = {v for v in COMPOSE["services"]["code"]["environment"] if v.startswith("CONTEXT")}
    wanted = of_code - NOT_OF_STEPS | {"CONTEXTCLIFF_LEDGER", "CONTEXTCLIFF_BUDGET_USD_PER_DAY"}
    assert not [variable for variable in wanted if not re.search(rf"\b{variable}\b", text)]


def test_the_volumes_that_our_containers_write_to_are_their_users() -> None:
    """A new volume is owned as the folder of the image is; one that is not there is root's."""
    (line,) = re.findall(r"install -d -o contextcliff (.*)$", DOCKERFILE, re.MULTILINE)
    executors = [
        yaml.safe_load(f.read_text("utf-8")) for f in (DOCKER / "executors").glob("*.yaml")
    ]
    of_ours = [
        service
        for file in (COMPOSE, *executors)
        for name, service in file.get("services", {}).items()
        if COMPOSE["services"][name]["image"] == "contextcliff-dagster"
    ]
    of_steps = [file.get("container_kwargs", {}) for file in executors]
    mounts = {mount for one in (*of_ours, *of_steps) for mount in one.get("volumes", [])}
    # Files and folders of the host keep its owner.
    named = {m for m in mounts if re.match(r"\w", m) and not m.endswith(":ro")}
    targets = {mount.split(":")[1] for mount in named}
    assert targets >= {"/data/store", "/opt/dagster/logs", "/leases"}
    assert targets <= set(line.split())


def test_the_file_beside_compose_starts_runs_over_the_docker_executor() -> None:
    compose = yaml.safe_load((DOCKER / "executors" / "compose.docker.yaml").read_text("utf-8"))
    code = compose["services"]["code"]
    inside = code["environment"]["CONTEXTCLIFF_EXECUTOR_CONFIG"]
    (mount,) = (m for m in code["volumes"] if f":{inside}:" in m)
    assert (DOCKER / mount.split(":")[0]).samefile(DOCKER / "executors" / "docker.yaml")
    assert code["environment"]["CONTEXTCLIFF_EXECUTOR"] in code["build"]["args"]["EXTRAS"]
    assert "ARG EXTRAS=postgres\n" in DOCKERFILE
    assert DOCKERFILE.count('"${EXTRAS}"') == 2  # what is locked, and what is not


def test_the_vllm_service_takes_the_type_of_its_cache_from_the_environment() -> None:
    vllm, given = COMPOSE["services"]["vllm"], "${CONTEXTCLIFF_KV_CACHE_DTYPE:-auto}"
    assert vllm["profiles"] == ["gpu"]  # not without being asked for: it needs a GPU
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
            assert port.startswith(("127.0.0.1:", "${CONTEXTCLIFF_BIND:-127.0.0.1}:"))
    for secret, value in re.findall(
        r"(?<!HF_)(PASSWORD|TOKEN): (.*)", (DOCKER / "compose.yaml").read_text("utf-8")
    ):
        assert value.startswith(f"${{{SECRETS[secret]}:?")


@pytest.mark.parametrize("profiles", [(), ("gpu",), ("proxy",), ("gpu", "proxy")])
def test_compose_accepts_the_file(profiles: tuple[str, ...], tmp_path: Path) -> None:
    """By Docker's plugin, or by Debian's older program, which does not know the key `name`."""
    command, file = ["docker", "compose"], DOCKER / "compose.yaml"
    if (
        not shutil.which("docker")
        or subprocess.run([*command, "version"], capture_output=True).returncode
    ):
        if not shutil.which("docker-compose"):
            pytest.skip("needs docker compose or docker-compose (the client alone is enough)")
        command, file = ["docker-compose"], tmp_path / "compose.yaml"
        text = (DOCKER / "compose.yaml").read_text("utf-8")
        file.write_text(re.sub(r"^name: .*\n", "", text, flags=re.MULTILINE), "utf-8")
    asked = [word for profile in profiles for word in ("--profile", profile)]
    done = subprocess.run(
        [*command, "-f", str(file), *asked, "config"],
        cwd=CHECKOUT,
        env=os.environ | {"POSTGRES_PASSWORD": "x", "CONTEXTCLIFF_TOKEN": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    always = {"postgres", "code", "webserver", "daemon"}
    extra = {"gpu": "vllm", "proxy": "proxy"}
    # The older program prints services of every profile.
    assert services.keys() >= always | {extra[profile] for profile in profiles}
    if command == ["docker", "compose"]:
        assert services.keys() == always | {extra[profile] for profile in profiles}
        # A default within a default, which only the plugin knows.
        url = services["code"]["environment"]["CONTEXTCLIFF_QWEN_URL"]
        assert url == "http://vllm-auto:8000/v1"

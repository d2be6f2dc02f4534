"""docker/helm: a study over dagster-k8s, whose jobs run here, and every manifest by its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.redaction import DatabaseUrl
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.project.deployment import helm_chart as chart
from contextcliff_dagster_tests.project.deployment.cluster import Cluster, Manifest, running_cluster
from contextcliff_dagster_tests.project.deployment.files import COMPOSE, DOCKER, DOCKERFILE
from contextcliff_dagster_tests.support.other_executors import Started, on_a_device
from contextcliff_dagster_tests.support.paths import EXECUTOR_SETTINGS
from contextcliff_dagster_tests.support.postgres import free_port, running_postgres
from contextcliff_dagster_tests.support.requirements import deploy_tool, require

VERSIONS = ("1.30", "1.37")
"""The oldest and the newest Kubernetes that kubernetes-validate knows and that we name."""


def insist_on_kubernetes_schemas(manifests: list[Manifest], folder: Path) -> None:
    """By kubernetes-validate, strictly: no key that Kubernetes does not know."""
    require("deploy_tools")
    file = folder / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(manifests), "utf-8")
    for version in VERSIONS:
        done = subprocess.run(
            [deploy_tool("kubernetes-validate"), "--strict", "-k", version, file],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def pods(manifest: Manifest) -> Manifest:
    found: Manifest = manifest["spec"]["template"]["spec"]
    return found


def insist_that_volumes_fit(pod: Manifest) -> None:
    """What no schema says: a name and a place once, and a volume for each mount."""
    (container,) = pod["containers"]
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    mounts = container.get("volumeMounts", [])
    places = [(mount["mountPath"], mount.get("subPath")) for mount in mounts]
    assert len(set(volumes)) == len(volumes)
    assert len(set(places)) == len(places)
    assert {mount["name"] for mount in mounts} <= set(volumes)


def test_the_resources_and_what_the_chart_makes_of_our_values_are_manifests(
    tmp_path: Path,
) -> None:
    deployments = [chart.code_deployment(), chart.webserver_deployment()]
    insist_on_kubernetes_schemas([*chart.RESOURCES, *deployments], tmp_path)
    for deployment in deployments:
        insist_that_volumes_fit(pods(deployment))


def test_a_manifest_with_a_key_that_kubernetes_does_not_know_is_refused(tmp_path: Path) -> None:
    wrong = chart.code_deployment()
    pods(wrong)["containers"][0]["volumeMount"] = []
    with pytest.raises(AssertionError, match="volumeMount"):
        insist_on_kubernetes_schemas([wrong], tmp_path)


def test_values_and_resources_belong_together() -> None:
    made = {(r["kind"], r["metadata"]["name"]) for r in chart.RESOURCES}
    claims = {v["persistentVolumeClaim"]["claimName"] for v in chart.CODE["volumes"]}
    assert {("PersistentVolumeClaim", claim) for claim in claims} <= made
    database = chart.VALUES["postgresql"]
    assert ("Service", database["postgresqlHost"]) in made
    (server,) = (r for r in chart.RESOURCES if r["kind"] == "StatefulSet")
    (container,) = pods(server)["containers"]
    of_compose = COMPOSE["services"]["postgres"]
    image = container["image"].partition("@")[0]  # without a digest that pin_digests.py adds
    assert image == of_compose["image"].partition("@")[0]
    assert image.split(":") == [
        database["image"]["repository"],
        database["image"]["tag"],
    ]
    asked = container["readinessProbe"]["exec"]["command"]
    assert asked == of_compose["healthcheck"]["test"][1:]
    variables = COMPOSE["services"]["code"]["environment"]
    assert variables["DAGSTER_POSTGRES_USER"] == database["postgresqlUsername"]
    assert variables["DAGSTER_POSTGRES_DB"] == database["postgresqlDatabase"]
    secret = chart.VALUES["global"]["postgresqlSecretName"]
    (password,) = (e["valueFrom"] for e in container["env"] if "valueFrom" in e)
    assert password["secretKeyRef"] == {"name": secret, "key": "postgresql-password"}
    # The image has what the values name in it.
    environment = chart.CODE["env"]
    settings = Path(environment["CONTEXTCLIFF_EXECUTOR_CONFIG"])
    assert f"COPY docker/executors {settings.parent}\n" in DOCKERFILE
    assert (DOCKER / "executors" / settings.name).is_file()
    assert f"CONTEXTCLIFF_HOME={environment['CONTEXTCLIFF_HOME']}" in DOCKERFILE
    assert f"DAGSTER_HOME={chart.VALUES['global']['dagsterHome']}" in DOCKERFILE


def test_dagster_loads_the_instance_of_the_chart(tmp_path: Path, dagster_home: Path) -> None:
    from dagster_k8s import K8sRunLauncher

    cluster = Cluster({}, {}, tmp_path)
    with running_cluster(cluster, tmp_path / "kubeconfig"):
        text = yaml.safe_dump(chart.instance(tmp_path / "kubeconfig"))
        (dagster_home / "dagster.yaml").write_text(text, "utf-8")
        with dg.DagsterInstance.get() as instance:
            assert isinstance(instance.run_launcher, K8sRunLauncher)
            assert type(instance.run_coordinator).__name__ == "QueuedRunCoordinator"
            assert instance.scheduler.max_tick_retries == 20
            assert instance.run_retries_enabled
            assert instance.run_monitoring_enabled
            limits = instance.get_concurrency_config()
    ours = yaml.safe_load((DOCKER / "dagster.yaml").read_text("utf-8"))
    assert chart.VALUES["additionalInstanceConfig"]["concurrency"] == ours["concurrency"]
    theirs = yaml.safe_load(text)
    for part in ("scheduler", "run_coordinator"):
        assert theirs[part] == ours[part]
    assert limits.run_queue_config is not None
    assert limits.run_queue_config.max_concurrent_runs == 10
    assert limits.pool_config.default_pool_limit == 1


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    processes = Started(tmp_path)
    try:
        yield processes
    finally:
        processes.end()


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_a_study_runs_as_jobs_of_kubernetes(
    started: Started,
    study: Study,
    store: Store,
    tmp_path: Path,
    dagster_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code location, run and steps as the chart starts them. Only the cluster is a stand-in: it
    runs the pods' commands here, with the environment that Kubernetes would give them."""
    require("postgres")
    kubeconfig = tmp_path / "kubeconfig"
    instance = chart.instance(kubeconfig)
    # There is no daemon here that would take runs out of a queue.
    instance["run_coordinator"] |= {"class": "DefaultRunCoordinator", "config": {}}
    instance.pop("concurrency")
    instance["compute_logs"]["config"]["base_dir"] = str(tmp_path / "logs")
    (dagster_home / "dagster.yaml").write_text(yaml.safe_dump(instance), "utf-8")
    pod_logs = tmp_path / "pods"
    pod_logs.mkdir()
    with running_postgres("ledger", "contextcliff") as postgres:
        secrets = {"CONTEXTCLIFF_LEDGER": postgres.url}
        sources = {
            chart.USER_ENVIRONMENT: chart.CODE["env"],
            "contextcliff-secrets": secrets,
            "contextcliff-postgres": {"postgresql-password": "x"},
        }
        with running_cluster(Cluster({}, sources, pod_logs), kubeconfig) as cluster:
            on_a_device(tmp_path, monkeypatch, CONTEXTCLIFF_DEVICES="left")
            # What images and volumes have at other paths, and nothing that values.yaml sets.
            cluster.environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "DAGSTER_HOME": str(dagster_home),
                "CONTEXTCLIFF_HOME": str(store.root),
                "CONTEXTCLIFF_EXECUTOR_CONFIG": str(EXECUTOR_SETTINGS / "k8s.yaml"),
                **{
                    name: os.environ[name]
                    for name in (
                        "CONTEXTCLIFF_STUDIES",
                        "CONTEXTCLIFF_MODELS",
                        "CONTEXTCLIFF_LEASES",
                        "CONTEXTCLIFF_DEVICES",
                    )
                },
            }
            jobs = measure_tiny(started, cluster, dagster_home, monkeypatch)
            with Ledger.open(DatabaseUrl(postgres.url)) as ledger:
                asked = ledger.read("SELECT count(*), count(DISTINCT call_key) FROM attempts")
    assert asked == [(12, 12)]
    assert not (store.root / "state.db").exists()  # the ledger is where the secret says
    insist_on_kubernetes_schemas(jobs, tmp_path)
    by_step = {job["metadata"]["labels"].get("dagster/op"): pods(job) for job in jobs}
    assert {None, "tiny__raw_corpus", "tiny__manifest", "tiny__predictions"} <= by_step.keys()
    for step, pod in by_step.items():
        insist_that_volumes_fit(pod)
        (container,) = pod["containers"]
        assert container["image"] == chart.IMAGE
        places = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/data/store", "/opt/dagster/logs"} <= places
        assert pod["securityContext"]["fsGroup"] == 1000
        gpus = container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu")
        on_gpu = step == "tiny__predictions"
        assert gpus == ("1" if on_gpu else None)
        assert [t["key"] for t in pod.get("tolerations", [])] == ["nvidia.com/gpu"] * on_gpu


def measure_tiny(
    started: Started, cluster: Cluster, home: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Manifest]:
    """Launch the study up to its answers through the code location, wait for the end; the jobs."""
    port = free_port()
    code: dict[str, Any] = pods(chart.code_deployment())["containers"][0]
    for name, value in (cluster.variables(code) | dict(cluster.environment)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_CONTAINER_CONTEXT", json.dumps(chart.container_context()))
    monkeypatch.setenv("DAGSTER_CURRENT_IMAGE", chart.IMAGE)
    started("code", *chart.code_server_command(port))
    workspace = home / "workspace.yaml"
    server = {"host": "localhost", "port": port, "location_name": "contextcliff_dagster"}
    workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}), "utf-8")
    health = ["dagster", "api", "grpc-health-check", "--port", str(port)]
    started.until(lambda: not subprocess.run(health, capture_output=True).returncode)
    words = ("-m", "dagster", "job", "launch", "-w", str(workspace), "-j", "measure_tiny")
    launch = started("launch", sys.executable, *words, "-o", "*tiny__predictions")
    started.until(lambda: launch.poll() == 0)
    with dg.DagsterInstance.get() as instance:
        (record,) = instance.get_run_records()

        def ended() -> bool:
            assert not any(pod.poll() for pod in list(cluster.pods.values())), cluster.logs()
            run = instance.get_run_by_id(record.dagster_run.run_id)
            return run is not None and run.is_finished

        started.until(ended)
        run = instance.get_run_by_id(record.dagster_run.run_id)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.SUCCESS, cluster.logs()
    return list(cluster.jobs.values())

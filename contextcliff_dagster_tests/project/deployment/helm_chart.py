"""What Dagster's Helm chart makes of docker/helm/values.yaml, as far as dagster-k8s reads it.

The chart itself is in no package registry: names and places are those of its templates, version
1.13.27, and are checked by the programs that read the results.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from contextcliff_dagster_tests.project.deployment.files import HELM

VALUES: dict[str, Any] = yaml.safe_load((HELM / "values.yaml").read_text("utf-8"))
RESOURCES: list[dict[str, Any]] = list(
    yaml.safe_load_all((HELM / "resources.yaml").read_text("utf-8"))
)
((CODE),) = VALUES["dagster-user-deployments"]["deployments"]
IMAGE = f"{CODE['image']['repository']}:{CODE['image']['tag']}"
RELEASE = NAMESPACE = "contextcliff"
USER_ENVIRONMENT = f"{RELEASE}-dagster-user-deployments-{CODE['name']}-user-env"


def container_context() -> dict[str, Any]:
    """What the code server passes on to runs and steps (its DAGSTER_CONTAINER_CONTEXT)."""
    return {
        "k8s": {
            "image_pull_policy": CODE["image"]["pullPolicy"],
            "env_config_maps": [USER_ENVIRONMENT],
            "env_secrets": [secret["name"] for secret in CODE["envSecrets"]],
            "volume_mounts": CODE["volumeMounts"],
            "volumes": CODE["volumes"],
            "namespace": NAMESPACE,
            "service_account_name": f"{RELEASE}-dagster-user-deployments-user-deployments",
            "run_k8s_config": {"pod_spec_config": {"automount_service_account_token": True}},
        }
    }


def instance(kubeconfig: Path) -> dict[str, Any]:
    """The chart's dagster.yaml without its storages, for a cluster that is reached from outside.

    A copy: tests change it.
    """
    values = deepcopy(VALUES)
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    run_config = launcher["runK8sConfig"]
    logs = values["computeLogManager"]["config"]["customComputeLogManager"]
    daemon = values["dagsterDaemon"]
    retries, monitoring = daemon["runRetries"], daemon["runMonitoring"]
    return {
        "run_launcher": {
            "module": "dagster_k8s",
            "class": "K8sRunLauncher",
            "config": {
                "load_incluster_config": False,
                "kubeconfig_file": str(kubeconfig),
                "job_namespace": NAMESPACE,
                "image_pull_policy": launcher["imagePullPolicy"],
                "service_account_name": f"{RELEASE}-dagster",
                "dagster_home": values["global"]["dagsterHome"],
                "instance_config_map": f"{RELEASE}-dagster-instance",
                "postgres_password_secret": values["global"]["postgresqlSecretName"],
                "run_k8s_config": {
                    "pod_spec_config": run_config["podSpecConfig"],
                    "job_spec_config": run_config["jobSpecConfig"],
                },
            },
        },
        "run_coordinator": daemon["runCoordinator"]["config"]["customRunCoordinator"],
        "scheduler": values["scheduler"]["config"]["customScheduler"],
        "compute_logs": logs,
        "run_monitoring": {
            "enabled": monitoring["enabled"],
            "start_timeout_seconds": monitoring["startTimeoutSeconds"],
            "max_resume_run_attempts": monitoring["maxResumeRunAttempts"],
            "poll_interval_seconds": monitoring["pollIntervalSeconds"],
            "free_slots_after_run_end_seconds": monitoring["freeSlotsAfterRunEndSeconds"],
        },
        "run_retries": {
            "enabled": retries["enabled"],
            "max_retries": retries["maxRetries"],
            "retry_on_asset_or_op_failure": retries["retryOnAssetOrOpFailure"],
        },
        "telemetry": values["telemetry"],
        **values["additionalInstanceConfig"],
    }


def code_deployment() -> dict[str, Any]:
    """The Deployment of the code location."""
    labels = {"deployment": CODE["name"]}
    container = {
        "name": "dagster-user-deployments",
        "image": IMAGE,
        "imagePullPolicy": CODE["image"]["pullPolicy"],
        "securityContext": CODE["securityContext"],
        "args": code_server_command(),
        "envFrom": [
            {"configMapRef": {"name": USER_ENVIRONMENT}},
            *({"secretRef": secret} for secret in CODE["envSecrets"]),
        ],
        "volumeMounts": CODE["volumeMounts"],
    }
    pod = {
        "securityContext": CODE["podSecurityContext"],
        "containers": [container],
        "volumes": CODE["volumes"],
    }
    return _deployment("contextcliff-code", labels, pod)


def webserver_deployment() -> dict[str, Any]:
    """The Deployment of the webserver, as far as our values reach."""
    web = VALUES["dagsterWebserver"]
    container = {
        "name": "dagster",
        "image": f"{web['image']['repository']}:{web['image']['tag']}",
        "imagePullPolicy": web["image"]["pullPolicy"],
        "ports": [{"name": "http", "containerPort": web["service"]["port"], "protocol": "TCP"}],
        "readinessProbe": web["readinessProbe"],
        "volumeMounts": web["volumeMounts"],
    }
    pod = {
        "securityContext": web["podSecurityContext"],
        "containers": [container],
        "volumes": web["volumes"],
    }
    return _deployment("contextcliff-webserver", {"component": "webserver"}, pod)


def _deployment(name: str, labels: dict[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def code_server_command(port: int = CODE["port"]) -> list[str]:
    """How the chart starts the code location."""
    return [
        *("dagster", "code-server", "start", "-h", "0.0.0.0", "-p", str(port)),
        *CODE["codeServerArgs"],
    ]

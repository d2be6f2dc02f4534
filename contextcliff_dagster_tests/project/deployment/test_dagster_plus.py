"""docker/dagster_cloud.yaml by Dagster's own loaders, and what its page says beside it."""

from __future__ import annotations

import copy
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster_tests.project.deployment.files import DOCKER
from contextcliff_dagster_tests.support.paths import CHECKOUT

FILE = DOCKER / "dagster_cloud.yaml"
PAGE = (CHECKOUT / "docs" / "dagster-plus.md").read_text(encoding="utf-8")


def locations(file: Path) -> list[Any]:
    loader = pytest.importorskip("dagster_cloud_cli.config.loader")
    config = loader.DagsterCloudLocationsConfigLoader.load_from_template(str(file), {})
    return [location.model_dump() for location in config.locations]


def test_dagsters_loader_takes_the_location_and_no_other_key(tmp_path: Path) -> None:
    (location,) = locations(FILE)
    module = location["code_source"]["module_name"]
    assert importlib.import_module(module).defs
    assert location["location_name"] == "contextcliff_dagster"
    wrong = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    wrong["locations"][0]["images"] = "x"
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong), encoding="utf-8")
    with pytest.raises(ValueError, match="images"):
        locations(tmp_path / "wrong.yaml")


def test_its_pods_are_those_of_the_helm_chart() -> None:
    context = pytest.importorskip("dagster_k8s.container_context").K8sContainerContext
    given = yaml.safe_load(FILE.read_text(encoding="utf-8"))["locations"][0]["container_context"]
    made = context.create_from_config(given)
    helm = yaml.safe_load((DOCKER / "helm" / "values.yaml").read_text(encoding="utf-8"))
    (ours,) = helm["dagster-user-deployments"]["deployments"]
    run = made.run_k8s_config
    assert dict(pair.split("=") for pair in given["k8s"]["env_vars"]) == ours["env"]
    assert [{"name": name} for name in given["k8s"]["env_secrets"]] == ours["envSecrets"]
    security = run.pod_spec_config["security_context"]
    assert security == made.server_k8s_config.pod_spec_config["security_context"]
    assert security == {
        re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", name): value
        for name, value in ours["podSecurityContext"].items()
    }
    mounts = [(one["name"], one["mount_path"]) for one in run.container_config["volume_mounts"]]
    assert mounts == [(one["name"], one["mountPath"]) for one in ours["volumeMounts"][:1]]
    (volume,) = run.pod_spec_config["volumes"]
    claim = ours["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert volume["persistent_volume_claim"]["claim_name"] == claim
    wrong = copy.deepcopy(given)
    wrong["k8s"]["volume_mount"] = []
    with pytest.raises(Exception, match="volume_mount"):
        context.create_from_config(wrong)


def test_the_settings_on_the_page_are_those_of_the_containers() -> None:
    block = re.search(r"(?m)^    concurrency:\n(?:    .*\n)+", PAGE)
    assert block is not None
    shown = yaml.safe_load(re.sub("(?m)^    ", "", block[0]))
    ours = yaml.safe_load((DOCKER / "dagster.yaml").read_text(encoding="utf-8"))
    assert shown["concurrency"] == ours["concurrency"]
    for section in ("run_monitoring", "run_retries"):
        for name, value in shown[section].items():
            if name != "start_timeout_seconds":  # a node with GPUs may have to be started
                assert value == ours[section][name], (section, name)


def test_the_image_of_the_page_is_that_of_the_file() -> None:
    (location,) = yaml.safe_load(FILE.read_text(encoding="utf-8"))["locations"]
    assert f"-t {location['image']} " in PAGE
    assert "never deployed" in PAGE

"""The files of docker/, for their tests."""

from __future__ import annotations

from typing import Any

import yaml

from contextcliff_dagster_tests.support.paths import CHECKOUT

DOCKER = CHECKOUT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
HELM = DOCKER / "helm"


def environment_of(service: str) -> dict[str, str]:
    found: dict[str, str] = COMPOSE["services"][service]["environment"]
    return {k: v for k, v in found.items() if not v.startswith("${")}

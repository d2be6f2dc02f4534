"""Backups of docker/: a real store and PostgreSQL, restored by the page's own commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies.files import is_retired
from contextcliff_dagster_tests.project.deployment.files import DOCKER
from contextcliff_dagster_tests.support.postgres import running_postgres
from contextcliff_dagster_tests.support.requirements import postgres_bin, require
from contextcliff_dagster_tests.support.terminal import call

PAGE = (DOCKER / "README.md").read_text("utf-8")
CLIENT = """#!/bin/sh
# Stands in for `docker compose -f FILE exec -T SERVICE COMMAND`: runs it here, on $STORE.
[ "$1 $2" = "compose -f" ] && [ -e "$3" ] || exit 8
case "$4" in up|restart) exit;; exec) ;; *) exit 7;; esac
shift 5
service=$1; shift
for word; do shift; set -- "$@" "$(printf %s "$word" | sed "s#/data/store#$STORE#g")"; done
case "$service" in code|postgres) exec "$@";; *) exit 9;; esac
"""
DATABASE = """#!/bin/sh
# Stands in for pg_dump, and is cut short.
printf half
exit 1
"""


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def here(folder: Path, store: Path, *programs: Path) -> dict[str, str]:
    """The environment in which ``docker compose exec`` works on ``store``."""
    path = (folder, Path(sys.executable).parent, *programs, os.environ["PATH"])
    return os.environ | {
        "PATH": os.pathsep.join(map(str, path)),
        "CONTEXTCLIFF_HOME": str(store),
        "STORE": str(store),
    }


def backup(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DOCKER / "backup.sh", folder],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def restoring() -> list[str]:
    """The commands of the page's section."""
    section = PAGE.partition("\n## Backups\n")[2].partition("\n## ")[0]
    return re.findall(r"^    (docker .*)$", section, re.MULTILINE)


def restore(folder: Path, environment: dict[str, str], without: str = "nothing") -> None:
    """All of them, with the files of the only backup in ``folder``."""
    (ledger,) = folder.glob("ledger-*.db")
    time = ledger.stem.removeprefix("ledger-")
    for command in restoring():
        if f"exec -T {without} " not in command:
            line = command.replace("FOLDER/", f"{folder}/").replace("TIME", time)
            subprocess.run(["sh", "-c", line], cwd=DOCKER.parent, env=environment, check=True)


def measured(folder: Path) -> tuple[Store, str, int]:
    """A store with a study made on the command line and what people have decided about it.

    Its source is gone. Returns the store, the study's name and how many calls it made.
    """
    data, store = folder / "questions.jsonl", Store(folder / "store")
    with data.open("w", encoding="utf-8") as table:
        for i in range(12):
            lines = [f"account {j} balance {i * 100 + j}" for j in range(3 + i % 4 * 3)]
            row = {"document": "\n".join(lines), "question": "Balance of account 2?"}
            table.write(json.dumps({**row, "answer": str(i * 100 + 2)}) + "\n")
    options = ("--data", str(data), "--model", "reference-short", "--store", str(store.root))
    ended = call("profile", *options)
    assert ended.code == 0, ended.err
    data.unlink()
    (definition,) = (store.root / "_studies").glob("*.yaml")
    name = definition.stem
    for command in (("baseline", "set"), ("studies", "retire")):
        ended = call(*command, name, "--store", str(store.root))
        assert ended.code == 0, ended.err
    study = store.study_dir(name)
    for file in (
        definition.with_suffix(".imported"),
        store.calibration_file(name),
        study / "alerts" / "told.json",
        store.root / "_alerts" / "told.json",
        study / "made_documents" / "text" / "p000.parquet",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    (study / "manifest" / ".audit.json.0f.tmp").write_text("half")
    with Ledger.open(store.ledger) as ledger:
        return store, name, int(ledger.stats()["answers"])


KEPT = {
    *("store.json", "_studies/{}.yaml", "_studies/{}.imported", "_alerts/told.json"),
    *("{}/baseline.json", "{}/retired.json", "{}/calibration.json", "{}/alerts/told.json"),
    *("{}/manifest/manifest.json", "{}/manifest/audit.json", "{}/manifest/documents.parquet"),
    *("{}/manifest/examples.parquet", "{}/made_documents/text/p000.parquet"),
}


@pytest.mark.postgres
def test_the_commands_of_the_page_restore_what_it_promises(tmp_path: Path) -> None:
    require("postgres")
    programs = postgres_bin()
    assert programs is not None
    store, study, calls = measured(tmp_path)
    program(tmp_path, "docker", CLIENT)
    elsewhere = Store(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    with running_postgres("dagster", "postgres") as server:
        server.execute("CREATE TABLE runs (a int)")
        server.execute("INSERT INTO runs VALUES (7)")
        reached = {"PGHOST": server.host, "PGPORT": str(server.port)}
        reached |= {"PGPASSWORD": server.password}
        done = backup(tmp_path / "kept", here(tmp_path, store.root, programs) | reached)
        assert done.returncode == 0, done.stderr
        files = sorted(map(Path, done.stdout.split()))
        assert sorted((tmp_path / "kept").iterdir()) == files
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
        assert not list(store.root.glob("backup-*"))
        server.execute("UPDATE runs SET a = 8")
        restore(tmp_path / "kept", here(tmp_path, elsewhere.root, programs) | reached)
        assert server.execute("SELECT a FROM runs") == [(7,)]

    restored = {path for path in elsewhere.root.rglob("*") if path.is_file()}
    expected = {elsewhere.root / name.format(study) for name in KEPT}
    ledger = set(elsewhere.root.glob("state.db*")) | set(elsewhere.root.glob("state.db*/*"))
    assert restored - ledger == expected
    assert (elsewhere.root / "state.db").stat().st_mode & 0o777 == 0o600
    for file in expected:
        original = store.root / file.relative_to(elsewhere.root)
        assert file.read_bytes() == original.read_bytes()
        assert file.stat().st_mode == original.stat().st_mode
    assert is_retired(elsewhere, study)
    pinned = call("baseline", "show", study, "--store", str(elsewhere.root))
    assert pinned.code == 0, pinned.err
    # The source is gone, and no call is made; the report says the same as before.
    again = call("profile", study, "--store", str(elsewhere.root))
    assert again.code == 0, again.err
    with Ledger.open(elsewhere.ledger) as opened:
        assert opened.stats()["answers"] == opened.stats()["attempts"] == calls
    (before,) = store.study_dir(study).glob("profiles/*/*/cliffs.json")
    after = elsewhere.root / before.relative_to(store.root)
    found, was = (json.loads(file.read_bytes()) for file in (after, before))
    assert found == was | {"created_at": found["created_at"]}


def test_a_backup_that_is_cut_short_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    Ledger.open(store / "state.db").close()
    (store / "mine").mkdir()
    (store / "mine" / "retired.json").write_text("{}")
    program(tmp_path, "docker", CLIENT)
    program(tmp_path, "pg_dump", DATABASE)
    done = backup(tmp_path / "kept", here(tmp_path, store))
    assert done.returncode != 0
    left = sorted(path.name.partition("-")[0] for path in (tmp_path / "kept").iterdir())
    assert left == ["ledger", "store"]
    assert len(done.stdout.split()) == 2
    (small,) = (tmp_path / "kept").glob("store-*.tar.gz")
    with tarfile.open(small) as archive:
        assert archive.getnames() == ["./mine/retired.json"]
    # A ledger that is there is not replaced by one of a backup.
    with pytest.raises(subprocess.CalledProcessError):
        restore(tmp_path / "kept", here(tmp_path, store), without="postgres")


def test_a_store_without_such_files_has_a_backup(tmp_path: Path) -> None:
    """The first one may be made before anything was measured."""
    Ledger.open(tmp_path / "store" / "state.db").close()
    program(tmp_path, "docker", CLIENT)
    program(tmp_path, "pg_dump", "#!/bin/sh\necho whole\n")
    done = backup(tmp_path / "kept", here(tmp_path, tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    restore(tmp_path / "kept", here(tmp_path, empty), without="postgres")
    assert call("ledger", "verify", "--store", str(empty)).code == 0


def test_every_command_of_the_page_names_the_compose_file() -> None:
    """They are all given in the checkout, where there is no compose file."""
    commands = re.findall(r"docker compose\s+(\S+)\s+(\S+)", PAGE)
    assert len(commands) > 10
    assert set(commands) == {("-f", "docker/compose.yaml")}

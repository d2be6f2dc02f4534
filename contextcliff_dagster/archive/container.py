"""The file itself: a zip of known members, each checked against its hash."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.schema import LEDGER_VERSION
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, FORMAT_VERSION = "contextcliff-study", 1
HEAD = "archive.json"


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def json_bytes(value: object) -> bytes:
    """Canonical JSON for people: sorted keys, indented, UTF-8."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as a Parquet file; the same rows give the same bytes."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def parquet_table(data: bytes, file: Path) -> pa.Table:
    """The table in ``data``; raises StoreError where it is no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data))
    except pa.ArrowException as error:
        raise StoreError(
            f"{file} is damaged: one of its tables cannot be read; get a fresh copy."
        ) from error


def write(file: Path, head: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Write the archive all at once or not at all; its bytes.

    Raises:
        StoreError: the file cannot be written.
    """
    hashes = {name: sha256(data) for name, data in sorted(members.items())}
    marked = {"format": FORMAT, "format_version": FORMAT_VERSION, **head, "members": hashes}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in [(HEAD, json_bytes(marked)), *sorted(members.items())]:
            # No clock and no file mode in it: the same store gives the same bytes.
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            packed = name.endswith(".parquet")
            info.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    write_atomic(file, buffer.getvalue())
    return buffer.getvalue()


def read(
    file: Path, names: Collection[str], together: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, bytes], bytes]:
    """Return head, members and bytes of an archive that holds exactly ``names``, all sound.

    ``together``: further members that it may hold, all of them or none.

    Nothing is ever extracted by a name that the file brings: no path in it can reach outside.

    Raises:
        StoreError: missing, no archive of a study, damaged, or of a newer version.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StoreError(f"Cannot read {file} ({error.strerror}); check the path.") from error
    with _damage(file), zipfile.ZipFile(io.BytesIO(data)) as archive:
        head = json.loads(archive.read(HEAD))
        if head.get("format") != FORMAT:
            raise StoreError(
                f"{file} is not an archive of a study; make one with `contextcliff export`."
            )
        if head["format_version"] > FORMAT_VERSION or head["versions"]["ledger"] > LEDGER_VERSION:
            raise StoreError(
                f"{file} was written by a newer version of contextcliff; upgrade this one."
            )
        there = archive.namelist()
        names = [*names, *(together if set(together) & set(there) else ())]
        wanted = {HEAD, *names}
        odd = sorted(set(there) ^ wanted) or sorted({n for n in there if there.count(n) > 1})
        members = {} if odd else {name: archive.read(name) for name in sorted(names)}
        odd += [name for name, body in members.items() if sha256(body) != head["members"].get(name)]
        if odd:
            raise StoreError(
                f"{file} is damaged or was tampered with ({odd[0]!r}); get a fresh copy."
            )
    return head, members, data


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """What a mangled zip makes the library raise, as our sentence."""
    try:
        yield
    except (
        *(zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, OSError),
        *(KeyError, ValueError, TypeError, AttributeError, EOFError),
    ) as error:
        raise StoreError(
            f"{file} is not an archive of a study, or is damaged; get a fresh copy."
        ) from error

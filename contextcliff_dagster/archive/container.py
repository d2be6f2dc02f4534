"""The archive file: a zip of known members, and the checks that they must pass."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    MANIFEST_EXAMPLES,
    ContextCliffError,
    LengthBin,
    StoreError,
)
from contextcliff_dagster.corpora.materialize import CorpusSummary, row_example
from contextcliff_dagster.inference.ledger.schema import LEDGER_VERSION
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.sampling.length_map import LengthMapSummary
from contextcliff_dagster.sampling.manifest import (
    DOCUMENTS_FILE,
    EXAMPLES_FILE,
    HEAD,
    MANIFEST_FILES,
    Manifest,
    load_manifest,
)
from contextcliff_dagster.scoring.parse import load_json
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, FORMAT_VERSION = "contextcliff-study", 2
ARCHIVE_HEAD = "archive.json"

RATIO, SMALL_BYTES, MOST_BYTES = 100, 64 << 20, 16 << 30
"""Most bytes an archive may unpack to: the larger of `SMALL_BYTES` and `RATIO` times its size, but
never more than `MOST_BYTES`. Exports unpack to about ten times their size."""
_DEPTH = 64
_ROWS_AT_ONCE = 1 << 14


def sha256(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as a hex digest."""
    return hashlib.sha256(data).hexdigest()


def json_bytes(value: object) -> bytes:
    """Return ``value`` as readable canonical JSON: sorted keys, indented, UTF-8."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def json_object(data: bytes | str) -> dict[str, Any]:
    """Parse ``data`` as a JSON object and return it.

    Raises:
        ValueError: not a JSON object, or one with a repeated name, NaN, or over `_DEPTH` levels.
    """
    value = load_json(data, object_pairs_hook=_unique_object)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    level: list[Any] = [value]
    for _ in range(_DEPTH):
        level = [
            inner
            for node in level
            if isinstance(node, dict | list)
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
    if level:
        raise ValueError("nested too deeply")
    return value


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name occurs twice")
    return value


def damaged(file: Path, what: str) -> StoreError:
    """Return the error for an invalid archive ``file``; ``what``: the reason, as a clause."""
    return StoreError(f"{file} is damaged or was tampered with: {what}; get a fresh copy.")


def parquet_bytes(table: pa.Table) -> bytes:
    """Return ``table`` as the bytes of a Parquet file; the same rows give the same bytes."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


class Allowance:
    """The number of bytes that the tables of one archive may still unpack to."""

    def __init__(self, file: Path, packed_bytes: int) -> None:
        self.file = file
        self._left = most_bytes(packed_bytes)

    def take(self, number: int) -> None:
        """Use up ``number`` bytes; raise StoreError if too few are left."""
        self._left -= number
        if self._left < 0:
            raise _too_large(self.file)


def most_bytes(packed_bytes: int) -> int:
    """Return the most bytes that an archive of this size may unpack to."""
    return min(max(SMALL_BYTES, RATIO * packed_bytes), MOST_BYTES)


def _too_large(file: Path) -> StoreError:
    return damaged(file, f"it would unpack to more than {RATIO} times its size")


def parquet_table(
    data: bytes, name: str, schema: pa.Schema, allowance: Allowance, needed: Collection[str] = ()
) -> pa.Table:
    """Return the table ``name`` in ``data``, with every cell validated.

    Args:
        schema: allowed columns, each of exactly this type.
        needed: required columns; all if empty.

    Raises:
        StoreError: not Parquet, other columns, text that is not UTF-8, or too many bytes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, types = allowance.file, dict(zip(schema.names, schema.types, strict=True))
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as plain:
            given, groups = plain.schema_arrow, plain.metadata
            _require_columns(file, name, given, types, needed or schema.names)
            allowance.take(
                sum(groups.row_group(n).total_byte_size for n in range(groups.num_row_groups))
            )
        texts = [field.name for field in given if field.type in (pa.string(), pa.binary())]
        # Repeated texts stay one text each until their total size is known.
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts) as packed:
            for batch in packed.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                allowance.take(sum(map(_plain_bytes, batch.columns)))
        with pq.ParquetFile(pa.BufferReader(data)) as plain:
            table = plain.read(use_threads=False)
            table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise damaged(file, f"its table {name!r} cannot be read") from error
    return table


def _require_columns(
    file: Path, name: str, given: pa.Schema, types: Mapping[str, Any], needed: Collection[str]
) -> None:
    names: list[str] = given.names
    strange = [field.name for field in given if field.type != types.get(field.name)]
    strange += [column for column, n in Counter(names).items() if n > 1]
    strange += sorted(set(needed) - set(names))
    if strange:
        raise damaged(
            file, f"column {strange[0][:80]!r} of its table {name!r} is not as it should be"
        )


def _plain_bytes(column: pa.Array) -> int:
    """Return the column's bytes with every text written out, plus eight per cell."""
    import pyarrow as pa
    import pyarrow.compute as pc

    size = 8 * len(column)
    if isinstance(column, pa.DictionaryArray):
        lengths = pc.binary_length(column.dictionary).cast(pa.int64())
        size += pc.sum(lengths.take(column.indices)).as_py() or 0
    return size


def write(file: Path, head: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Write the archive atomically; return its bytes.

    Raises:
        StoreError: the file cannot be written.
    """
    hashes = {name: sha256(data) for name, data in sorted(members.items())}
    marked = {"format": FORMAT, "format_version": FORMAT_VERSION, **head, "members": hashes}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in [(ARCHIVE_HEAD, json_bytes(marked)), *sorted(members.items())]:
            # A fixed time and file mode, so that the same store gives the same bytes.
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            packed = name.endswith(".parquet")
            info.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    write_atomic(file, buffer.getvalue())
    return buffer.getvalue()


def read(
    file: Path, names: Collection[str], *together: Collection[str]
) -> tuple[dict[str, Any], dict[str, bytes], bytes]:
    """Return head, members and bytes of an archive with exactly the members ``names``, verified.

    ``together``: collections of optional members; of each, all must be present or none.

    Nothing is extracted under a name from the file, so no path in it can escape.

    Raises:
        StoreError: missing, not an archive of a study, damaged, too large, or from a newer version.
    """
    try:
        if not file.is_file() and file.exists():
            raise StoreError(f"{file} is not a regular file; give the archive itself.")
        if (size := file.stat().st_size) > MOST_BYTES:
            raise StoreError(f"{file} has {size:,} bytes, too many for an archive of a study.")
        data = file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"Cannot read {file} ({reason}); check the path.") from error
    with _damage(file), zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        if min(info.header_offset for info in archive.infolist()):
            raise damaged(file, "other bytes come before it")
        _require_bounded(file, archive.infolist(), len(data))
        head = json_object(_member(archive, infos[ARCHIVE_HEAD]))
        if head.get("format") != FORMAT:
            raise StoreError(
                f"{file} is not an archive of a study; make one with `contextcliff export`."
            )
        versions = head["format_version"], head["versions"]["ledger"]
        if not all(type(version) is int and version > 0 for version in versions):
            raise ValueError("versions")
        if versions[0] > FORMAT_VERSION or versions[1] > LEDGER_VERSION:
            raise StoreError(
                f"{file} was written by a newer version of contextcliff; upgrade this one."
            )
        names = [*names, *(member for of in together if set(of) & infos.keys() for member in of)]
        counts = Counter(info.filename for info in archive.infolist())
        odd = sorted(counts.keys() ^ {ARCHIVE_HEAD, *names}) or [
            n for n, k in counts.items() if k > 1
        ]
        members = {} if odd else {name: _member(archive, infos[name]) for name in sorted(names)}
        odd += [name for name, body in members.items() if sha256(body) != head["members"].get(name)]
        if odd:
            raise StoreError(
                f"{file} is damaged or was tampered with ({odd[0][:80]!r}); get a fresh copy."
            )
    return head, members, data


def _require_bounded(file: Path, infos: Iterable[zipfile.ZipInfo], packed_bytes: int) -> None:
    total = 0
    for info in infos:
        mode = info.external_attr >> 16
        if info.is_dir() or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
            raise damaged(file, f"{info.filename[:80]!r} is not a regular file")
        # With other methods, Python's library unpacks everything before it checks a limit.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise damaged(file, f"{info.filename[:80]!r} is packed by an unknown method")
        total += info.file_size
    if total > most_bytes(packed_bytes):
        raise _too_large(file)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as member:
        # Without a limit, everything is unpacked, even if it is larger than declared.
        body = member.read(info.file_size + 1)
    if len(body) != info.file_size:
        raise zipfile.BadZipFile("shorter than declared")
    return body


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """Convert any error that the library raises on a damaged zip into one StoreError."""
    try:
        yield
    except (
        *(zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, OSError),
        *(LookupError, ValueError, TypeError, AttributeError, EOFError, zlib.error),
    ) as error:
        raise StoreError(
            f"{file} is not an archive of a study, or is damaged; get a fresh copy."
        ) from error


@contextmanager
def malformed(file: Path, member: str) -> Iterator[None]:
    """Convert errors caused by unexpected values in ``member`` into one StoreError."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise damaged(file, f"{member!r} is not as it should be") from error


SAMPLE_MEMBERS = (f"manifest/{HEAD}", f"manifest/{DOCUMENTS_FILE}")
"""Members with the sample; absent if a study's experiments make their own documents."""
EXAMPLES_MEMBER = f"manifest/{EXAMPLES_FILE}"
"""Member with the sample's questions; absent in archives of earlier versions, too."""


def check_head(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of ``head`` after checking study, campaigns and the sample's hash.

    Raises:
        ValueError, LookupError, TypeError: one of them is missing or malformed.
    """
    campaigns, sample = head["campaigns"], head["manifest_sha256"]
    if not isinstance(campaigns, list) or not all(isinstance(name, str) for name in campaigns):
        raise TypeError("campaigns")
    if not isinstance(head["study"], str) or not isinstance(sample, str | None):
        raise TypeError("study")
    if not campaigns or not all(0 < len(name) <= 200 for name in campaigns):
        raise ValueError("campaigns")
    return dict(head)


def sound_sample(
    members: Mapping[str, bytes], sha256: str | None, allowance: Allowance
) -> tuple[Manifest | None, dict[str, str]]:
    """Return the archive's manifest and its texts by document id, verified outside the store.

    Without a sample, returns None and an empty dict.

    Raises:
        StoreError: the sample is not valid, or not the one named in the archive's head.
    """
    file, (manifest_name, documents_name) = allowance.file, SAMPLE_MEMBERS
    if sha256 is None and documents_name not in members:
        return None, {}
    schema = DOCUMENTS.arrow_schema()
    table = parquet_table(members[documents_name], documents_name, schema, allowance)
    texts = check_texts(
        file, zip(table["document_id"].to_pylist(), table["text"].to_pylist(), strict=True)
    )
    with malformed(file, manifest_name):
        json_object(members[manifest_name])
    if EXAMPLES_MEMBER in members:
        schema = MANIFEST_EXAMPLES.arrow_schema()
        parquet_table(members[EXAMPLES_MEMBER], EXAMPLES_MEMBER, schema, allowance)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for short in MANIFEST_FILES:
                if (member := f"manifest/{short}") in members:
                    (folder / short).write_bytes(members[member])
            manifest = load_manifest(folder)
    except ContextCliffError as error:
        raise damaged(file, "its sample is not valid") from error
    computed = manifest.computed_sha256() if EXAMPLES_MEMBER in members else manifest.sha256
    if not computed == manifest.sha256 == sha256:
        raise damaged(file, "its sample is not the one named in its head")
    with malformed(file, manifest_name):
        _check_manifest(manifest, texts)
    return manifest, texts


def _check_manifest(manifest: Manifest, texts: Mapping[str, str]) -> None:
    from pydantic import TypeAdapter

    header, bins = manifest.header, [length_bin.bin for length_bin in manifest.bins]
    for kind, values in (
        (CorpusSummary, [header["corpus"]]),
        (LengthMapSummary, [header["lengths"]]),
        (LengthBin, map(asdict, manifest.bins)),
    ):
        for value in values:
            TypeAdapter(kind).validate_json(json.dumps(asdict(kind(**value))), strict=True)
    rows = manifest.examples.to_pylist()
    for row in rows:
        row_example(row)
        if row["metadata"]:
            json_object(row["metadata"])
    listed = header["corpus"].get("account", {}).get("list") or ""
    sound = (
        Path(listed).name == listed,
        len(set(bins)) == len(bins),
        {row["bin"] for row in rows} <= set(bins),
        {row["document_id"] for row in rows} <= texts.keys(),
        len({row["example_id"] for row in rows}) == len(rows),
        all(row["length_tokens"] >= 0 for row in rows),
    )
    if not all(sound):
        raise ValueError("bins, examples and documents do not fit")


def read_description(data: bytes, file: Path) -> dict[str, Any]:
    """Return the archive's description of the study: its keys, prompt texts and recipe.

    Raises:
        StoreError: a part is missing, or the recipe does not match its hash.
    """
    with malformed(file, "study.json"):
        described = json_object(data)
        texts = described["prompt_texts"]
        if not isinstance(described["study"], dict) or not isinstance(texts, dict):
            raise TypeError("study")
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError("prompt_texts")
        try:
            recipe = Recipe.from_dict(described["recipe"])
        except ContextCliffError as error:
            raise ValueError("recipe") from error
        if recipe.hash != described["recipe_hash"]:
            raise ValueError("recipe_hash")
    return described


def check_texts(file: Path, texts: Iterable[tuple[str | None, str | None]]) -> dict[str, str]:
    """Return document id -> text for the archive's sample.

    Raises:
        StoreError: a text does not match its id, is missing, or occurs twice.
    """
    checked: dict[str, str] = {}
    for document_id, text in texts:
        is_new = text is not None and document_id not in checked
        if not is_new or sha256(str(text).encode()) != document_id:
            raise damaged(file, "a document of its sample does not match its id")
        checked[str(document_id)] = str(text)
    return checked

"""Tables and logs as bytes, unpacked where their ending says that they are packed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.user_files import require_file

if TYPE_CHECKING:
    import pyarrow as pa

RATIO, SMALL_BYTES = 200, 256 << 20
"""A packed file may unpack to `SMALL_BYTES`, or to `RATIO` times its own size: results with their
prompts unpack to 3 to 30 times it."""
_PIECE = 1 << 20


def opened(path: Path) -> pa.NativeFile:
    """The file, opened for reading.

    Raises:
        OSError: it is no regular file, cannot be opened or cannot be unpacked.
        ScoreFileError: it unpacks to more than any table of results would.
    """
    require_file(path)
    if _is_packed(path):
        state = path.stat()
        _require_bounded(path, state.st_size, state.st_mtime_ns)
    return _stream(path)


def _stream(path: Path) -> pa.NativeFile:
    import pyarrow as pa

    return pa.input_stream(str(path), compression="detect")


def _is_packed(path: Path) -> bool:
    import pyarrow as pa

    try:
        return pa.Codec.detect(str(path)) is not None
    except (ValueError, TypeError):
        return False


@lru_cache(maxsize=64)  # a file is opened several times: to recognise it, for its header, for all
def _require_bounded(path: Path, size: int, mtime_ns: int) -> None:
    most = max(SMALL_BYTES, RATIO * size)
    unpacked = 0
    with _stream(path) as file:
        while piece := file.read(_PIECE):
            unpacked += len(piece)
            if unpacked > most:
                raise ScoreFileError(
                    f"{path} unpacks to more than {most >> 20:,} MB, {most // max(1, size):,} "
                    "times its size, as no table of results does; unpack it if it is sound."
                )

"""Members of ZIP archives, of which no more is unpacked than may be."""

from __future__ import annotations

import zipfile
import zlib
from io import BytesIO

from contextcliff_dagster.corpora.extraction.results import Limits, RefusedError


class Packed:
    """A ZIP archive in memory. Only what is asked for is unpacked, and only up to the limit.

    Raises:
        RefusedError: it is no readable archive.
    """

    def __init__(self, data: bytes, limits: Limits) -> None:
        try:
            self._archive = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
            raise RefusedError("is a broken ZIP archive") from error
        self._left = self._most = int(limits.unpacked_mb * 1e6)
        self.names = set(self._archive.namelist())

    def member(self, name: str) -> bytes:
        """All bytes of a member.

        Raises:
            RefusedError: it is not there, is damaged or encrypted, or unpacks to too much.
        """
        try:
            with self._archive.open(name) as member:
                data = member.read(self._left + 1)
        except KeyError as error:
            raise RefusedError(f"is incomplete: {name} is missing in it") from error
        except RuntimeError as error:  # zipfile's way to say that it wants a password
            raise RefusedError("is encrypted") from error
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
            raise RefusedError(f"is damaged: {name} in it cannot be unpacked") from error
        if len(data) > self._left:
            raise RefusedError(f"unpacks to more than the {self._most / 1e6:,g} MB allowed")
        self._left -= len(data)
        return data

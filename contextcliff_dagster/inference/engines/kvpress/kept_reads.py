"""Storage for texts that a model has read, shared across questions, budgets, policies and workers.

Texts are kept in memory, and in files that other workers of the same model can use. Each file is
written atomically, and a damaged file is ignored. Disk space is limited: the least recently used
file is deleted first, but never one that this worker has used; otherwise a run over more texts than
fit would delete each of them before it is needed again.

This runs in the worker's environment: torch, safetensors, and the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from contextcliff_dagster.inference.engines.kvpress.pressing import SCORED_WHILE_READING, Read
from contextcliff_dagster.private_files import file_mode, make_folder

FREE_BYTES = 1 << 30
"""Disk space that is always left free for other programs."""
_ABANDONED_SECONDS = 3600


class KeptReads:
    """Store of the documents that one model has read.

    Parameters:
        folder: folder for the files; None: keep no files.
        model: settings that decide a text's entries: weights, types, versions, device.
        memory_bytes, disk_bytes: size limits; memory always keeps at least one text.
    """

    def __init__(
        self, folder: str | None, model: Mapping[str, Any], memory_bytes: int, disk_bytes: int
    ) -> None:
        self._folder = Path(folder) if folder and disk_bytes else None
        self._model = json.dumps(model, sort_keys=True)
        self._memory_bytes, self._disk_bytes = memory_bytes, disk_bytes
        self._kept: OrderedDict[str, Read] = OrderedDict()
        self._unwritten: list[str] = []
        self._used: set[str] = set()
        self.problem: str | None = None

    def find(self, ids: list[int], policy: str, device: torch.device) -> Read | None:
        """Return the stored entries of ``ids``, with the scores that ``policy`` needs."""
        key = self._key(ids)
        if key not in self._kept:
            read = self._load(key, device)
            if read is None or read.tokens != len(ids):
                return None
            self._hold(key, read)
        self._kept.move_to_end(key)
        read = self._kept[key]
        return read if policy not in SCORED_WHILE_READING or policy in read.scores else None

    def keep(self, ids: list[int], read: Read) -> None:
        """Hold ``read`` in memory; `write` saves it to disk later, when nobody waits."""
        key = self._key(ids)
        self._hold(key, read)
        self._unwritten.append(key)

    def write(self) -> None:
        """Write missing entries to disk; set ``problem`` to the reason if one cannot be saved."""
        unwritten, self._unwritten = self._unwritten, []
        for key in unwritten if self._folder else ():
            if key in self._kept:
                try:
                    self._save(key, self._kept[key])
                except OSError as error:
                    self.problem = f"{self._folder} cannot be written ({error.strerror or error})"

    def _hold(self, key: str, read: Read) -> None:
        self._kept[key] = read
        while len(self._kept) > 1 and sum(r.size_bytes for r in self._kept.values()) > (
            self._memory_bytes
        ):
            self._kept.popitem(last=False)

    def _key(self, ids: list[int]) -> str:
        return hashlib.sha256(json.dumps([self._model, ids]).encode()).hexdigest()

    def _load(self, key: str, device: torch.device) -> Read | None:
        if self._folder is None:
            return None
        file = self._folder / f"{key}.safetensors"
        try:
            with safe_open(file, "pt") as opened:
                about = json.loads(opened.metadata()["read"])
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            if _checksum(tensors) != about.pop("checksum"):
                raise ValueError("damaged")
            Read.of_tensors(tensors, about)
        except (OSError, MemoryError):  # missing, or not readable just now
            return None
        except Exception:  # whatever is wrong: delete it, and read the text again
            with suppress(OSError):
                file.unlink(missing_ok=True)
            return None
        read = Read.of_tensors({n: t.to(device) for n, t in tensors.items()}, about)
        with suppress(OSError):
            os.utime(file)
        self._used.add(file.name)
        return read

    def _save(self, key: str, read: Read) -> None:
        assert self._folder is not None
        make_folder(self._folder)
        if not self._make_room(read.size_bytes):
            return
        file = self._folder / f"{key}.safetensors"
        temporary = self._folder / f".{key}.{uuid.uuid4().hex}.tmp"
        tensors = {name: t.cpu().contiguous() for name, t in read.tensors().items()}
        about = {**read.about(), "checksum": _checksum(tensors)}
        try:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file_mode()))
            try:
                save_file(tensors, temporary, metadata={"read": json.dumps(about)})
            except Exception as error:  # safetensors has an error of its own for a full disk
                raise OSError(" ".join(str(error).split())[:200]) from error
            temporary.chmod(file_mode())
            temporary.replace(file)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._used.add(file.name)

    def _make_room(self, needed: int) -> bool:
        assert self._folder is not None
        now, files = time.time(), {}
        for file in self._folder.iterdir():
            with suppress(OSError):  # another worker has removed it
                status = file.stat()
                if file.suffix == ".safetensors":
                    files[file] = status.st_mtime, status.st_size
                elif file.suffix == ".tmp" and now - status.st_mtime > _ABANDONED_SECONDS:
                    file.unlink()
        taken = sum(size for _, size in files.values())
        others = sorted((f for f in files if f.name not in self._used), key=lambda f: files[f])
        free = shutil.disk_usage(self._folder).free - FREE_BYTES
        room = min(self._disk_bytes - taken, free)
        if room + sum(files[f][1] for f in others) < needed:
            allowed = f"{self._disk_bytes / (1 << 30):.2g} GiB"
            self.problem = (
                f"the disk of {self._folder} is nearly full"
                if free < self._disk_bytes - taken
                else f"they take more than the {allowed} that CONTEXTCLIFF_KV_READS_GIB allows"
            )
            return False
        for file in others:
            if room >= needed:
                break
            file.unlink(missing_ok=True)
            room += files[file][1]
        return True


def _checksum(tensors: Mapping[str, torch.Tensor]) -> int:
    checksum = 0
    for name in sorted(tensors):
        checksum = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy(), checksum)
    return checksum

"""The policy file of a running gateway, read again whenever it changes."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from contextcliff_dagster.policy import PolicyError, SafeContext, load_policies

log = logging.getLogger("contextcliff_dagster.gateway")


class PolicyFile:
    """Policies by model, as the file at ``path`` holds them now.

    A file that is broken or gone changes nothing: the policies that were read last stay, and a
    warning says why. Asking costs one look at the file's times.

    Raises:
        PolicyError: there is no usable policy to begin with.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen = self._signature()
        self._policies = _by_model(path)

    def policies(self) -> dict[str, SafeContext]:
        if self._signature() != self._seen:
            with self._lock:  # else a thread that read the older file might be the last to end
                self._read_again()
        return self._policies

    def _read_again(self) -> None:
        # Before reading: what is written meanwhile is then seen as another change.
        if (now := self._signature()) == self._seen:
            return
        try:
            self._policies = _by_model(self.path)
        except PolicyError as error:
            log.warning("The policies that were read before stay in force: %s", error)
        else:
            log.info("Read %s again: %s", self.path, ", ".join(self._policies))
        self._seen = now

    def _signature(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _by_model(path: Path) -> dict[str, SafeContext]:
    policies: dict[str, SafeContext] = {}
    for policy in load_policies(path):
        if (other := policies.setdefault(policy.model, policy)) is not policy:
            raise PolicyError(
                f"{path} holds two policies for {policy.model} (tasks {other.task} and "
                f"{policy.task}); keep one of them, or a gateway for each."
            )
    return policies

"""The policy file of a running gateway, read again whenever it changes."""

from __future__ import annotations

import logging
import os
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
        self._seen = self._signature()
        self._policies = _by_model(path)

    def policies(self) -> dict[str, SafeContext]:
        if (now := self._signature()) != self._seen:
            # Before reading: what is written meanwhile is then seen as another change.
            self._seen = now
            try:
                self._policies = _by_model(self.path)
            except PolicyError as error:
                log.warning("The policies that were read before stay in force: %s", error)
            else:
                log.info("Read %s again: %s", self.path, ", ".join(self._policies))
        return self._policies

    def _signature(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _by_model(path: Path) -> dict[str, SafeContext]:
    return {policy.model: policy for policy in load_policies(path)}

"""Whether a limit on the address space leaves room for what a command loads."""

from __future__ import annotations

import resource

from contextcliff_dagster.contracts import StoreError

_LEAST = 2_500_000_000


def require_address_space() -> None:
    """Refuse less than a run reserves: native libraries would end the process, or wait for ever.

    Raises:
        StoreError: ``ulimit -v`` leaves less.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST:
        raise StoreError(
            f"This process may use {limit / 1e9:.1f} GB of address space, and a run reserves up to "
            f"{_LEAST / 1e9:.1f} GB; raise the limit (ulimit -v)."
        )

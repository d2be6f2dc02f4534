"""Who holds the devices of this machine."""

from __future__ import annotations

from contextcliff_dagster.inference.devices.leases import _folder, _holder


def holders() -> dict[str, str]:
    """Device key -> holder, for each leased device."""
    paths = sorted(_folder().glob("*.device"))
    return {path.stem: holder for path in paths if (holder := _holder(path))}

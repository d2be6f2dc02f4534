"""The former address of `inference.devices.launch`, kept for scripts for one release."""

import warnings

from contextcliff_dagster.inference.devices.launch import main

if __name__ == "__main__":
    warnings.warn(
        "this is now `python -m contextcliff_dagster.inference.devices.launch`",
        DeprecationWarning,
        stacklevel=1,
    )
    main()

"""The former address of `inference.devices.launch`, kept for scripts for one release."""

from contextcliff_dagster.inference.devices.launch import main

if __name__ == "__main__":
    main()

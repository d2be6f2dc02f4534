"""Where steps run: the choice of executor, and the GPU executor.

Belongs here: executors, device tags, how many devices a run needs.
Does not belong here: the leases of devices (`inference.devices`).
"""

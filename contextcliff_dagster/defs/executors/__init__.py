"""Executors of steps: the choice of executor, and executors for GPUs and Celery.

Belongs here: executors, device tags, and the number of devices that a run needs.
Does not belong here: the leases of devices (`inference.devices`).
"""

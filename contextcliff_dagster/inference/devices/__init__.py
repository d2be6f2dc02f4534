"""GPUs of this machine, and their leases.

Belongs here: discovery, file leases that the kernel releases, launching a program on a lease.
Does not belong here: queues of runs (`defs.executors`).
"""

"""GPUs of this machine: which there are, who has leased which.

Belongs here: discovery, file leases that the kernel releases, launching a program on a lease.
Does not belong here: queues of runs (`defs.executors`).
"""

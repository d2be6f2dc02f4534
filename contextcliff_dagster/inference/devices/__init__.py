"""GPUs of this machine and their leases.

Belongs here: finding devices, file leases that the kernel releases, starting a program on a lease.
Does not belong here: queues of runs (`defs.executors`)."""

"""Token counters: exact, fast, offline and opened by name, or a running server's own count.

Does not belong here: the length map that uses them (`sampling.length_map`).
"""

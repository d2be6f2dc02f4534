"""The data of the benchmarks: records, questions and their answers, seeded and pure.

Belongs here: what is true in a benchmark. Does not belong here: how it is written down
(`rendering`), and how it is checked (`verification`).
"""

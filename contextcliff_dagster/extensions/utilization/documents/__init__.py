"""The documents of a study: of the length asked for, verified, and kept in the store.

Belongs here: from a scale to records, from records to texts and files. Does not belong here: what
is true (`benchmarks`), how it is written (`rendering`), whether the text supports it
(`verification`).
"""

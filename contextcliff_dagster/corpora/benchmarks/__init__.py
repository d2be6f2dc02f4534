"""Adapters for public benchmarks, in the file formats in which they are published.

Belongs here: reading one benchmark's own files (a local copy), a module per benchmark or family,
and the shared parts: checked access to a record, accepted answers and texts assembled from pieces
whose positions are recorded (``item.py``), the corpus itself (``corpus.py``), and the table of
adapters by name (``benchmark_table.py``). Texts are used as published: nothing is downloaded, cut,
padded or reordered.
"""

"""Adapters of public benchmarks in the file formats that they are published in.

Belongs here: reading one benchmark's own files (a local copy), a module per benchmark or family,
and the shared parts: checked access to a record, accepted answers and texts joined from pieces with
known positions (``item.py``), the corpus itself (``corpus.py``), and the table of adapters by name
(``benchmark_table.py``). Texts are used as published: nothing is downloaded, cut, padded or
reordered.
"""

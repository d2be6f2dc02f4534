"""Adapters of public benchmarks in the file formats that they are published in.

Belongs here: reading one benchmark's own files (a local copy), one module each, on what all share:
checked access to a record (``item.py``), accepted answers (``answers.py``), text put down in pieces
whose places are kept (``pieces.py``), the corpus itself (``corpus.py``), and the table of
adapters by name (``benchmark_table.py``). Texts are used as
published: nothing is downloaded, cut, padded or reordered.
"""

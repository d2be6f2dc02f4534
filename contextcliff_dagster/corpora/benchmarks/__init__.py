"""Adapters of public benchmarks in the file formats that they are published in.

Belongs here: reading one benchmark's own files (a local copy), a module per benchmark or family,
and what all share: checked access to a record (``item.py``), accepted answers (``answers.py``),
texts joined from pieces whose positions are kept (``pieces.py``), the corpus itself
(``corpus.py``), and the table of adapters by name (``benchmark_table.py``). Texts are used as
published: nothing is downloaded, cut, padded or reordered.
"""

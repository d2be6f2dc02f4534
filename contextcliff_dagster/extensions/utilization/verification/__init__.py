"""Proof that the answers of a document follow from its text, by other means than made them.

Belongs here: SQL, constraint solving and graph search over records that were read back from the
rendered text, and the verdict on each question. Does not belong here: how records and answers are
made (`benchmarks`), and how text is read (`rendering`).
"""

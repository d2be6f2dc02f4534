"""One module per document format, each with `read(data, limits, notes)`.

Belongs here: what is particular to DOCX, EPUB, HTML, PDF.
Does not belong here: choosing the format, limits and processes (the folder above).
"""

"""One module per document format, each with `read(data, limits, notes)`.

Belongs here: what is specific to DOCX, EPUB, HTML or PDF. Does not belong here: choosing the
format, limits and processes (the folder above).
"""

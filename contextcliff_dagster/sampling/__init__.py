"""From a corpus to a frozen sample: token counts, length audit, bins, manifest.

Belongs here: counting tokens exactly, cutting the length axis, judging whether the corpus supports
the study, and drawing the stratified sample. Does not belong here: reading sources (``corpora/``)
and everything that calls a model. No text is ever padded, cut or invented to fill a bin.
"""

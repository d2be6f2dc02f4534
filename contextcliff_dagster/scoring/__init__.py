"""From a model's output to its score: parsing, normalisation, scores, failure tags.

Here belongs every judgement of one output against its accepted answers. Statistics over many
records belong to `analysis`; asking a model, and recording that nothing came back, to `inference`.
All of it is pure: the same rows give the same records, so records can be thrown away and rebuilt.
"""

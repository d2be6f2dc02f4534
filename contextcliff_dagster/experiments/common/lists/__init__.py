"""Lists of what an experiment keeps in a folder, each with its hash.

Not here: making and reading the documents themselves (`experiments.common.kept_documents`).
"""

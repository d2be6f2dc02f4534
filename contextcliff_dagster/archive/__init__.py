"""One file that reproduces a study: its frozen sample, every recorded call, and who was asked what.

The file is a zip of JSON and Parquet, readable without this program:

    archive.json               format, versions, and the SHA-256 of every other member
    study.json                 the study as configured, with the texts of its prompt files
    manifest/manifest.json     the sample's bins and hashes, manifest/examples.parquet its questions
                               and manifest/documents.parquet its texts, byte for byte
    documents/                 where experiments made documents of files of their own: these, whole
    ledger/<table>.parquet     calls, attempts, failures, results, recipes, serving identities,
                               campaigns, and documents that the manifest does not hold

Scores, profiles and report are left out: they are rebuilt from this without a call. The same store
gives the same bytes. Nothing secret is in it: keys are in the environment only, and neither prices
nor addresses' credentials are recorded in the ledger.
"""

from __future__ import annotations

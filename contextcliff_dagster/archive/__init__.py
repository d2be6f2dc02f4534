"""One file that reproduces a study: its frozen sample, every recorded call, and the models asked.

The file is a zip of JSON and Parquet, readable without this program:

    archive.json               format, versions, and the SHA-256 of every other member
    study.json                 the study as configured, with the texts of its prompt files
    manifest/manifest.json     the sample's bins and hashes, manifest/examples.parquet its questions
                               and manifest/documents.parquet its texts, byte for byte
    documents/                 documents that experiments made, complete (only if there are any)
    ledger/<table>.parquet     calls, attempts, failures, results, recipes, serving identities,
                               campaigns, and documents that the manifest does not hold

Scores, profiles and reports are left out, because they can be rebuilt from it without a call. The
same store gives the same bytes. The file has no secrets: keys are only in the environment, and the
ledger records neither prices nor credentials in addresses.
"""

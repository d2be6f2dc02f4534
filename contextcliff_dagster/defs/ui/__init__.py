"""Results in the Dagster UI: tables, numbers, pictures; nothing is computed here."""

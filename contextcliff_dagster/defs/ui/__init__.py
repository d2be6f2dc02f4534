"""What the Dagster UI shows of a result: tables, numbers, pictures; nothing is computed here."""

"""What the Dagster UI shows of a result: rows, tables, numbers, pictures; nothing is computed here."""

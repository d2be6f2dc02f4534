"""The product as a person meets it: the Dagster UI in a real browser."""

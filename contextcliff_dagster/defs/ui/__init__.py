"""Display of results in the Dagster UI: tables, numbers and pictures, without any analysis."""

"""The command `continuation`: what it measures, compares and makes again."""

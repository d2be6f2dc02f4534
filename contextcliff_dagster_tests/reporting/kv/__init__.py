"""KV policies in reports."""

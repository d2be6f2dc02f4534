"""The assets of a study, one module per subject; each function builds them for a given study."""

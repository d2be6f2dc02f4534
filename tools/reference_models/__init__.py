"""Training the reference models from scratch and measuring the truth on their cards (torch)."""

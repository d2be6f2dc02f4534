"""What `contextcliff continuation` makes of its options: a study and a model."""

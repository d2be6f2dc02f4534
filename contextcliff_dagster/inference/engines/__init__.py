"""The engines: one file per way of reaching a model. Heavy libraries are imported on `start`."""

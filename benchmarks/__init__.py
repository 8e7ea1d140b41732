"""Measurements, one command each; their figures lie in `results/`."""

"""Mask_network."""

"""Deeplift."""

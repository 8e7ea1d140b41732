"""Fgvis."""

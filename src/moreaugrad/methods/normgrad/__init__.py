"""Normgrad."""

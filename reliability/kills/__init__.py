"""Processes killed at random moments: `python -m reliability.kills`, and at length `.explain` and `.bulk`."""

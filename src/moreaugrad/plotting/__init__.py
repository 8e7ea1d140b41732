"""Every picture: maps, curves and certificates."""

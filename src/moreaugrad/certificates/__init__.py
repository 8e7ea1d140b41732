"""Certificates of maps: what is known of a score, what was measured of one map, and what follows by `theory`."""

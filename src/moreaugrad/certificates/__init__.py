"""Certificates of maps: what is known of a score, what was measured of one map, and what follows.

The formulas are those of `theory`; here they meet networks, methods and noise.
"""

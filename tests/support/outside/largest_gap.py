"""A metric from outside the package."""

import moreaugrad as mg


@mg.register("metric", "largest_gap", needs="pair", direction="lower", range=(0.0, float("inf")))
def largest_gap(a, b):
    """Largest difference between two maps."""
    return (a - b).flatten(1).abs().amax(1)

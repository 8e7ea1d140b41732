"""A statistic of gradients under noise from outside the package."""

import moreaugrad as mg


@mg.register("statistic", "deviation")
def deviation(moments):
    """Standard deviation of each entry of the gradient over the noise."""
    return (moments.second - moments.first.square()).clamp_min(0).sqrt()

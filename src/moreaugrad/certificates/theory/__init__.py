"""What can be certified about a map: pure functions of numbers, in float64.

maps: Lipschitz constants of solved maps, their errors, and from "the map moves by at most B" to top entries, supports
and distances; noise: curvature of smoothed scores and errors of averages; ranking: the top entries of Sparsified
SmoothGrad. Never holds a network, a solver or a file.
"""

from moreaugrad.certificates.theory.maps import *  # noqa: F403
from moreaugrad.certificates.theory.noise import *  # noqa: F403
from moreaugrad.certificates.theory.ranking import *  # noqa: F403

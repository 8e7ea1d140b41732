"""What can be certified about a map: pure functions of numbers, in float64; proofs are in docs/certificates.md."""

from moreaugrad.certificates.theory.binomial import *  # noqa: F403
from moreaugrad.certificates.theory.maps import *  # noqa: F403
from moreaugrad.certificates.theory.noise import *  # noqa: F403
from moreaugrad.certificates.theory.ranking import *  # noqa: F403
from moreaugrad.certificates.theory.shift import *  # noqa: F403

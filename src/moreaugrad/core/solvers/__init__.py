"""One file per algorithm. Each is a frozen set of options with `run(problem, watch) -> Solution`."""

from moreaugrad.core.solvers.dual_averaging import DualAveraging as DualAveraging
from moreaugrad.core.solvers.paper import PaperAlgorithm as PaperAlgorithm
from moreaugrad.core.solvers.proximal_gradient import ProximalGradient as ProximalGradient

SOLVERS = {"dual_averaging": DualAveraging, "proximal_gradient": ProximalGradient, "paper": PaperAlgorithm}

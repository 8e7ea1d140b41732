"""One file per algorithm. Each is a frozen set of options with `run(problem, watch) -> Solution`."""

from moreaugrad.envelope.solvers.at_input import AtInput as AtInput
from moreaugrad.envelope.solvers.dual_averaging import DualAveraging as DualAveraging
from moreaugrad.envelope.solvers.proximal_gradient import ProximalGradient as ProximalGradient
from moreaugrad.envelope.solvers.published_algorithm import PaperAlgorithm as PaperAlgorithm

SOLVERS = {"dual_averaging": DualAveraging, "proximal_gradient": ProximalGradient, "paper": PaperAlgorithm}

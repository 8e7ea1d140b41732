from .core.noise import Smoothing as Smoothing
from .core.solvers import DualAveraging as DualAveraging
from .core.solvers import PaperAlgorithm as PaperAlgorithm
from .core.solvers import ProximalGradient as ProximalGradient
from .core.surgery import with_softplus as with_softplus
from .disk.explanation import Explanation as Explanation
from .methods import METHODS as METHODS
from .methods.gradient import Gradient as Gradient
from .methods.moreau import GroupSparseMoreauGrad as GroupSparseMoreauGrad
from .methods.moreau import MoreauGrad as MoreauGrad
from .methods.moreau import SparseMoreauGrad as SparseMoreauGrad
from .methods.smoothgrad import SmoothGrad as SmoothGrad
from .priors import PRIORS as PRIORS
from .run.pipeline import explain as explain
from .zoo import load_model as load_model

__version__: str

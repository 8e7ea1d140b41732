from .core.noise import Smoothing as Smoothing
from .core.solvers import DualAveraging as DualAveraging
from .core.solvers import PaperAlgorithm as PaperAlgorithm
from .core.solvers import ProximalGradient as ProximalGradient
from .core.surgery import with_softplus as with_softplus
from .disk.explanation import Explanation as Explanation
from .methods import METHODS as METHODS
from .methods.cam import Cam as Cam
from .methods.cam import GradCam as GradCam
from .methods.cam import GradCamPlusPlus as GradCamPlusPlus
from .methods.deeplift import DeepLift as DeepLift
from .methods.fgvis import FGVis as FGVis
from .methods.gradient import Gradient as Gradient
from .methods.integrated import IntegratedGradients as IntegratedGradients
from .methods.mask_network import MaskNetwork as MaskNetwork
from .methods.moreau import GroupSparseMoreauGrad as GroupSparseMoreauGrad
from .methods.moreau import MoreauGrad as MoreauGrad
from .methods.moreau import SparseMoreauGrad as SparseMoreauGrad
from .methods.normgrad import NormGrad as NormGrad
from .methods.perturbation import MeaningfulPerturbation as MeaningfulPerturbation
from .methods.relex import Relex as Relex
from .methods.smoothgrad import SmoothGrad as SmoothGrad
from .methods.sparsified import SparsifiedSmoothGrad as SparsifiedSmoothGrad
from .priors import PRIORS as PRIORS
from .run.pipeline import explain as explain
from .zoo import load_model as load_model

__version__: str

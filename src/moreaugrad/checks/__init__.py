"""Every check of user input and its wording: what must hold, what came, the way out.

Knows no method and calls no model. Returns nothing, or the value in the form that the caller needs.
"""

from moreaugrad.checks.options import at_least as at_least
from moreaugrad.checks.options import can as can
from moreaugrad.checks.options import certifiable as certifiable
from moreaugrad.checks.options import device as device
from moreaugrad.checks.options import fixed_eta as fixed_eta
from moreaugrad.checks.options import flag as flag
from moreaugrad.checks.options import groups as groups
from moreaugrad.checks.options import has_tf32 as has_tf32
from moreaugrad.checks.options import label_map as label_map
from moreaugrad.checks.options import not_negative as not_negative
from moreaugrad.checks.options import number as number
from moreaugrad.checks.options import one_each as one_each
from moreaugrad.checks.options import one_of as one_of
from moreaugrad.checks.options import positive as positive
from moreaugrad.checks.options import precision as precision
from moreaugrad.checks.options import seed as seed
from moreaugrad.checks.options import smooth as smooth
from moreaugrad.checks.options import smoothing as smoothing
from moreaugrad.checks.options import solver as solver
from moreaugrad.checks.options import steps as steps
from moreaugrad.checks.options import under_noise as under_noise
from moreaugrad.checks.options import weights as weights
from moreaugrad.checks.tensors import baselines as baselines
from moreaugrad.checks.tensors import dependent as dependent
from moreaugrad.checks.tensors import differentiable as differentiable
from moreaugrad.checks.tensors import evaluating as evaluating
from moreaugrad.checks.tensors import finite_score as finite_score
from moreaugrad.checks.tensors import inputs as inputs
from moreaugrad.checks.tensors import output as output
from moreaugrad.checks.tensors import some_gradient as some_gradient
from moreaugrad.checks.tensors import target as target
from moreaugrad.checks.tensors import target_fits as target_fits

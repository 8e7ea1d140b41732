"""What can be certified about a map: pure functions of numbers, in float64.

constants: Lipschitz constants of solved maps, and their errors; curvature: of smoothed scores; sampling: errors of
averages; budgets: from "the map moves by at most B" to top entries, supports, distances; ranking: the top entries of
Sparsified SmoothGrad. Never holds a network, a solver or a file.
"""

from moreaugrad.core.certificates.budgets import normalised_distance as normalised_distance
from moreaugrad.core.certificates.budgets import support_entrants as support_entrants
from moreaugrad.core.certificates.budgets import support_survivors as support_survivors
from moreaugrad.core.certificates.budgets import swap_cost as swap_cost
from moreaugrad.core.certificates.budgets import topk_members as topk_members
from moreaugrad.core.certificates.budgets import topk_overlap as topk_overlap
from moreaugrad.core.certificates.constants import dual_error as dual_error
from moreaugrad.core.certificates.constants import holder_prox as holder_prox
from moreaugrad.core.certificates.constants import lip_dual as lip_dual
from moreaugrad.core.certificates.constants import lip_prox as lip_prox
from moreaugrad.core.certificates.constants import lip_vanilla as lip_vanilla
from moreaugrad.core.certificates.constants import map_error as map_error
from moreaugrad.core.certificates.constants import prior_of_change as prior_of_change
from moreaugrad.core.certificates.constants import residual_constant as residual_constant
from moreaugrad.core.certificates.curvature import Curvature as Curvature
from moreaugrad.core.certificates.curvature import LocalCertificate as LocalCertificate
from moreaugrad.core.certificates.curvature import certified_rho as certified_rho
from moreaugrad.core.certificates.curvature import curvature_at as curvature_at
from moreaugrad.core.certificates.curvature import gradient_cap as gradient_cap
from moreaugrad.core.certificates.curvature import lam_lipschitz as lam_lipschitz
from moreaugrad.core.certificates.curvature import lam_range as lam_range
from moreaugrad.core.certificates.curvature import local_certificate as local_certificate
from moreaugrad.core.certificates.curvature import mean_noise_norm as mean_noise_norm
from moreaugrad.core.certificates.intervals import BOUNDS as BOUNDS
from moreaugrad.core.certificates.ranking import TopKCertificate as TopKCertificate
from moreaugrad.core.certificates.ranking import overlap_radii as overlap_radii
from moreaugrad.core.certificates.ranking import topk_certificate as topk_certificate
from moreaugrad.core.certificates.sampling import err_backprop as err_backprop
from moreaugrad.core.certificates.sampling import err_bernstein as err_bernstein
from moreaugrad.core.certificates.sampling import err_stein as err_stein
from moreaugrad.core.certificates.sampling import kl_interval as kl_interval
from moreaugrad.core.certificates.sampling import variance_bound as variance_bound
from moreaugrad.core.certificates.steep import bend_lipschitz as bend_lipschitz
from moreaugrad.core.certificates.steep import lam_steep as lam_steep
from moreaugrad.core.certificates.steep import local_lipschitz as local_lipschitz

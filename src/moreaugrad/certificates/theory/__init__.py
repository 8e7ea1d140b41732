"""What can be certified about a map: pure functions of numbers, in float64.

constants: Lipschitz constants of solved maps, and their errors; curvature: of smoothed scores; sampling: errors of
averages; budgets: from "the map moves by at most B" to top entries, supports, distances; ranking: the top entries of
Sparsified SmoothGrad. Never holds a network, a solver or a file.
"""

from moreaugrad.certificates.theory.budgets import normalised_distance as normalised_distance
from moreaugrad.certificates.theory.budgets import support_entrants as support_entrants
from moreaugrad.certificates.theory.budgets import support_survivors as support_survivors
from moreaugrad.certificates.theory.budgets import swap_cost as swap_cost
from moreaugrad.certificates.theory.budgets import topk_members as topk_members
from moreaugrad.certificates.theory.budgets import topk_overlap as topk_overlap
from moreaugrad.certificates.theory.constants import dual_error as dual_error
from moreaugrad.certificates.theory.constants import holder_prox as holder_prox
from moreaugrad.certificates.theory.constants import lip_dual as lip_dual
from moreaugrad.certificates.theory.constants import lip_prox as lip_prox
from moreaugrad.certificates.theory.constants import lip_vanilla as lip_vanilla
from moreaugrad.certificates.theory.constants import map_error as map_error
from moreaugrad.certificates.theory.constants import prior_of_change as prior_of_change
from moreaugrad.certificates.theory.constants import residual_constant as residual_constant
from moreaugrad.certificates.theory.curvature import Curvature as Curvature
from moreaugrad.certificates.theory.curvature import LocalCertificate as LocalCertificate
from moreaugrad.certificates.theory.curvature import certified_rho as certified_rho
from moreaugrad.certificates.theory.curvature import curvature_at as curvature_at
from moreaugrad.certificates.theory.curvature import gradient_cap as gradient_cap
from moreaugrad.certificates.theory.curvature import lam_lipschitz as lam_lipschitz
from moreaugrad.certificates.theory.curvature import lam_range as lam_range
from moreaugrad.certificates.theory.curvature import local_certificate as local_certificate
from moreaugrad.certificates.theory.curvature import mean_noise_norm as mean_noise_norm
from moreaugrad.certificates.theory.intervals import BOUNDS as BOUNDS
from moreaugrad.certificates.theory.local_curvature import bend_lipschitz as bend_lipschitz
from moreaugrad.certificates.theory.local_curvature import lam_steep as lam_steep
from moreaugrad.certificates.theory.local_curvature import local_lipschitz as local_lipschitz
from moreaugrad.certificates.theory.ranking import TopKCertificate as TopKCertificate
from moreaugrad.certificates.theory.ranking import overlap_radii as overlap_radii
from moreaugrad.certificates.theory.ranking import topk_certificate as topk_certificate
from moreaugrad.certificates.theory.sampling import err_backprop as err_backprop
from moreaugrad.certificates.theory.sampling import err_bernstein as err_bernstein
from moreaugrad.certificates.theory.sampling import err_stein as err_stein
from moreaugrad.certificates.theory.sampling import kl_interval as kl_interval
from moreaugrad.certificates.theory.sampling import variance_bound as variance_bound

"""`certify` with the fields of its option groups as keywords, which keeps tests of many combinations short."""

import moreaugrad as mg
from moreaugrad.certificates.assumptions import group_options


def certify(method, x, target=None, epsilon=0.1, **flat):
    return mg.certify(method, x, target, epsilon, **group_options(flat))

"""Penalties of the displacement. A new prior is one file here and one line in `PRIORS`."""

from moreaugrad.registry import Entry, Table

PRIORS = Table(
    "prior",
    zero=Entry("moreaugrad.envelope.priors_zero:Zero", "no penalty: the plain Moreau envelope"),
    l1=Entry("moreaugrad.envelope.priors_l1:L1", "sum of absolute values: keeps single entries"),
    group=Entry("moreaugrad.envelope.priors_group:Group", "sum of group norms: keeps whole groups of entries"),
)

"""The mathematics: scores, the envelope, solvers and model surgery. Knows no files and no method names.

Listing the table of statistics imports no torch.
"""

from moreaugrad.registry import Entry, Table

VARIANCE = "variance"  # a statistic of SmoothGrad alone, which has its own way to compute it

STATISTICS = Table(
    "statistic",
    mean=Entry("moreaugrad.model.statistics:mean", "mean of the gradients, signed: the published map"),
    rms=Entry("moreaugrad.model.statistics:rms", "root of their mean square: moves least under attack"),
    votes=Entry("moreaugrad.model.statistics:votes", "how often an entry is among the largest; can be certified"),
    geometric=Entry("moreaugrad.model.statistics:geometric", "geometric mean of |mean| and rms: deletes best"),
    square=Entry("moreaugrad.model.statistics:square", "mean of their squares"),
    log_square=Entry("moreaugrad.model.statistics:log_square", "its logarithm, for the slope of an attack"),
)

"""Attribution methods. A new one is one file here and one line in `METHODS`.

Listing the table imports no torch; `METHODS[name](model, **options)` makes a method.
"""

from moreaugrad.tables import Entry, Table

QUALITY = {"fast": 160, "balanced": 800, "best": 3200}  # sample-gradients per image

_SOLVED = frozenset({"signed", "solver", "residual"})
METHODS = Table(
    "method",
    gradient=Entry(
        "moreaugrad.methods.gradient:Gradient",
        "simple gradient of the class score",
        frozenset({"signed", "deterministic"}),
    ),
    smoothgrad=Entry(
        "moreaugrad.methods.smoothgrad:SmoothGrad",
        "gradient averaged over Gaussian noise",
        frozenset({"signed", "stderr"}),
    ),
    moreau=Entry(
        "moreaugrad.methods.moreau:MoreauGrad",
        "gradient of the Moreau envelope of the (smoothed) class score",
        _SOLVED | {"stderr"},
    ),
    sparse_moreau=Entry(
        "moreaugrad.methods.moreau:SparseMoreauGrad",
        "MoreauGrad with an L1 prior: exact zeros, a chosen share of entries kept",
        _SOLVED | {"stderr", "sparse"},
    ),
    group_sparse_moreau=Entry(
        "moreaugrad.methods.moreau:GroupSparseMoreauGrad",
        "MoreauGrad with a group prior: whole blocks, superpixels or channels kept or dropped",
        _SOLVED | {"stderr", "sparse", "groups"},
    ),
)

"""Attribution methods. A new one is one file here and one line in `METHODS`.

Listing the table imports no torch; `METHODS[name](model, **options)` makes a method. Names such as captum/Occlusion,
which stand for the attributions of Captum, are in no list: `METHODS` finds them when it is asked.
"""

from collections.abc import Mapping
from typing import Any

from moreaugrad.registry import Entry, Table, load_object

QUALITY = {"fast": 160, "balanced": 800, "best": 3200}  # sample-gradients per image

PUBLISHED = "published"
# options of the MoreauGrad family by one word; the classes themselves have those of "published"
PRESETS: Mapping[str, Mapping[str, Any]] = {
    PUBLISHED: {"rho": 1.0, "noise_level": 0.1, "statistic": "mean"},
    "robust": {"rho": 0.0, "noise_level": 0.2, "statistic": "rms"},
}
DEFAULT_PRESET = PUBLISHED  # of `explain` and the command line; robust maps explain less by deletion

_SOLVED = frozenset({"signed", "solver", "residual", "slow", "differentiable", "statistic", "preset"})
_LAYER = frozenset({"deterministic", "differentiable", "layer"})


class MethodTable(Table):
    """The table of methods, which also answers to the names of Captum's attributions."""

    def __getitem__(self, name: str) -> Entry:
        if isinstance(name, str) and name.startswith("captum/"):
            found: Entry = load_object("moreaugrad.interop.captum_methods:find_entry")(name)
            return found
        return super().__getitem__(name)


METHODS = MethodTable(
    "method",
    gradient=Entry(
        "moreaugrad.methods.gradient:Gradient",
        "simple gradient of the class score",
        frozenset({"signed", "deterministic", "differentiable"}),
    ),
    integrated_gradients=Entry(
        "moreaugrad.methods.integrated:IntegratedGradients",
        "gradient averaged on the way from a baseline, times the way; sums to the change of the score",
        frozenset({"signed", "deterministic", "differentiable", "baseline", "residual"}),
    ),
    deeplift=Entry(
        "moreaugrad.methods.deeplift.deeplift:DeepLift",
        "difference from a baseline, shared out by the rescale rule; sums to the change of the score",
        frozenset({"signed", "deterministic", "baseline", "residual"}),
    ),
    smoothgrad=Entry(
        "moreaugrad.methods.smoothgrad:SmoothGrad",
        "gradient averaged over Gaussian noise; also its root mean square, votes or variance",
        frozenset({"signed", "stderr", "differentiable", "statistic"}),
    ),
    sparsified_smoothgrad=Entry(
        "moreaugrad.methods.sparsified:SparsifiedSmoothGrad",
        "average over noise of which entries of the gradient are the largest; bounded by 1",
        frozenset({"stderr", "differentiable"}),
    ),
    relex=Entry(
        "moreaugrad.methods.relex:Relex",
        "mask that keeps the class, and whose complement loses it, for a whole neighbourhood of noisy images",
        frozenset({"slow"}),
    ),
    cam=Entry(
        "moreaugrad.methods.cam.cam:Cam",
        "features before the pooling, weighted by the linear head; forward pass only",
        _LAYER | {"signed"},
    ),
    gradcam=Entry(
        "moreaugrad.methods.cam.cam:GradCam",
        "features of a layer, weighted by the mean gradient of each channel",
        _LAYER,
    ),
    gradcam_plus_plus=Entry(
        "moreaugrad.methods.cam.cam:GradCamPlusPlus",
        "Grad-CAM with a weight for each position",
        _LAYER,
    ),
    normgrad=Entry(
        "moreaugrad.methods.normgrad:NormGrad",
        "how much each position adds to the gradient of a layer's weights; one layer or several",
        _LAYER,
    ),
    meaningful_perturbation=Entry(
        "moreaugrad.methods.perturbation:MeaningfulPerturbation",
        "smallest smooth mask whose blur destroys (or that alone preserves) the class",
        frozenset({"slow"}),
    ),
    fgvis=Entry(
        "moreaugrad.methods.fgvis.fgvis:FGVis",
        "fine mask that keeps (or deletes) the class without waking a neuron that was silent",
        frozenset({"slow"}),
    ),
    mask_network=Entry(
        "moreaugrad.methods.mask_network.mask_network:MaskNetwork",
        "mask from a network trained once for a classifier by `moreaugrad train-mask`; forward pass only",
        frozenset({"deterministic", "differentiable", "trained"}),
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

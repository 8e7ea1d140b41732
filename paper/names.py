"""How methods, data sets and metrics are called on pictures and in tables, in the order in which they appear."""

from __future__ import annotations

METHODS = {
    "gradient": "Simple gradient",
    "integrated_gradients": "Integrated gradients",
    "deeplift": "DeepLIFT",
    "smoothgrad": "SmoothGrad",
    "smoothgrad_400": "SmoothGrad, 400 samples",
    "smoothgrad_quiet": "SmoothGrad, 200 samples, noise 0.1",
    "sparsified_smoothgrad": "Sparsified SmoothGrad",
    "relex": "RelEx",
    "moreau": "MoreauGrad",
    "sparse_moreau": "Sparse MoreauGrad",
    "group_sparse_moreau": "Group-sparse MoreauGrad",
    "gradcam": "Grad-CAM",
    "random": "Random map",
}
DATASETS = {"cifar10": "CIFAR-10", "tiny_imagenet": "Tiny-ImageNet", "imagenet": "ImageNet"}
METRICS = {
    "normalised_distance": "normalised distance",
    "topk_intersection": "top-k intersection",
    "ssim": "SSIM",
    "normalised_distance_signed": "normalised distance, as published",
    "topk_signed": "top-k intersection, as published",
    "ssim_raw": "SSIM, as published",
    "normalised_distance_full": "normalised distance at the full budget",
    "insertion": "insertion",
    "deletion": "deletion, to the mean colour",
    "deletion_blur": "deletion, to a blur",
    "nonzero_share": "share of non-zeros",
    "gini": "Gini index",
    "hoyer": "Hoyer sparseness",
    "pointing_game": "pointing game",
    "energy_in_box": "energy in the box",
}
LOWER = frozenset(("normalised_distance", "deletion", "deletion_blur", "nonzero_share"))  # smaller is better
COMPARED = tuple(METRICS)[:3]  # between two maps; those of the curves
ACCURACY = tuple(METRICS)[7:]
ACCURACY_METHODS = (
    *("gradient", "integrated_gradients", "smoothgrad", "sparsified_smoothgrad"),
    *("moreau", "sparse_moreau", "group_sparse_moreau", "gradcam", "random"),
)

# names of the published figure -> ours, and our metrics -> the published one that they are compared with
PUBLISHED_METHODS = {
    "simple_gradient": "gradient",
    "integrated_gradients": "integrated_gradients",
    "smoothgrad": "smoothgrad",
    "sparsified_smoothgrad": "sparsified_smoothgrad",
    "moreaugrad": "moreau",
    "sparse_moreaugrad": "sparse_moreau",
}
PUBLISHED_METRICS = dict(zip(("normalized_distance", "topk_intersection", "ssim"), COMPARED, strict=True))
BASE = dict(zip(("normalised_distance_signed", "topk_signed", "ssim_raw"), COMPARED, strict=True))
BASE["normalised_distance_full"] = "normalised_distance"


def method(name: str) -> str:
    return METHODS.get(name, name)


def metric(name: str) -> str:
    return METRICS.get(name, name.replace("_", " "))


def dataset(name: str) -> str:
    return DATASETS.get(name, name)


def base(metric: str) -> str:
    """The metric of the published figure that a variant belongs to."""
    return BASE.get(metric, metric)


def is_lower_better(metric: str) -> bool:
    return base(metric) in LOWER

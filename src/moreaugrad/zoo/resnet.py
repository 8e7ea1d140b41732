"""ResNet-18 for 32 x 32 images with softplus activations: smooth, so that maps have derivatives of their own."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import checks
from moreaugrad.zoo.checkpoint import fill
from moreaugrad.zoo.classifier import Classifier
from moreaugrad.zoo.view import CentreCrop

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Block(nn.Module):
    """act(bn(conv(act(bn(conv(x))))) + shortcut(x)), with an activation module of its own at each place."""

    def __init__(self, before: int, after: int, stride: int, beta: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.act1 = nn.Softplus(beta)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.act2 = nn.Softplus(beta)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        inner = self.act1(self.bn1(self.conv1(x)))
        found: Tensor = self.act2(self.bn2(self.conv2(inner)) + self.shortcut(x))
        return found


class SoftplusResNet18(nn.Module):
    """A 3x3 stem without max-pool, four stages of two blocks (64, 128, 256, 512), average pool, linear."""

    def __init__(self, classes: int = 10, beta: float = 1.0) -> None:
        super().__init__()
        checks.at_least("classes", classes, 1)
        checks.positive("beta", beta)
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.act1 = nn.Softplus(beta)
        self.layer1 = _stage(64, 64, 1, beta)
        self.layer2 = _stage(64, 128, 2, beta)
        self.layer3 = _stage(128, 256, 2, beta)
        self.layer4 = _stage(256, 512, 2, beta)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n k"]:
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        found: Tensor = self.fc(self.pool(x).flatten(1))
        return found


def resnet18_softplus(
    name: str = "resnet18_softplus", weights: str | Path | None = None, labels: list[str] | None = None
) -> Classifier:
    network = SoftplusResNet18(len(labels) if labels else 10)
    fill(network, weights or "random")
    view = CentreCrop((32, 32), (32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    return Classifier(network, view, name, labels or CIFAR10)


def _stage(before: int, after: int, stride: int, beta: float) -> nn.Sequential:
    return nn.Sequential(Block(before, after, stride, beta), Block(after, after, 1, beta))

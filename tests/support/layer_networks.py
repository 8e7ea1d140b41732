"""Small networks whose layers the tests of CAM and NormGrad read, in float64 and with the same weights each time."""

import torch
from torch import nn
from torchvision.models import VisionTransformer


def seeded(make):
    """Random weights, every one of them, the same each time: a head of zeros would make every map zero."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make()
        for parameter in net.parameters():
            if not parameter.any():
                nn.init.normal_(parameter, std=0.1)
    return net.eval()


def averaging(act=nn.ReLU):
    """Ends in an average and a linear layer. Module 3 is the last of the features."""

    def make():
        features = [nn.Conv2d(3, 6, 3, padding=1), act(), nn.Conv2d(6, 8, 3, 2, 1), act()]
        return nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).double()

    return seeded(make)


def flattening(act=nn.ReLU):
    """Ends in two linear layers that see every position."""

    def make():
        head = [nn.Flatten(), nn.Linear(4 * 16, 7), act(), nn.Linear(7, 5)]
        return nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), act(), *head).double()

    return seeded(make)


def transformer():
    return seeded(lambda: VisionTransformer(8, 4, 2, 2, 8, 16, num_classes=5).double())


def images(n=3, size=8, seed=1, dtype=torch.float64):
    return torch.randn(n, 3, size, size, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def close(found, wanted, tol=1e-10):
    torch.testing.assert_close(found, wanted, rtol=tol, atol=tol)

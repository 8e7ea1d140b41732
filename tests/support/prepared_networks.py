"""A network with everything that preparing changes, and its gradient by autograd."""

import torch
from torch import nn

X = torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(3))


def network(seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(inplace=True),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.BatchNorm2d(8, affine=False),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.BatchNorm2d(8),  # follows a pooling: stays
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 4),
    )
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.is_floating_point():
            tensor.data = torch.rand(tensor.shape, generator=generator) + 0.1
            if tensor.ndim > 1:
                tensor.data -= 0.6
    return net.eval()


def plain_gradient(model, x, target):
    rows = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(model(rows)[:, target].sum(), rows)
    return grad

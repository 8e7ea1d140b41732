"""What a user may write, and a strict type checker must accept without casts."""

import torch

import moreaugrad as mg

net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
x = torch.rand(2, 3, 2, 2)
found = mg.SparseMoreauGrad(net, sparsity=0.25, noise_level=0.1, samples=4, budget=40).explain(x)
largest = found.map.abs().amax()
worst = found.residual.max().item()
maps = mg.SmoothGrad(net, samples=4).attribute(x, target=1)
smooth: torch.Tensor = mg.with_softplus(net)(x)
path = mg.MoreauGrad(net, prior=mg.L1(), eta=[0.01, 0.1], budget=40).explain_path(x)
print(largest, worst, maps.shape, len(path), path[0].kept, found[0].converged.all(), smooth.shape)

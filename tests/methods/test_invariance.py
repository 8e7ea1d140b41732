"""The same image gives the same map alone, in a batch, at any position, in any process."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad import batch as shapes

OPTIONS = {
    "gradient": {},
    "smoothgrad": {"smoothing": mg.Smoothing(samples=24)},
    "moreau": {"budget": 240},
    "sparse_moreau": {"budget": 240, "sparsity": 0.1},
    "group_sparse_moreau": {"budget": 240, "sparsity": 0.1, "groups": 4},
}
PLAIN = {"moreau": {"smoothing": None, "budget": 60}, "sparse_moreau": {"smoothing": None, "budget": 60, "eta": 0.01}}
CASES = [(name, options) for table in (OPTIONS, PLAIN) for name, options in table.items()]


def kinky(dtype):
    """Strided and depthwise convolutions with ReLU6: kinks that amplify rounding."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6()]
        for _ in range(3):
            layers += [nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.ReLU6(), nn.Conv2d(16, 16, 1), nn.ReLU6()]
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
        for parameter in net.parameters():
            parameter.data *= 1.6
        return net.to(dtype).eval()


def images(count, dtype):
    return torch.randn(count, 3, 24, 24, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize(("dtype", "floor"), [(torch.float64, 1e-8), (torch.float32, 1e-5)])
def test_alone_and_in_company(name, options, dtype, floor):
    net, x = kinky(dtype), images(5, dtype)
    together = mg.METHODS[name](net, **options).attribute(x, target=1)
    backwards = mg.METHODS[name](net, **options).attribute(x.flip(0), target=1).flip(0)
    scale = together.abs().max()
    assert (together - backwards).abs().max() <= floor * scale
    for row in range(5):
        alone = mg.METHODS[name](net, **options).attribute(x[row : row + 1], target=1)
        assert (alone - together[row : row + 1]).abs().max() <= floor * scale


def test_in_another_process(tmp_path):
    code = (
        "import sys, numpy as np, torch; sys.path[:0] = [sys.argv[1]]; import test_invariance as t, moreaugrad as mg; "
        "torch.rand(7); m = mg.SparseMoreauGrad(t.kinky(torch.float32), sparsity=0.1, budget=240); "
        "np.save(sys.argv[2], m.attribute(t.images(3, torch.float32), 1).numpy())"
    )
    here = str(__import__("pathlib").Path(__file__).parent)
    subprocess.run([sys.executable, "-c", code, here, str(tmp_path / "map.npy")], check=True)
    method = mg.SparseMoreauGrad(kinky(torch.float32), sparsity=0.1, budget=240)
    ours = method.attribute(images(3, torch.float32), target=1).numpy()
    assert np.abs(np.load(tmp_path / "map.npy") - ours).max() <= 1e-5 * np.abs(ours).max()


def test_sums_do_not_depend_on_the_batch():
    """Bit for bit, at a size where threads share the work."""
    x = torch.randn(5, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for row in range(5):
            assert torch.equal(shapes.norm(x)[row : row + 1], shapes.norm(x[row : row + 1]))
    finally:
        torch.set_num_threads(before)

"""NormGrad: what each position adds to a weight gradient, by autograd on weights that no two positions share."""

import itertools

import pytest
import torch
from layer_networks import averaging, close, images, seeded, transformer
from torch import nn
from torch.nn import functional as F

from moreaugrad.methods.normgrad import AGGREGATIONS, VARIANTS, NormGrad, stretch

C = 3
SIZES = {
    "norm": lambda p: p.square().sum(-1).sqrt(),
    "sum": lambda p: p.sum(-1),
    "max": lambda p: p.amax(-1),
    "positive norm": lambda p: p.clamp_min(0).square().sum(-1).sqrt(),
}


def network(convolution=None, act=nn.Softplus):
    """Module 1 is the layer: its output has both signs, and its gradient differs from place to place."""

    def make():
        layer = nn.Conv2d(4, 4, 3, padding=1) if convolution is None else convolution()
        first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), act())
        rest = nn.Sequential(act(), nn.Conv2d(4, 5, 3, 2), act(), nn.Flatten(), nn.LazyLinear(5))
        net = nn.Sequential(first, layer, rest).double()
        net(images(1))
        return net

    return seeded(make)


def single_contributions(a, score, variant):
    """What each position adds, (h, w, entries): the gradient of an identity layer whose weights are its own there."""
    _, k, h, w = a.shape
    if variant == "bias":
        own = torch.zeros(h, w, k, dtype=a.dtype, requires_grad=True)
        out = a + own.permute(2, 0, 1)
    elif variant in ("scaling", "selective"):
        own = torch.ones(h, w, k, dtype=a.dtype, requires_grad=True)
        out = a * own.permute(2, 0, 1)
    else:
        side = 3 if variant == "conv3x3" else 1
        kernel = torch.zeros(k, k, side, side, dtype=a.dtype)
        kernel[range(k), range(k), side // 2, side // 2] = 1
        own = kernel.flatten(1).expand(h, w, -1, -1).clone().requires_grad_()
        columns = F.unfold(a, side, padding=side // 2)[0].T.view(h, w, -1)
        out = torch.einsum("hwoi,hwi->ohw", own, columns)[None]
    torch.testing.assert_close(out.detach(), a)  # an identity
    (found,) = torch.autograd.grad(score(out), own)
    return found.flatten(2)


@pytest.mark.parametrize(("variant", "aggregation"), list(itertools.product(VARIANTS[:5], AGGREGATIONS)))
def test_each_position_adds_what_autograd_says(variant, aggregation):
    net, x = network(), images(2)
    found = NormGrad(net, "1", variant, aggregation).explain(x, C)
    for row in range(2):
        a = net[:2](x[row : row + 1]).detach()
        parts = single_contributions(a, lambda out: net[2](out)[0, C], variant)
        parts = parts.clamp_min(0) if variant == "selective" else parts
        close(found.coarse[row, 0], SIZES[aggregation](parts))
    assert found.coarse.any()
    assert found.gradients.tolist() == [1, 1]


def test_the_parts_add_up_to_the_gradient_of_an_inserted_convolution():
    net, x = network(), images(1)
    identity = nn.Conv2d(4, 4, 1, bias=False).double()
    identity.weight.data = torch.eye(4, dtype=torch.float64)[:, :, None, None]
    (whole,) = torch.autograd.grad(net[2](identity(net[:2](x)))[0, C], identity.weight)
    a = net[:2](x).detach().requires_grad_()
    (g,) = torch.autograd.grad(net[2](a)[0, C], a)
    outer = torch.einsum("nihw,njhw->nhwij", g, a)
    close(outer.sum((0, 1, 2)), whole[:, :, 0, 0])
    close(NormGrad(net, "1").explain(x, C).coarse[:, 0], outer.flatten(3).norm(dim=3))
    total = NormGrad(net, "1", aggregation="sum").explain(x, C).coarse.sum()
    close(total, whole.sum())


CONVOLUTIONS = {
    "plain": lambda: nn.Conv2d(4, 4, 3, padding=1),
    "stride": lambda: nn.Conv2d(4, 4, 3, stride=2, padding=1),
    "oblong": lambda: nn.Conv2d(4, 4, (3, 1), stride=(1, 2), padding=(0, 1)),
    "dilated": lambda: nn.Conv2d(4, 4, 3, padding=2, dilation=2),
    "groups": lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4),
    "same": lambda: nn.Conv2d(4, 4, 4, padding="same"),
    "valid": lambda: nn.Conv2d(4, 4, 3, padding="valid"),
    "circular": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    "reflect": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
}


def untied(layer, given, score):
    """Gradient of a convolution's weights, at each output position by itself: one unit of output at a time."""
    out = layer(given).detach().requires_grad_()
    (g,) = torch.autograd.grad(score(out), out)
    rows = []
    for at in itertools.product(range(out.shape[2]), range(out.shape[3])):
        only = torch.zeros_like(g)
        only[..., at[0], at[1]] = g[..., at[0], at[1]]
        (grad,) = torch.autograd.grad(layer(given), layer.weight, only)
        rows.append(grad.flatten())
    return torch.stack(rows).view(*out.shape[2:], -1)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("convolution", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_proper_is_the_layers_own_gradient(convolution, aggregation):
    net, x = network(convolution), images(1)
    parts = untied(net[1], net[0](x).detach(), lambda out: net[2](out)[0, C])
    found = NormGrad(net, "1", "proper", aggregation).explain(x, C).coarse
    close(found[0, 0], SIZES[aggregation](parts))


def test_proper_of_layers_that_pad_by_themselves():
    from timm.layers import Conv2dSame

    for size, stride in ((8, 2), (7, 2), (7, 3)):
        x = images(1, size)

        def make(stride=stride, x=x):
            first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Softplus())
            layers = [first, Conv2dSame(4, 4, 4, stride), nn.Sequential(nn.Softplus(), nn.Flatten(), nn.LazyLinear(5))]
            net = nn.Sequential(*layers).double()
            net(x)
            return net

        net = seeded(make)
        parts = untied(net[1], net[0](x).detach(), lambda out, net=net: net[2](out)[0, C])
        close(NormGrad(net, "1", "proper").explain(x, C).coarse[0, 0], parts.norm(dim=2))


def test_proper_keeps_what_is_written_over_later():
    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network().requires_grad_(False)

        def forward(self, x):
            given = self.net[0](x).exp()
            out = self.net[1](given)
            return self.net[2](out) + 0 * given.mul_(0).mean()

    writing, x = Writing(), images(1)
    net = writing.net
    weight = net[1].weight.detach().clone().requires_grad_()
    out = F.conv2d(net[0](x).exp(), weight, net[1].bias, padding=1)
    (whole,) = torch.autograd.grad(net[2](out)[0, C], weight)
    close(NormGrad(writing, "net.1", "proper", "sum").explain(x, C).coarse.sum(), whole.sum())


def test_proper_finds_the_last_convolution_and_refuses_other_layers():
    net, x = network(), images()
    assert torch.equal(NormGrad(net, variant="proper").attribute(x, C), NormGrad(net, "2.1", "proper").attribute(x, C))
    with pytest.raises(TypeError, match=r"needs a Conv2d, got Softplus at '2\.0'"):
        NormGrad(net, "2.0", "proper")
    with pytest.raises(ValueError, match="the model must have convolutions"):
        NormGrad(seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).double()), variant="proper").explain(x)


def test_before_an_averaging_head_the_map_is_the_size_of_the_features():
    net, x = averaging(), images()
    features = net[:4](x).detach()
    slope = float(net[-1].weight[C].detach().norm()) / features[0, 0].numel()
    close(NormGrad(net).explain(x, C).coarse, features.norm(dim=1, keepdim=True) * slope)
    close(NormGrad(net, variant="bias").explain(x, C).coarse, torch.full((3, 1, 4, 4), slope, dtype=torch.float64))


def test_what_raises_the_score_is_positive():
    """At an averaging head the sum of a * g is CAM over its positions, and its mean the logit less its bias."""
    net, x = averaging(), images()
    found = NormGrad(net, variant="scaling", aggregation="sum").explain(x, C).coarse
    close(found.sum((1, 2, 3)), (net(x)[:, C] - net[-1].bias[C]).detach())


def test_cross_entropy_is_the_log_probability():
    net, x = network(), images()
    for variant in ("conv1x1", "selective"):
        wanted = NormGrad(net, "1", variant, score="logprob").attribute(x, C)
        found = NormGrad(net, "1", variant, loss="ce")
        assert torch.equal(found.attribute(x, C), wanted)
        close(found.explain(x, C).score, net(x).log_softmax(1)[:, C].detach())
    logits = nn.Sequential(*net, nn.LogSoftmax(1))
    close(NormGrad(logits, "1").attribute(x, C), NormGrad(net, "1", loss="ce").attribute(x, C))


def test_several_layers_are_stretched_and_multiplied():
    net, x = network(), images()
    names = ["0.0", "1", "2.2"]
    maps = [NormGrad(net, name).attribute(x, C) for name in names]
    low, high = ([end(m.flatten(1), 1).view(-1, 1, 1, 1) for m in maps] for end in (torch.amin, torch.amax))
    parts = [(m - a) / (b - a) for m, a, b in zip(maps, low, high, strict=True)]
    found = NormGrad(net, names).explain(x, C)
    close(found.map, parts[0] * parts[1] * parts[2])
    assert found.coarse is None
    assert found.gradients.tolist() == [1, 1, 1]
    assert torch.equal(NormGrad(net, tuple(names)).attribute(x, C), found.map)
    assert torch.equal(NormGrad(net, ["1"]).attribute(x, C), maps[1])


def test_a_layer_that_tells_no_place_from_another_leaves_the_product():
    net, x = averaging(), images()
    both = NormGrad(net, ["1", "3"], "bias").attribute(x, C)
    close(both, stretch(NormGrad(net, "1", "bias").attribute(x, C)))
    flat = torch.tensor([[0.0, 0.0], [2.0, 2.0], [2.0, 2.0 + 1e-6], [1.0, 3.0]]).view(4, 1, 1, 2)
    assert stretch(flat).flatten(1).tolist() == [[0, 0], [1, 1], [1, 1], [0, 1]]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_maps_can_be_differentiated(variant, aggregation):
    net, x = network(), images(2, 8).requires_grad_()
    method = NormGrad(net, "1", variant, aggregation)
    assert torch.autograd.gradcheck(lambda v: method.attribute(v, [C, 1], create_graph=True), (x,), fast_mode=True)


def test_products_of_layers_can_be_differentiated():
    net, x = network(), images(2, 8).requires_grad_()
    method = NormGrad(net, ["0", "1"])
    assert torch.autograd.gradcheck(lambda v: method.attribute(v, C, create_graph=True), (x,), fast_mode=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_positions_where_nothing_happens_have_a_derivative_too(variant):
    """A ReLU network has places where features or gradients are all zero; the root of zero must not give NaN."""
    net, x = averaging(), images()
    with torch.no_grad():
        net[0].bias.sub_(2)
    x = x.requires_grad_()
    layer = "0" if variant == "proper" else "1"
    found = NormGrad(net, layer, variant).attribute(x, C, create_graph=True)
    (second,) = torch.autograd.grad(found.sum(), x)
    assert found.isfinite().all()
    assert second.isfinite().all()
    assert (net[:2](x) == 0).all(1).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiny_gradients_do_not_vanish(variant):
    net, x = network().float(), images(dtype=torch.float32)
    wanted = NormGrad(net, "1", variant).attribute(x, C)
    with torch.no_grad():
        net[-1][-1].weight.mul_(2.0**-90)
    found = NormGrad(net, "1", variant).attribute(x, C)
    torch.testing.assert_close(found * 2.0**90, wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_alone_in_a_batch_and_in_any_chunks(variant):
    net, x = network(act=nn.SiLU), images(5)
    targets = [0, 4, 2, 2, 1]
    layers = ["0.0", "1"]
    whole = NormGrad(net, layers, variant).attribute(x, targets)
    for rows in (1, 2, 3, 16):
        close(NormGrad(net, layers, variant).attribute(x, targets, internal_batch_size=rows), whole, 1e-9)
    for row, target in enumerate(targets):
        one = NormGrad(net, layers, variant).attribute(x[row : row + 1], target)
        close(one, whole[row : row + 1], 1e-9)


def test_patches_of_a_transformer():
    net, x = transformer(), images()
    found = NormGrad(net).explain(x, C)
    assert found.coarse.shape == (3, 1, 2, 2)
    assert torch.equal(found.map, NormGrad(net, "encoder.layers.encoder_layer_1.ln_1").attribute(x, C))
    assert NormGrad(net, variant="conv3x3").attribute(x, C).any()


def test_bad_options():
    net = network()
    with pytest.raises(ValueError, match="Did you mean 'conv1x1'"):
        NormGrad(net, "1", "conv1")
    with pytest.raises(ValueError, match="aggregation must be one of"):
        NormGrad(net, "1", aggregation="mean")
    with pytest.raises(ValueError, match="loss must be one of"):
        NormGrad(net, "1", loss="hinge")
    with pytest.raises(ValueError, match="leave one of them out"):
        NormGrad(net, "1", loss="ce", score="prob")
    with pytest.raises(ValueError, match="each module once"):
        NormGrad(net, ["1", "1"])
    with pytest.raises(TypeError, match="a list of such names"):
        NormGrad(net, [])
    with pytest.raises(ValueError, match="did you mean"):
        NormGrad(net, ["1", "2.11"])

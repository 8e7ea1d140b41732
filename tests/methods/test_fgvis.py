"""FGVis: the defence on networks whose bounds are known, weights that are searched, laws and bad input."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import moreaugrad as mg
from moreaugrad.methods.fgvis.fgvis import GRID, FGVis
from moreaugrad.methods.fgvis.gradient_clipping import Guard, GuardedModel

FAST = {"budget": 12}
DEFENCES = pytest.mark.parametrize("defence", ["filter", "clip", None])
MODES = pytest.mark.parametrize("mode", ["preservation", "deletion"])


class Net(nn.Module):
    """Batch norm, an activation in place, and one that is used twice."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6)
        self.act, self.second = nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3, padding=1)
        self.last = nn.Sequential(nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4))

    def forward(self, x, scale=None):
        out = self.last(self.act(self.second(self.act(self.norm(self.first(x))))))
        return 3 * out if scale is None else out * scale.view(-1, 1)


def network(seed=0, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Net().to(dtype).eval()


X = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def guarded(model, clip=False, x=None):
    found = GuardedModel(model, 1, [], clip)
    if x is not None:
        found.probe([x[:1]], [])
    return found


def gradient(net, e, *more, target=0):
    e = e.clone().requires_grad_()
    (grad,) = torch.autograd.grad(net(e, *more)[:, target].sum(), e)
    return grad


@MODES
def test_where_no_bound_is_met_all_defences_are_plain_optimisation(mode):
    """Weights and inputs are not negative, so masked units never pass the clean ones."""
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)).double().eval()
    for parameter in net.parameters():
        parameter.data = (
            torch.rand(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) / 3
        )
    net[4].weight.data[1] += 0.3
    x = torch.rand(2, 6, dtype=torch.float64)
    maps = [FGVis(net, mode, defence, lam=1e-3, budget=8).attribute(x, 1) for defence in (None, "filter", "clip")]
    assert maps[0].any()
    for each in maps[1:]:
        torch.testing.assert_close(each, maps[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [False, True])
def test_a_unit_that_is_off_in_the_image_passes_no_gradient(clip):
    """h1 = relu(x1), h2 = relu(x1 - x2): at x = (1, 2) the second is off; at e = (1, 0) it would be on."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False)).double().eval().requires_grad_(False)
    net[0].weight.copy_(torch.tensor([[1.0, 0.0], [1.0, -1.0]]))
    net[0].bias.zero_()
    net[2].weight.copy_(torch.tensor([[5.0, 7.0], [0.0, 0.0]]))
    x, e = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([[1.0, 0.0]]).double()
    assert gradient(net, e).tolist() == [[12.0, -7.0]]
    held = guarded(net, clip)
    assert gradient(held, e, x).tolist() == [[5.0, 0.0]]
    assert float(held(e, x)[0, 0]) == (5.0 if clip else 12.0)
    assert gradient(held, torch.tensor([[1.5, 2.0]]).double(), x).tolist() == [[0.0, 0.0]]  # more than in the image


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.SiLU(), nn.Softplus(), nn.Tanh(), nn.LeakyReLU(0.2)])
@pytest.mark.parametrize("clip", [False, True])
def test_bounds_of_one_activation(activation, clip):
    clean, masked = (2 * torch.randn(2, 400, dtype=torch.float64)).unbind()
    masked = masked.requires_grad_()
    h, bound = activation(masked), activation(clean)
    low, high = bound.clamp(max=0), bound.clamp(min=0)
    inside = (h >= low) & (h <= high)
    out = Guard(activation, clip)(torch.stack([clean, masked]))
    assert torch.equal(out[0], bound)
    torch.testing.assert_close(out[1], torch.maximum(torch.minimum(h, high), low) if clip else h, rtol=0, atol=0)
    (grad,) = torch.autograd.grad(out[1].sum(), masked, retain_graph=True)
    (plain,) = torch.autograd.grad(h.sum(), masked)
    torch.testing.assert_close(grad, torch.where(inside, plain, 0))
    assert inside.any()
    assert not inside.all()


def test_every_unit_stays_inside_its_bounds_when_clipped():
    net, outputs = guarded(network(), clip=True), []
    for module in net.modules():
        if isinstance(module, Guard):
            module.register_forward_hook(lambda _, __, output: outputs.append(output))
    net(X * torch.rand_like(X), X)
    assert len(outputs) == 3
    for output in outputs:
        clean, masked = output.chunk(2)
        assert (masked <= clean.clamp(min=0)).all()
        assert (masked >= clean.clamp(max=0)).all()


@pytest.mark.parametrize("clip", [False, True])
def test_the_image_itself_is_inside_its_bounds(clip):
    """The comparisons include the bounds, or nothing would ever start."""
    for dtype, near in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        net, x = network(dtype=dtype), X.to(dtype)
        held = guarded(net, clip, x)
        torch.testing.assert_close(held(x, x), net(x), rtol=near, atol=near)
        torch.testing.assert_close(gradient(held, x, x), gradient(net, x), rtol=near, atol=near)


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "mobilenet_v2"])
def test_torchvision_networks_can_be_defended(name):
    import torchvision

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torchvision.models.get_model(name, weights=None, num_classes=10).eval()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    before = copy.deepcopy(net.state_dict())
    kinds = [type(module) for module in net.modules()]
    places = [getattr(module, "inplace", None) for module in net.modules()]
    held = guarded(net, False, x)
    activations = [m for m in net.modules() if "activation" in type(m).__module__]
    assert sum(isinstance(m, Guard) for m in held.modules()) == len(activations) > 0
    assert torch.equal(held(x, x), net(torch.cat([x, x]))[2:])
    other = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(held(other, x), net(other), rtol=1e-4, atol=1e-5)  # a filter changes no value
    plain = gradient(net, other)
    assert (gradient(held, other, x) - plain).norm() > 0.1 * plain.norm()
    assert [type(module) for module in net.modules()] == kinds
    assert [getattr(module, "inplace", None) for module in net.modules()] == places
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


def test_the_embedded_network_can_be_explained():
    net = mg.load_model("efficientnet_lite0")
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    found = FGVis(net, lam=1e-4, budget=3).explain(x, internal_batch_size=2)
    assert found.map.shape == x.shape
    assert found.map.isfinite().all()
    assert ((found.map > 0) & (found.map < 1)).any()


def test_an_activation_that_is_the_output_has_no_bounds():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3), nn.Softplus()).double().eval()
    x, e = torch.randn(2, 4, dtype=torch.float64), 5 * torch.randn(2, 4, dtype=torch.float64)
    held = guarded(net, True, x)
    assert [type(module) for module in held.body] == [nn.Linear, Guard, nn.Linear, nn.Softplus]
    inner = net[0](e).relu()
    bound = net[0](x).relu()
    torch.testing.assert_close(held(e, x), F.softplus(net[2](torch.minimum(inner, bound))))


@pytest.mark.parametrize(
    "function", [F.relu, torch.relu, F.silu, torch.sigmoid, F.gelu, torch.Tensor.relu_, torch.tanh]
)
def test_activations_that_are_functions_are_refused(function):
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(function(1 * x))

    with pytest.raises(ValueError, match=rf"every activation must be a module.*{function.__name__.rstrip('_')}\(\)"):
        FGVis(Functional().eval()).attribute(torch.randn(1, 4), 1)
    plain = FGVis(Functional().eval(), defence=None, budget=3).attribute(torch.randn(1, 4), 1)
    assert plain.shape == (1, 4)


@DEFENCES
def test_a_huge_weight_empties_a_preserving_mask(defence):
    assert not FGVis(network(), defence=defence, lam=1e6, budget=12).attribute(X, 1).any()
    assert not FGVis(network(), "deletion", defence, lam=1e6, budget=12).attribute(X, 1).any()


def hooked(net, x, clip):
    """The defence once more: activations of the clean image are stored, then held against by hooks on gradients."""
    slow = copy.deepcopy(net).requires_grad_(False)
    slow.act.inplace = False
    clean, place = [], [0]

    def store(_, __, output):
        clean.append(output.detach())

    def hold(_, __, output):
        bound = clean[place[0] % len(clean)]
        place[0] += 1
        low, high, slack = bound.clamp(max=0), bound.clamp(min=0), 1e-6 * (1 + bound.abs())
        allowed = (output >= low - slack) & (output <= high + slack)
        if clip:
            output = output - (output - output.clamp(low, high)).detach()
        output.register_hook(lambda grad: grad * allowed)
        return output

    places = [slow.act, slow.last[0]]
    hooks = [module.register_forward_hook(store) for module in places]
    slow(x)
    for hook in hooks:
        hook.remove()
    for module in places:
        module.register_forward_hook(hold)
    return slow


@MODES
@DEFENCES
def test_steps_by_a_second_derivation(mode, defence):
    net, lam, x = network(3), 1e-3, X[:1]
    found = FGVis(net, mode, defence, lam=lam, lr=0.2, budget=4).attribute(x, 2)
    slow = net if defence is None else hooked(net, x, defence == "clip")
    mask, sign = torch.ones_like(x), 1 if mode == "preservation" else -1
    for _ in range(4):
        if mode == "deletion" and net(x).argmax() == 2 and net(mask * x).argmax() != 2:
            break
        mask.requires_grad_()
        chance = slow(mask * x).softmax(1)[:, 2].sum()
        (grad,) = torch.autograd.grad(-sign * chance, mask)
        grad = grad + sign * lam
        free = torch.where(grad > 0, mask > 0, mask < 1)
        mask = (mask - 0.2 * grad / grad[free].abs().max()).detach().clamp(0, 1)
    assert 0 < found.mean() < 1
    torch.testing.assert_close(found, mask if mode == "preservation" else 1 - mask, rtol=0, atol=1e-10)


@MODES
def test_a_search_finds_a_weight_of_the_grid_that_holds(mode):
    net = network()
    found = FGVis(net, mode, budget=120).explain(X)
    target = net(X).argmax(1)
    whole = net(X).softmax(1).gather(1, target[:, None])[:, 0]
    kept = found.map if mode == "preservation" else 1 - found.map
    chance = net(kept * X).softmax(1).gather(1, target[:, None])[:, 0]
    grid = torch.tensor(GRID, dtype=torch.float64) * 150528 / X[0].numel()
    assert all(torch.isclose(grid, eta).any() for eta in found.eta)
    holds = chance >= 0.9 * whole if mode == "preservation" else chance < 0.05 * (2 * whole).clamp(max=1)
    assert torch.equal(found.converged, holds)
    if mode == "preservation":
        assert holds.all()
        assert found.gradients.tolist() == [120] * 3
        assert (found.map.flatten(1).mean(1) < 0.9).all()
    assert (found.gradients <= 120).all()


def test_a_search_is_as_good_as_every_weight_on_its_way():
    """Each of the three weights tried, run alone for a third of the budget: the sparsest that holds is returned."""
    net, budget = network(), 60
    found = FGVis(net, budget=budget).explain(X[:1])
    target = int(net(X[:1]).argmax())
    whole = net(X[:1]).softmax(1)[0, target]
    place, sizes = 3, {}
    for stride in (2, 1, 0):
        lam = GRID[place] * 150528 / X[0].numel()
        mask = FGVis(net, lam=lam, budget=budget // 3).attribute(X[:1], target)
        holds = bool(net(mask * X[:1]).softmax(1)[0, target] >= 0.9 * whole)
        if holds:
            sizes[float(mask.mean())] = mask
        place += stride if holds else -stride
    assert sizes
    torch.testing.assert_close(found.map, sizes[min(sizes)], rtol=0, atol=1e-10)


@DEFENCES
def test_deletion_stops_when_the_prediction_flips(defence):
    net = network(3)
    target = net(X).argmax(1)
    found = FGVis(net, "deletion", defence, lam=1e-4, budget=100, lr=0.05).explain(X, target)
    flipped = net((1 - found.map) * X).argmax(1) != target
    assert flipped.any()
    assert torch.equal(found.gradients < 100, flipped)
    for row in flipped.nonzero().flatten().tolist()[:1]:
        steps = int(found.gradients[row])
        earlier = FGVis(net, "deletion", defence, lam=1e-4, budget=steps - 2, lr=0.05).attribute(X, target)
        assert net((1 - earlier) * X)[row].argmax() == target[row]  # one step before, the class was still there


def test_deletion_of_a_class_that_is_not_predicted_goes_on():
    net = network()
    least = net(X).argmin(1)
    found = FGVis(net, "deletion", lam=1e-5, budget=10).explain(X, least)
    assert found.gradients.tolist() == [10] * 3
    assert found.map.flatten(1).any(1).all()
    searched = FGVis(net, "deletion", budget=30).explain(X, least)
    assert searched.map.flatten(1).any(1).all()


@MODES
@DEFENCES
@pytest.mark.parametrize("smoothing", [None, mg.Smoothing(noise_level=0.1, samples=3)])
@pytest.mark.parametrize("lam", [None, 0.01])
def test_alone_as_in_a_batch_and_in_any_chunks(mode, defence, smoothing, lam):
    net, wanted = network(), [0, 1, 2]
    method = FGVis(net, mode, defence, lam, smoothing=smoothing, **FAST)
    maps = method.attribute(X, wanted)
    assert torch.equal(method.attribute(X, wanted), maps)
    for row in range(3):
        torch.testing.assert_close(method.attribute(X[row : row + 1], row), maps[row : row + 1], rtol=0, atol=1e-8)
    for rows in (1, 2, 100):
        found = method.attribute(X, wanted, internal_batch_size=rows)
        torch.testing.assert_close(found, maps, rtol=0, atol=1e-8)
    assert (maps >= 0).all()
    assert (maps <= 1).all()


@pytest.mark.parametrize("defence", ["filter", "clip"])
def test_blocks_of_images_and_arguments_that_follow_them(defence, monkeypatch):
    net, scale = network(), torch.tensor([1.0, 4.0, -2.0], dtype=torch.float64)
    maps = FGVis(net, defence=defence, lam=0.01, **FAST).attribute(X, [0, 1, 2], scale)
    for row in range(3):
        one = FGVis(net, defence=defence, lam=0.01, **FAST)
        found = one.attribute(X[row : row + 1], row, scale[row : row + 1])
        torch.testing.assert_close(found, maps[row : row + 1], rtol=0, atol=1e-8)
    monkeypatch.setattr("moreaugrad.methods.base.safe_block", lambda x: 2)
    blocks = FGVis(net, defence=defence, lam=0.01, **FAST).attribute(X, [0, 1, 2], scale)
    torch.testing.assert_close(blocks, maps, rtol=0, atol=1e-8)


def test_tuples_have_a_mask_each():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, a, b):
            odds = self.act(a).sum(1) - self.act(b).sum((1, 2))
            return torch.stack([0 * odds, odds], 1)

    a, b = torch.ones(2, 4, dtype=torch.float64), torch.ones(2, 2, 3, dtype=torch.float64)
    first, second = FGVis(Two().eval(), lam=0.01, budget=20).attribute((a, b), 1)
    assert first.shape == a.shape
    assert second.shape == b.shape
    assert (first == 1).all()
    assert (second == 0).all()


def test_seeds():
    net, smoothing = network(), mg.Smoothing(noise_level=0.2, samples=2)
    first = FGVis(net, lam=0.01, smoothing=smoothing, **FAST).explain(X, 1)
    assert torch.equal(first.map, FGVis(net, lam=0.01, smoothing=smoothing, **FAST).attribute(X, 1))
    assert not torch.equal(first.map, FGVis(net, lam=0.01, smoothing=smoothing, seed=1, **FAST).attribute(X, 1))
    assert first.seed == 0
    assert first.gradients.tolist() == [12] * 3


def test_changed_weights_are_noticed_and_a_method_can_be_stored():
    net = network()
    method = FGVis(net, lam=0.01, **FAST)
    first = method.attribute(X, 1)
    restored = pickle.loads(pickle.dumps(method))
    assert torch.equal(restored.attribute(X, 1), first)
    with torch.no_grad():
        net.first.weight.mul_(-1)
    changed = method.attribute(X, 1)
    assert not torch.equal(changed, first)
    assert torch.equal(changed, FGVis(net, lam=0.01, **FAST).attribute(X, 1))


@MODES
@DEFENCES
@pytest.mark.parametrize("lam", [None, 0.0])
def test_a_constant_network_gives_no_nan(mode, defence, lam):
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).double().eval()
    net[2].weight.data.zero_()
    found = FGVis(net, mode, defence, lam, budget=9).attribute(torch.randn(2, 5, dtype=torch.float64), 1)
    assert found.isfinite().all()
    if lam == 0:
        assert (found == (1 if mode == "preservation" else 0)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score": "logit"}, "score must be 'prob'"),
        ({"mode": "keep"}, "mode must be one of"),
        ({"defence": "block"}, "defence must be one of"),
        ({"lam": -1.0}, "lam"),
        ({"lr": 0.0}, "lr"),
        ({"budget": 0}, "budget"),
        ({"budget": 4, "smoothing": mg.Smoothing(samples=5)}, "budget must be at least 5"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        FGVis(network(), **options)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_a_function_cannot_be_defended():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got function.*defence=None"):
        FGVis(lambda v: v)
    scripted = torch.jit.trace(nn.Linear(2, 2), torch.randn(1, 2))
    with pytest.raises(TypeError, match="got a scripted module"):
        FGVis(scripted)
    assert FGVis(lambda v: v[:, :3], defence=None, budget=3).attribute(torch.randn(2, 4), 1).shape == (2, 4)

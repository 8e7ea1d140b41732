"""DeepLIFT: closed forms, Captum where Captum can, completeness where it cannot, and honest refusals."""

import copy
import pickle
import warnings

import pytest
import torch
from captum.attr import DeepLift as Captum
from captum.attr._core.deep_lift import SUPPORTED_NON_LINEAR
from model_copies import out_of_place, unshared
from torch import nn
from torch.nn import functional as F

import moreaugrad as mg
from moreaugrad.methods.deeplift.deeplift import DeepLift
from moreaugrad.methods.deeplift.graph_rewrite import Pool, trace_operations
from moreaugrad.methods.integrated import IntegratedGradients


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def filled(net, dtype=torch.float64):
    for index, parameter in enumerate(net.parameters()):
        parameter.data = random(*parameter.shape, seed=index) / parameter[0].numel() ** 0.5
    return net.to(dtype).eval()


def network(activation=nn.ReLU, pool=None, dtype=torch.float64):
    pool = pool or nn.MaxPool2d(2)
    body = nn.Sequential(nn.Conv2d(3, 6, 3), pool, nn.BatchNorm2d(6), activation(), nn.Conv2d(6, 6, 3, padding=1))
    return filled(nn.Sequential(body, activation(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5)), dtype)


def captum(net, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Captum(net).attribute(*arguments, return_convergence_delta=True, **options)


def missing(found, net, x, x0, target):
    """The share of the score's rise that the map's sum misses."""
    with torch.no_grad():
        rise = (net(x) - net(x0))[:, target]
    return (found.flatten(1).sum(1) - rise).abs() / rise.abs()


X, X0 = random(3, 3, 12, 12, seed=90), random(3, 3, 12, 12, seed=91) / 3


class Shared(nn.Module):
    """One ReLU used twice, in place, and a third as a function."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third, self.head = (nn.Linear(6, 6) for _ in range(4))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        hidden = self.act(self.first(x))
        hidden = hidden + self.act(self.second(hidden))
        return self.head(F.relu(self.third(hidden)))


class Separate(Shared):
    """The same with a module at each place."""

    def __init__(self):
        super().__init__()
        self.acts = nn.ModuleList(nn.ReLU() for _ in range(3))

    def forward(self, x):
        hidden = self.acts[0](self.first(x))
        hidden = hidden + self.acts[1](self.second(hidden))
        return self.head(self.acts[2](self.third(hidden)))


@pytest.mark.parametrize(
    ("function", "module"),
    [
        (torch.relu, nn.ReLU()),
        (lambda z: z.clamp(0, 6), nn.ReLU6()),
        (lambda z: z.clamp(-0.3, 0.8), nn.Hardtanh(-0.3, 0.8)),
        (F.softplus, nn.Softplus()),
        (torch.sigmoid, nn.Sigmoid()),
    ],
)
def test_one_activation_has_a_closed_form(function, module):
    """x w (g(w.x) - g(0)) / w.x, also where the activation is a function."""
    w, x = 3 * random(6, seed=1), random(5, 6, seed=2)
    z = x @ w
    wanted = x * w * ((function(z) - function(torch.zeros_like(z))) / z)[:, None]
    for score in (lambda v: function(v @ w), lambda v: module(v @ w)):
        torch.testing.assert_close(DeepLift(score).attribute(x), wanted, rtol=1e-12, atol=1e-14)


def test_a_deep_linear_network_is_shared_out_as_by_integrated_gradients():
    net = filled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(100, 3)))
    found, gap = DeepLift(net).attribute(X, target=1, baselines=X0, return_convergence_delta=True)
    gradient = mg.Gradient(net).attribute(X, target=1)
    torch.testing.assert_close(found, (X - X0) * gradient, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        found, IntegratedGradients(net, 5).attribute(X, target=1, baselines=X0), rtol=1e-10, atol=1e-12
    )
    assert (gap.abs() < 1e-12).all()


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh, nn.Softplus])
def test_is_captums_where_captum_can(activation):
    net = network(activation)
    theirs, delta = captum(net, X, X0, target=[1, 0, 4])
    ours, gap = DeepLift(net).attribute(X, target=[1, 0, 4], baselines=X0, return_convergence_delta=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gap, delta, rtol=0, atol=1e-12)
    assert (gap.abs() < 1e-12).all()


def test_shared_in_place_and_functional_activations_are_distinguished():
    shared, separate, x = filled(Shared()), Separate().double().eval(), random(4, 6, seed=3)
    separate.load_state_dict(shared.state_dict())
    theirs, _ = captum(separate, x, torch.zeros_like(x), target=2)
    torch.testing.assert_close(DeepLift(shared).attribute(x, target=2), theirs, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(DeepLift(shared.forward).attribute(x, target=2), theirs, rtol=1e-10, atol=1e-13)
    assert shared.act.inplace


def test_a_layer_in_place_at_the_input_leaves_it_alone():
    net, x = filled(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 2))), random(3, 6, seed=4)
    before = x.clone()
    found = DeepLift(net).attribute(x, target=1)
    assert torch.equal(x, before)
    torch.testing.assert_close(found, x.clamp(min=0) * net[1].weight[1].detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("activation", "scale"), [(nn.ReLU6, 20), (lambda: nn.Hardtanh(-0.5, 0.7), 1)])
def test_bounded_activations_are_complete_and_captums_are_not(activation, scale):
    net = network(activation)
    x, x0 = scale * X, scale * X0  # beyond both bounds
    assert (missing(DeepLift(net).attribute(x, target=1, baselines=x0), net, x, x0, 1) < 1e-11).all()
    assert (missing(captum(net, x, x0, target=1)[0], net, x, x0, 1) > 1e-3).all()


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.MaxPool2d((2, 3), (1, 2), dilation=(2, 1)),
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, 3),
    ],
    ids=str,
)
def test_pooling_is_complete_whatever_its_windows(pool):
    net = network(nn.ReLU, pool)
    found = DeepLift(net).explain(X, 1, baselines=X0)
    assert (missing(found.map, net, X, X0, 1) < 1e-11).all()
    body, _ = trace_operations(pool, (X,), ())
    assert any(isinstance(module, Pool) for module in body.modules())
    assert torch.equal(body(X), pool(X))


def test_captum_loses_what_overlapping_windows_share():
    net = network(nn.ReLU, nn.MaxPool2d(3, 2, 1))
    assert (missing(captum(net, X, X0, target=1)[0], net, X, X0, 1) > 1e-3).any()


def test_what_an_activation_reads_may_have_other_readers():
    """Captum's hook at an activation's input would speak for all of them."""
    skip = Changed(lambda v: F.relu(v) + v)
    net, x = filled(nn.Sequential(nn.Linear(6, 6), skip, nn.Linear(6, 2))), random(4, 6, seed=5)
    found = DeepLift(net).attribute(x, target=1)
    assert (missing(found, net, x, 0 * x, 1) < 1e-11).all()
    both = filled(nn.Sequential(nn.Linear(6, 6), Changed(lambda v: torch.cat([F.relu(v), v], 1)), nn.Linear(12, 2)))
    with torch.no_grad():
        both[0].load_state_dict(net[0].state_dict())
        both[2].weight.copy_(net[2].weight.repeat(1, 2))
    torch.testing.assert_close(DeepLift(both).attribute(x, target=1), found, rtol=1e-10, atol=1e-13)


def test_activations_in_a_row_are_complete_and_captums_are_not():
    """Captum's hooks of two modules that meet at one tensor do not see each other's work."""
    for layers in ([nn.ReLU(), nn.MaxPool2d(2)], [nn.ELU(), nn.Sigmoid(), nn.Tanh()]):
        net = filled(
            nn.Sequential(nn.Conv2d(3, 6, 3), *layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5))
        )
        assert (missing(DeepLift(net).attribute(X, target=1, baselines=X0), net, X, X0, 1) < 1e-11).all()
        assert (missing(captum(net, X, X0, target=1)[0], net, X, X0, 1) > 1e-3).all()


@pytest.mark.parametrize("pool", [nn.MaxPool1d(3, 2, 1), nn.MaxPool3d(3, 2, 1), nn.MaxPool3d(2)], ids=str)
def test_pooling_of_lines_and_volumes(pool):
    shape = (6,) if isinstance(pool, nn.MaxPool1d) else (6, 6, 6)
    conv = nn.Conv1d if len(shape) == 1 else nn.Conv3d
    net = filled(
        nn.Sequential(conv(2, 3, 3, padding=1), nn.ReLU(), pool, nn.Flatten(), nn.Linear(3 ** (1 + len(shape)), 2))
    )
    x, x0 = random(2, 2, *shape, seed=6), random(2, 2, *shape, seed=7)
    assert (missing(DeepLift(net).attribute(x, target=1, baselines=x0), net, x, x0, 1) < 1e-11).all()


def test_entries_that_do_not_change_take_their_own_gradient():
    """In a pool Captum's rule takes that of the first image of the batch."""
    net, x = network(nn.ReLU), X.clone()
    x0 = x.clone()
    x0[:, :, :6] = 0  # half of the pool's windows see no change
    method = DeepLift(net, multiply_by_inputs=False)
    whole = method.attribute(x, target=1, baselines=x0)
    for row in range(3):
        one = slice(row, row + 1)
        torch.testing.assert_close(
            method.attribute(x[one], target=1, baselines=x0[one]), whole[one], rtol=1e-10, atol=1e-12
        )
    assert not torch.allclose(whole[1:, :, 6:], whole[:1, :, 6:].expand(2, -1, -1, -1))


def test_an_image_that_is_its_baseline_has_a_map_of_zeros_and_no_warning(caplog):
    found = DeepLift(network()).explain(X, 1, baselines=X)
    assert not found.map.any()
    assert not found.residual.any()
    assert "sum up" not in caplog.text


def known(name, size):
    """A network by name. Random weights are made lively: with zero biases, the gradient alone would be complete."""
    import torchvision

    if name == "efficientnet_lite0":
        return mg.load_model(name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        own = name == "resnet18_softplus"
        model = mg.load_model(name) if own else getattr(torchvision.models, name)(weights=None)
        for module in model.modules():
            if getattr(module, "bias", None) is not None:
                nn.init.normal_(module.bias, 0, 0.3)
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0
        with torch.no_grad():
            model.train()(torch.randn(8, 3, size, size))
    return model.eval()


@pytest.mark.parametrize(
    ("name", "size", "served"),
    [
        ("resnet18", 64, False),
        ("mobilenet_v2", 64, False),
        ("vgg11_bn", 32, False),
        ("densenet121", 32, False),
        ("efficientnet_lite0", 160, False),
        ("resnet18_softplus", 32, True),
    ],
)
def test_known_networks_are_complete(name, size, served, caplog):
    """Captum itself, on a copy with separate activations, misses a good part unless it serves all layers."""
    model = known(name, size)
    x, x0 = random(2, 3, size, size, dtype=torch.float32), random(2, 3, size, size, seed=1, dtype=torch.float32) / 2
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        rises = model(x) - model(x0)
    target = rises.abs().argmax(1)  # of a difference that is not all rounding
    rise = rises.gather(1, target[:, None])[:, 0]
    found = DeepLift(model).explain(x, target, baselines=x0)
    assert (found.residual.abs() < 1e-3 * rise.abs()).all()
    assert ((found.map.double().sum((1, 2, 3)) - rise).abs() < 1e-3 * rise.abs()).all()
    assert "sum up" not in caplog.text
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    separate = out_of_place(model) if hasattr(model, "network") else unshared(model)
    theirs, _ = captum(separate, x, x0, target=target)
    lost = (theirs.sum((1, 2, 3)) - rise).abs() / rise.abs()
    assert (lost < 1e-3).all() if served else (lost > 0.02).any()


class Gated(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x.mean(1, keepdim=True))


class Attended(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(*[x[:, None, :, None]] * 3)[:, 0, :, 0]


class Changed(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(x)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.SiLU(), "silu"),
        (nn.GELU(), "gelu"),
        (nn.Hardswish(), "hardswish"),
        (nn.LayerNorm(6), "native_layer_norm"),
        (nn.GroupNorm(2, 6), "native_group_norm"),
        (nn.Softmax(1), "returns logits"),
        (Gated(), "mul of two activations"),
        (Attended(), "of two activations"),
        (Changed(lambda v: v * v), "mul of two activations"),
        (Changed(lambda v: v / v.abs()), "abs"),
        (Changed(lambda v: v + v.round()), "round"),
        (Changed(lambda v: v + v.long()), "_to_copy"),
        (Changed(lambda v: torch.div(v, 0.1, rounding_mode="floor")), "div"),
        (Changed(lambda v: torch.where(v > 0, v, 0)), "gt"),
        (Changed(lambda v: torch.maximum(v, v.flip(1))), "maximum of two activations"),
    ],
)
def test_networks_that_no_rule_serves_are_refused(layer, words):
    net = filled(nn.Sequential(nn.Linear(6, 6), layer, nn.Linear(6, 2)))
    with pytest.raises(ValueError, match=words):
        DeepLift(net).attribute(random(3, 6), target=1)
    found = DeepLift(net, strict=False).attribute(random(3, 6), target=1)
    assert found.isfinite().all()


def test_a_cut_of_the_derivative_does_not_count():
    """DeepLIFT explains what a network says, not what it learns from."""
    net, x = (
        filled(nn.Sequential(nn.Linear(6, 6), Changed(lambda v: F.relu(v) + v.detach()), nn.Linear(6, 2))),
        random(3, 6),
    )
    assert (missing(DeepLift(net).attribute(x, target=1), net, x, 0 * x, 1) < 1e-11).all()


def test_instance_norm_is_refused():
    net = filled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.Flatten(), nn.Linear(400, 2)))
    with pytest.raises(ValueError, match="native_batch_norm"):
        DeepLift(net).attribute(X, target=1)


def test_efficientnet_is_refused_and_warned_of_where_forced(caplog):
    model = known("efficientnet_b0", 32)
    x = random(1, 3, 32, 32, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"mul of two activations, silu; use the method `integrated_gradients`"):
        DeepLift(model).attribute(x, target=1)
    DeepLift(model, strict=False).attribute(x, target=1)
    assert "1 of 1 maps do not sum up" in caplog.text


def test_ways_that_depend_on_values_are_refused():
    net = filled(nn.Linear(6, 2))
    with pytest.raises(ValueError, match="must not depend on its values"):
        DeepLift(lambda v: net(v) if v.sum() > 0 else -net(v)).attribute(random(3, 6), target=1)


@pytest.mark.parametrize("kind", ["prob", "logprob"])
def test_probabilities_are_shared_out_completely(kind):
    net = network(nn.ReLU)
    head = nn.Softmax(1) if kind == "prob" else nn.LogSoftmax(1)
    found = DeepLift(net, score=kind).explain(X, [1, 0, 4], baselines=X0)
    with torch.no_grad():
        rise = (head(net(X)) - head(net(X0)))[torch.arange(3), torch.tensor([1, 0, 4])]
    torch.testing.assert_close(found.map.sum((1, 2, 3)), rise, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.score, head(net(X)).detach()[torch.arange(3), torch.tensor([1, 0, 4])])
    for row, target in enumerate([1, 0, 4]):  # where Captum's rule for softmax looks at the whole batch
        one = DeepLift(net, score=kind).attribute(X[row : row + 1], target=target, baselines=X0[row : row + 1])
        torch.testing.assert_close(one, found.map[row : row + 1], rtol=1e-10, atol=1e-13)


def test_bad_targets():
    with pytest.raises(ValueError, match="target must be below 5"):
        DeepLift(network()).attribute(X, target=5)
    with pytest.raises(ValueError, match="target must be given"):
        DeepLift(network()).attribute(X)


def test_outputs_that_do_not_depend_on_the_input():
    with pytest.raises(ValueError, match="must depend on its input"):
        DeepLift(lambda v: torch.ones(len(v)) * 2).attribute(X)


@pytest.mark.parametrize("target", [2, -1, [1, 0, 4], torch.tensor([1, 0, 4]), torch.tensor(3)])
def test_targets(target):
    net = network()
    wanted = target if isinstance(target, list) else [int(t) % 5 for t in torch.as_tensor(target).expand(3)]
    theirs, _ = captum(net, X, X0, target=wanted)
    torch.testing.assert_close(DeepLift(net).attribute(X, target=target, baselines=X0), theirs, rtol=1e-9, atol=1e-12)


def test_compiled_models_and_outputs_with_logits():
    net = network()
    wanted = DeepLift(net).attribute(X, target=1)
    assert torch.equal(DeepLift(lambda v: {"logits": net(v)}).attribute(X, target=1), wanted)
    assert torch.equal(DeepLift(torch.compile(net, backend="eager")).attribute(X, target=1), wanted)


def test_arguments_follow_their_image():
    net, scale = network(), torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)

    def scaled(v, s, power, shift):
        return net(v) * s[:, None] ** power + shift

    arguments = (scale, 2, torch.ones(5, dtype=torch.float64))
    found = DeepLift(scaled).attribute(
        X, target=1, additional_forward_args=arguments, baselines=X0, internal_batch_size=4
    )
    plain = DeepLift(net).attribute(X, target=1, baselines=X0)
    torch.testing.assert_close(found, plain * scale.square().view(3, 1, 1, 1), rtol=1e-10, atol=1e-12)


def test_tuples_have_baselines_of_their_own():
    a, b, w = random(2, 4, seed=1), random(2, 2, 3, seed=2), random(4, seed=3)
    score = lambda v, u: F.relu(v @ w + u.sum((1, 2)))  # noqa: E731
    first, second = DeepLift(score).attribute((a, b), baselines=(0.5, 1.0))
    base = (torch.full_like(a, 0.5), torch.ones_like(b))
    torch.testing.assert_close(first.sum(1) + second.sum((1, 2)), score(a, b) - score(*base), rtol=1e-10, atol=1e-12)


def test_the_multipliers_alone():
    net = network()
    parts = DeepLift(net).explain(X, 1, baselines=X0)
    alone = DeepLift(net, multiply_by_inputs=False).explain(X, 1, baselines=X0)
    torch.testing.assert_close(alone.map * (X - X0), parts.map, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(alone.residual, parts.residual)
    assert (parts.gradients == 2).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_in_any_batch_and_any_chunks(dtype):
    net, x, x0 = network(nn.ReLU6, nn.MaxPool2d(3, 2, 1), dtype), X.to(dtype), X0.to(dtype)
    whole = DeepLift(net).attribute(x, target=[1, 0, 4], baselines=x0)
    near = (1e-8 if dtype == torch.float64 else 1e-5) * float(whole.abs().max())
    for rows in (1, 2, 3, 4, 5, 16):
        found = DeepLift(net).attribute(x, target=[1, 0, 4], baselines=x0, internal_batch_size=rows)
        assert (found - whole).abs().max() <= near
    for row, target in enumerate([1, 0, 4]):
        one = DeepLift(net).attribute(x[row : row + 1], target=target, baselines=x0[row : row + 1])
        assert (one - whole[row : row + 1]).abs().max() <= near


def test_the_copy_is_kept_until_the_model_changes(monkeypatch):
    made = []
    monkeypatch.setattr(
        "moreaugrad.methods.deeplift.deeplift.trace_operations", lambda *a: made.append(1) or trace_operations(*a)
    )
    net = network()
    method = DeepLift(net)
    first = method.attribute(X, target=1, baselines=X0, internal_batch_size=2)
    method.attribute(X[:1], target=2, baselines=X0[:1], internal_batch_size=2)
    assert len(made) == 1
    with torch.no_grad():
        net[-1].weight *= 2
    torch.testing.assert_close(method.attribute(X, target=1, baselines=X0, internal_batch_size=2), 2 * first)
    net[1] = nn.Softplus()
    changed = method.attribute(X, target=1, baselines=X0, internal_batch_size=2)
    torch.testing.assert_close(changed, DeepLift(net).attribute(X, target=1, baselines=X0, internal_batch_size=2))
    again = pickle.loads(pickle.dumps(method))
    assert "_copies" not in vars(again)
    torch.testing.assert_close(again.attribute(X, target=1, baselines=X0, internal_batch_size=2), changed)


def test_captums_table_of_rules_and_the_modules_stay_as_they_are():
    net, table = network(), dict(SUPPORTED_NON_LINEAR)
    DeepLift(net).explain(X)
    assert table == SUPPORTED_NON_LINEAR
    assert not any({"input", "output", "input_ref"} & vars(module).keys() for module in net.modules())


def test_out_of_memory_halves_the_rows(caplog):
    net, room = network(), 4

    def small(v):
        if len(v) > room:
            raise torch.OutOfMemoryError("no room")
        return net(v)

    found = DeepLift(small).attribute(X, target=1, baselines=X0, internal_batch_size=16)
    torch.testing.assert_close(found, DeepLift(net).attribute(X, target=1, baselines=X0), rtol=1e-9, atol=1e-12)
    assert "continuing with" in caplog.text
    room = 1
    with pytest.raises(torch.OutOfMemoryError):
        DeepLift(small).attribute(X, target=1, baselines=X0)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"baseline": "whit"}, ValueError, "baseline must be one of"),
        ({"strict": 0}, TypeError, "strict must be True, False"),
        ({"eps": 0.0}, ValueError, "eps must be a positive"),
        ({"precision": "bfloat16"}, ValueError, "precision must be 'float32'"),
        ({"compile": True}, ValueError, "compile False for DeepLIFT"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        DeepLift(network(), **options)


def test_maps_cannot_be_differentiated():
    with pytest.raises(ValueError, match="create_graph=True must be left out"):
        DeepLift(network()).attribute(X, target=1, create_graph=True)


@pytest.mark.parametrize("baselines", [0, 0.5, X0, X0[:1]], ids=["int", "float", "batch", "one"])
def test_captums_positional_arguments(baselines):
    net, target = network(nn.Softplus), torch.tensor([1, 0, 4])
    theirs, delta = captum(net, X, baselines, target, None)
    ours, gap = DeepLift(net).attribute(X, baselines, target, None, True)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gap, delta, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "custom",
    [
        lambda multipliers: tuple(m.abs() for m in multipliers),
        lambda multipliers, inputs: tuple(m * x for m, x in zip(multipliers, inputs, strict=True)),
        lambda multipliers, inputs, baselines: tuple(
            m * (x - x0) ** 2 for m, x, x0 in zip(multipliers, inputs, baselines, strict=True)
        ),
    ],
    ids=["multipliers", "inputs", "baselines"],
)
def test_custom_attributions_are_captums(custom):
    net = network(nn.Softplus)
    theirs, delta = captum(net, X, X0, 1, None, custom_attribution_func=custom)
    ours, gap = DeepLift(net).attribute(X, X0, 1, None, True, custom)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gap, delta, rtol=1e-9, atol=1e-9)
    assert torch.equal(DeepLift(net).attribute(X, X0, 1, custom_attribution_func=custom), ours)


def test_bad_custom_attributions_and_classes_in_the_place_of_baselines():
    with pytest.raises(TypeError, match="custom_attribution_func must be a function"):
        DeepLift(network()).attribute(X, X0, 1, custom_attribution_func=3)
    with pytest.raises(ValueError, match=r"second argument .* is baselines, as in Captum.*write target=1"):
        DeepLift(network()).attribute(X, 1)

"""Members from outside the package: one file and one `register` each, in Python, on the command line, in `certify`."""

import importlib
import inspect
import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from outside.elastic_net import ElasticNet
from PIL import Image
from torch import nn

import moreaugrad as mg
from moreaugrad import registry
from moreaugrad.envelope.priors import take_prior

OUTSIDE = Path(__file__).parent / "support" / "outside"
MEMBERS = ("elastic_net", "input_times_gradient", "flatten_map", "largest_gap", "two_colours", "deviation")
for each in MEMBERS:
    importlib.import_module(f"outside.{each}")
X = torch.rand(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softplus(), nn.Flatten(), nn.Linear(144, 3)).double().eval()


@pytest.fixture
def photo(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


def test_a_prior_by_its_object_and_by_its_name():
    options = {"smoothing": None, "budget": 400, "eta": 0.02, "rho": 0.5}
    one, two = (
        mg.MoreauGrad(network(), prior=prior, **options).explain(X, 1) for prior in (ElasticNet(), "elastic_net")
    )
    assert torch.equal(one.map, two.map)
    # optimality, written out: u = -rho grad f(x + delta), delta = soft(u, rho eta) / (1 + rho eta ridge)
    at = (X + one.delta).requires_grad_()
    (grad,) = torch.autograd.grad(network()(at)[:, 1].sum(), at)
    u, bound = -0.5 * grad, 0.5 * 0.02
    wanted = u.sign() * (u.abs() - bound).clamp_min(0) / (1 + bound * 0.1)
    torch.testing.assert_close(one.delta, wanted, rtol=1e-6, atol=1e-9)
    assert 0 < one.kept.min() < 1


def test_a_prior_with_a_sparsity_and_without_a_weight():
    found = mg.MoreauGrad(network(), prior=ElasticNet(), budget=80).explain(X, 1)
    assert found.kept.tolist() == pytest.approx([round(0.05 * 192) / 192] * 2)
    found = mg.MoreauGrad(network(), prior=ElasticNet(), sparsity=0.25, budget=80).explain(X, 1)
    assert found.kept.tolist() == pytest.approx([0.25, 0.25])


def test_the_map_of_a_prior_can_be_differentiated():
    w = torch.randn(X.shape, dtype=X.dtype, generator=torch.Generator().manual_seed(1))
    method = mg.MoreauGrad(network(), prior=ElasticNet(ridge=0.5), eta=0.02, rho=0.5, smoothing=None, budget=2000)

    def loss(x, **options):
        return (method.attribute(x, 1, **options) * w).sum()

    x = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(x, create_graph=True), x)
    way = torch.randn(X.shape, dtype=X.dtype, generator=torch.Generator().manual_seed(2))
    slope = (loss(X + 1e-5 * way) - loss(X - 1e-5 * way)) / 2e-5
    assert float((found * way).sum()) == pytest.approx(float(slope), rel=1e-4)


def test_a_prior_without_derivatives_is_refused_only_where_they_are_needed():
    class Bare:
        value, prox, units = (getattr(ElasticNet, name) for name in ("value", "prox", "units"))
        ridge = 0.1

    method = mg.MoreauGrad(network(), prior=Bare(), eta=0.02, budget=40)
    assert method.attribute(X, 1).isfinite().all()
    with pytest.raises(ValueError, match=r"needs a prior with active, hessian_product, stiffness.*Unrolled\(\)"):
        method.attribute(X.clone().requires_grad_(), 1, create_graph=True)
    unrolled = mg.MoreauGrad(network(), prior=Bare(), eta=0.02, budget=40, derivative=mg.Unrolled(steps=2))
    assert unrolled.attribute(X.clone().requires_grad_(), 1, create_graph=True).requires_grad


def certify(method, x=X[:1], **options):
    assume = mg.Assumptions(curvature=(0.4, 0.4))
    return mg.certify(method, x, 1, 0.01, assume=assume, **options)[0]


def quadratic(x):
    """Curvature 0.4 everywhere."""
    flat = x.flatten(1)
    return torch.stack([0.2 * flat.square().sum(1), flat.sum(1) / 8 + 0.2 * (flat.square().sum(1))], 1)


@dataclass(frozen=True, eq=False)
class ElasticMoreauGrad(mg.MoreauGrad):
    """A method with a prior of its own, by a subclass."""

    def make_prior(self, call):
        return ElasticNet()


@pytest.mark.parametrize("how", ["object", "name", "subclass"])
def test_a_prior_is_certified_as_what_it_is(how):
    options = {"eta": 0.05, "rho": 0.5, "smoothing": None, "budget": 2000}
    method = {
        "object": lambda: mg.MoreauGrad(quadratic, prior=ElasticNet(), **options),
        "name": lambda: mg.MoreauGrad(quadratic, prior="elastic_net", **options),
        "subclass": lambda: ElasticMoreauGrad(quadratic, prior=mg.L1(), **options),
    }[how]()
    found = certify(method)
    torch.testing.assert_close(found.map, method.attribute(X[:1], 1)[0], rtol=1e-5, atol=1e-7)
    plain = mg.SparseMoreauGrad(quadratic, **options).attribute(X[:1], 1)[0]
    assert not torch.allclose(found.map, plain, rtol=1e-3)  # and not the map of L1
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        way = torch.randn(X[:1].shape, dtype=X.dtype, generator=generator)
        other = method.attribute(X[:1] + 0.01 * way / way.norm(), 1)[0]
        assert found.violations(other, error=1e-6) == ()


def test_a_prior_that_does_not_say_it_is_convex_is_not_certified():
    class Unknown:
        value, prox, units = (getattr(ElasticNet, name) for name in ("value", "prox", "units"))
        ridge = 0.1

    with pytest.raises((TypeError, ValueError), match="convex"):
        certify(mg.MoreauGrad(quadratic, prior=Unknown(), eta=0.05, rho=0.5, smoothing=None))


def test_a_method_from_outside():
    found = mg.METHODS["input_times_gradient"](network()).attribute(X, 1)
    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(network()(x)[:, 1].sum(), x)
    torch.testing.assert_close(found, X * grad)


NOISE = {"sigma": 0.3, "samples": 64}


@pytest.fixture
def deviation():
    """What the statistic from outside must be: the square root of SmoothGrad's variance, which is another algorithm."""
    return mg.SmoothGrad(network(), statistic="variance", **NOISE).attribute(X, 1).sqrt()


def test_a_statistic_from_outside_under_every_method(deviation):
    smooth = mg.SmoothGrad(network(), statistic="deviation", **NOISE).explain(X, 1)
    torch.testing.assert_close(smooth.map, deviation, rtol=1e-7, atol=1e-10)
    solved = {"rho": 0, "statistic": "deviation", "sigma": 0.3, "budget": 64}
    dense = mg.MoreauGrad(network(), **solved).explain(X, 1)
    assert torch.equal(dense.map, smooth.map)
    sparse = mg.SparseMoreauGrad(network(), sparsity=0.25, **solved).explain(X, 1)
    wanted = (dense.map - sparse.eta.view(-1, 1, 1, 1)).clamp_min(0)
    torch.testing.assert_close(sparse.map, wanted, rtol=1e-12, atol=0)
    assert sparse.kept.tolist() == pytest.approx([0.25, 0.25])
    groups = mg.GroupSparseMoreauGrad(network(), sparsity=0.25, groups=2, **solved).explain(X, 1)
    assert groups.kept.tolist() == pytest.approx([0.25, 0.25])
    some = groups.map != 0
    ratio = (groups.map / dense.map)[some]
    assert 0 < float(ratio.min()) <= float(ratio.max()) < 1  # the whole group shrinks
    assert mg.SparseMoreauGrad(network(), **{**solved, "rho": 0.2}).explain(X, 1).map.min() >= 0


def test_a_statistic_from_outside_has_a_standard_error():
    options = {"statistic": "deviation", "sigma": 0.3, "samples": 128}
    found = [mg.SmoothGrad(network(), seed=seed, **options).explain(X[:1], 1) for seed in range(40)]
    drawn, told = torch.stack([each.map for each in found]), torch.stack([each.stderr for each in found])
    assert float(drawn.var(0).mean() / told.square().mean()) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("rho", [None, 0, 0.2], ids=["smoothgrad", "input", "solved"])
def test_the_map_of_a_statistic_from_outside_can_be_differentiated(rho):
    noise = {"smoothing": mg.Smoothing(sigma=0.3, samples=16, fixed=True), "statistic": "deviation"}
    fixed = {"budget": 4000, "derivative": mg.Implicit(steps=60)}
    method = (
        mg.SmoothGrad(network(), mg.Smoothing(sigma=0.3, samples=16), statistic="deviation")
        if rho is None
        else mg.MoreauGrad(network(), rho, **noise, **fixed)
    )
    w = torch.randn(X.shape, dtype=X.dtype, generator=torch.Generator().manual_seed(1))
    way = torch.randn(X.shape, dtype=X.dtype, generator=torch.Generator().manual_seed(2))
    x = X.clone().requires_grad_()
    (found,) = torch.autograd.grad((method.attribute(x, 1, create_graph=True) * w).sum(), x)
    ends = [(method.attribute(X + side * 1e-4 * way, 1) * w).sum() for side in (1, -1)]
    assert float((found * way).sum()) == pytest.approx(float(ends[0] - ends[1]) / 2e-4, rel=1e-3)


def test_a_statistic_from_outside_leads_an_attack():
    attack = mg.TopK(mg.SmoothGrad(network(), samples=8), 0.5, k=10, steps=3, slope="deviation")
    assert (attack.perturb(X, 1).l2 <= 0.5 * (1 + 1e-6)).all()


def test_an_attack_from_outside():
    attack = mg.ATTACKS["flatten_map"](mg.SmoothGrad(network(), samples=4), epsilon=0.5, steps=3)
    found = attack.perturb(X, 1)
    assert (found.objective <= found.trace[0]).all()
    assert (found.l2 <= 0.5 * (1 + 1e-6)).all()


def test_a_metric_from_outside():
    assert mg.METRICS["largest_gap"](X, X + 0.5).tolist() == pytest.approx([0.5, 0.5])
    assert mg.METRICS["largest_gap"].needs == "pair"
    assert mg.METRICS["largest_gap"].range == (0.0, math.inf)


def test_a_model_from_outside(photo):
    model = mg.load_model("two_colours")
    assert mg.explain(model, torch.rand(1, 3, 32, 32), "gradient").map.shape == (1, 3, 32, 32)


def command(*arguments):
    """In a process of its own, where nothing of this one is registered."""
    imports = [part for name in MEMBERS for part in ("--import", str(OUTSIDE / f"{name}.py"))]
    whole = [sys.executable, "-m", "moreaugrad", *arguments, *imports]
    found = subprocess.run(whole, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found


@pytest.mark.parametrize(
    "options",
    [
        "explain --method input_times_gradient",
        "explain --method moreau --prior elastic_net --eta 0.001 --budget 16",
        "attack --method smoothgrad --attack flatten_map --budget 4 --attack-budget 4 --steps 2",
        "explain --statistic deviation --budget 16",
        "attack --method smoothgrad --statistic deviation --budget 4 --attack-budget 4 --steps 2 --set slope=deviation",
    ],
    ids=["method", "prior", "attack", "statistic", "statistic under attack"],
)
def test_members_reach_the_command_line(options, photo, tmp_path):
    first, *rest = options.split()
    command(first, photo, "--model", "two_colours", "--target", "1", *rest, "--out", str(tmp_path / "out"), "--quiet")
    written = "*.npz" if first == "explain" else "*.json*"
    assert list((tmp_path / "out").rglob(written))


def test_a_metric_reaches_the_command_line(photo, tmp_path):
    terms = "--methods smoothgrad --attacks topk --norms 1 --metrics largest_gap --budget 4 --attack-budget 4 --steps 1"
    command("robustness", photo, "--model", "two_colours", *terms.split(), "--out", str(tmp_path / "out"), "--quiet")
    header, *rows = (tmp_path / "out" / "rows.csv").read_text().splitlines()
    column = header.split(",").index("largest_gap")
    assert float(rows[-1].split(",")[column]) > 0


def test_members_are_listed(tmp_path):
    assert "input_times_gradient" in json.dumps(json.loads(command("methods", "--json").stdout))


@pytest.mark.parametrize(
    ("kind", "name", "member", "error", "words"),
    [
        ("prior", "half", type("Half", (), {"value": len, "units": len}), TypeError, "Half without prox; add what"),
        ("prior", "object", ElasticNet(), TypeError, "a prior must be a class"),
        ("method", "plain", type("Plain", (), {}), TypeError, "must be a subclass of mg.Method, got Plain"),
        ("method", "empty", type("Empty", (mg.Method,), {}), TypeError, "Empty without compute"),
        ("attack", "plain", type("Plain", (), {}), TypeError, "must be a subclass of mg.Attack, got Plain"),
        ("statistic", "three", 3, TypeError, "a statistic must be a function, got 3"),
        ("statistic", "rms", len, ValueError, "must be free, got 'rms'"),
        ("metric", "three", 3, TypeError, "a metric must be a function, got 3"),
        ("model", "three", 3, TypeError, "a model must be a function, got 3"),
        ("prior", "l1", type("L1", (ElasticNet,), {}), ValueError, "must be free, got 'l1'.*choose another name"),
        ("prior", "two words", ElasticNet, ValueError, "name must be a word"),
        ("priors", "one", ElasticNet, ValueError, "kind must be one of .*Did you mean 'prior'"),
    ],
)
def test_a_member_that_breaks_its_protocol_is_refused(kind, name, member, error, words):
    with pytest.raises(error, match=words):
        mg.register(kind, name)(member)


def test_a_member_may_be_registered_twice_when_a_module_is_reloaded():
    mg.register("prior", "elastic_net")(ElasticNet)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda net: mg.SparseMoreauGrad(net, prior=mg.Group()), ValueError, r"sets its own prior, L1.*use MoreauGrad"),
        (lambda net: mg.MoreauGrad(net, prior="l2"), ValueError, "prior must be one of .*'l1'"),
        (
            lambda net: mg.MoreauGrad(net, prior=ElasticNet),
            TypeError,
            r"got the class ElasticNet; write ElasticNet\(\)",
        ),
        (lambda net: mg.MoreauGrad(net, prior=3), TypeError, "value, prox and units.*got 3 without"),
        (lambda net: mg.MoreauGrad(net, eta=0.1), ValueError, "eta and sparsity need a prior, got none; give prior=L1"),
        (
            lambda net: mg.SmoothGrad(net, sample=3),
            TypeError,
            "SmoothGrad has no option 'sample'; did you mean 'samples'",
        ),
        (lambda net: mg.MoreauGrad(net, derivative=3), TypeError, r"derivative must be Implicit\(\).*got 3"),
        (lambda net: mg.SmoothGrad(net, mg.Smoothing(samples=3), noise_level=0.1), ValueError, "exclude each other"),
        (
            lambda net: replace(mg.SmoothGrad(net, noise_level=0.2), samples=3),
            ValueError,
            r"got Smoothing\(noise_level=0\.2.*smoothing=replace\(method\.smoothing, samples=3\)",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make(network())


def test_a_prior_by_a_method_of_the_class_is_refused_in_words():
    class Old(mg.SparseMoreauGrad):
        def prior(self, call):
            return ElasticNet()

    with pytest.raises(TypeError, match=r"must not define prior\(\) as a method.*make_prior"):
        Old(network())


def test_old_options_warn_and_work():
    with pytest.warns(DeprecationWarning, match="grad_mode= is now derivative="):
        assert mg.MoreauGrad(network(), grad_mode="frozen").derivative == mg.Frozen()
    with pytest.warns(DeprecationWarning, match="apart= is now hessian_step="):
        assert mg.SmoothGrad(network(), apart=0.5).hessian_step == 0.5


class Plugin:
    """An entry point of an installed package."""

    def __init__(self, name, load):
        self.name, self.value, self.load = name, f"{name}:plugin", load


def test_installed_plugins_are_loaded_at_the_first_unknown_name_and_a_broken_one_only_warns(monkeypatch):
    def add():
        mg.register("prior", "from_a_plugin")(type("FromAPlugin", (ElasticNet,), {}))

    def fail():
        raise ImportError("no such thing")

    asked = []
    monkeypatch.setattr(
        registry, "entry_points", lambda group: asked.append(group) or [Plugin("broken", fail), Plugin("good", add)]
    )
    monkeypatch.setattr(registry.Table, "_plugins_loaded", False)
    monkeypatch.setattr(mg.PRIORS, "_entries", dict(mg.PRIORS._entries))
    assert mg.PRIORS["l1"]() == mg.L1()  # members of the package load nothing
    assert asked == []
    with pytest.warns(UserWarning, match="'broken' .* cannot be loaded: no such thing"):
        assert mg.MoreauGrad(network(), prior="from_a_plugin").prior.ridge == 0.1
    assert asked == ["moreaugrad.plugins"]


class Follows(ElasticNet):
    """A prior that depends on the image."""

    convex = True

    def for_batch(self, x):
        return type(self)(ridge=float(x.mean()))


@dataclass(frozen=True, eq=False)
class Scaled(mg.L1):
    """A prior with a number for each image, which cannot say what it is for some of them."""

    sizes: torch.Tensor | None = None

    def for_batch(self, x):
        return Scaled(x.flatten(1).abs().amax(1))

    def prox(self, delta, amount):
        return super().prox(delta, amount * self.sizes)

    def level(self, u, keep):
        return super().level(u, keep) / self.sizes


def test_a_prior_that_follows_the_images_is_asked_again_for_some_of_them():
    """As solvers ask once an image is known well enough and leaves the batch."""
    x = X * torch.tensor([1.0, 6.0]).view(2, 1, 1, 1)
    prior, which = Scaled().for_batch(x), torch.tensor([1])
    some = take_prior(prior, which, x)
    assert torch.equal(some.prox(x[which], torch.ones(1)), prior.prox(x, torch.ones(2))[which])
    method = mg.MoreauGrad(network(), prior=Scaled(), sparsity=0.25, relative_error=0.3, budget=400)
    assert method.explain(x, 1).kept.tolist() == pytest.approx([0.25, 0.25])


@dataclass(frozen=True, eq=False)
class FollowsByMethod(mg.MoreauGrad):
    def make_prior(self, call):
        return ElasticNet(ridge=float(call.x.mean()))


@pytest.mark.parametrize("kind", ["prior", "method"])
def test_a_certificate_speaks_of_the_prior_that_was_found_at_its_input(kind):
    options = {"eta": 0.05, "rho": 0.5, "smoothing": None, "budget": 2000}
    method = mg.MoreauGrad(quadratic, prior=Follows(), **options)
    if kind == "method":
        method = FollowsByMethod(quadratic, **options)
    found = certify(method)
    held = found.method
    torch.testing.assert_close(held.attribute(X[:1], 1), method.attribute(X[:1], 1))
    far = X[:1] + 3  # another prior there, but not for the certificate
    assert not torch.allclose(held.attribute(far, 1), method.attribute(far, 1), rtol=1e-3)
    way = torch.randn(X[:1].shape, dtype=X.dtype, generator=torch.Generator().manual_seed(3))
    assert found.violations(held.attribute(X[:1] + 0.01 * way / way.norm(), 1)[0], error=1e-6) == ()


def test_a_method_that_overrides_attribute_is_not_certified():
    class Other(mg.SparsifiedSmoothGrad):
        def attribute(self, *args, **options):
            return super().attribute(*args, **options)

    with pytest.raises(TypeError, match="got Other, which overrides attribute"):
        mg.certify(Other(network(), sigma=0.5), X[:1], 1, 0.01)


def test_labels_of_each_image_follow_their_image_in_blocks(monkeypatch):
    labels = torch.stack([(torch.arange(64).view(8, 8) + i) % (3 + i) for i in range(2)])
    square = torch.arange(64).view(8, 8)[:2].repeat(4, 1)  # one map for all, of any height
    methods = [mg.MoreauGrad(network(), prior=mg.Group(each), sparsity=0.5, budget=64) for each in (labels, square)]
    whole = [method.attribute(X, 1) for method in methods]
    monkeypatch.setattr("moreaugrad.methods.base.safe_block", lambda x: 1)
    for method, wanted in zip(methods, whole, strict=True):
        assert torch.equal(method.attribute(X, 1), wanted)


def test_a_solver_needs_run_alone_and_is_used_on_a_path():
    calls = []

    class Own:
        def run(self, problem, watch=None):
            calls.append(problem.keep)
            return mg.ProximalGradient(budget=20).run(problem)

    mg.MoreauGrad(network(), smoothing=None, solver=Own()).attribute(X, 1)
    mg.SparseMoreauGrad(network(), sparsity=[0.1, 0.5], solver=Own(), budget=40).attribute(X, 1)
    assert calls == [None, 0.1, 0.5]


def test_constructors_show_their_options():
    assert list(inspect.signature(mg.MoreauGrad).parameters)[:4] == ["forward_func", "rho", "eta", "sparsity"]
    assert "samples" in inspect.signature(mg.METHODS["smoothgrad"]).parameters


def test_a_network_prepared_in_inference_mode_can_be_explained_outside():
    net = network()
    with torch.inference_mode():
        ready = mg.prepare(mg.prepare(net), X)
    assert mg.SmoothGrad(ready, samples=4).attribute(X, 1).isfinite().all()

"""Second derivatives by differences of gradients, as fast as gradients are: near the exact ones, in every precision."""

import copy
import shutil

import pytest
import torch
from attacked_networks import Seeing, convolutional, pictures
from spoiled import Spoiled
from torch import nn
from torch.nn.functional import cosine_similarity

import moreaugrad as mg

X = pictures(2)
WAY = pictures(2, seed=5)
NOISE = mg.Smoothing(sigma=0.3, samples=6, fixed=True)
KINDS = ["smoothgrad", "implicit", "unrolled", "frozen"]


def method(kind, net, **options):
    """SmoothGrad, or MoreauGrad with this slope."""
    if kind == "smoothgrad":
        return mg.SmoothGrad(net, NOISE, **options)
    return mg.MoreauGrad(net, 0.3, smoothing=NOISE, derivative=kind, budget=60, **options)


def slope(found, x, way, middle=lambda: None, **options):
    """The derivative of <way, map> by x; `middle` is called between the map and its derivative."""
    leaf = x.clone().requires_grad_()
    map_ = found.attribute(leaf, 0, create_graph=True, **options)
    middle()
    return torch.autograd.grad((map_ * way).sum(), leaf)[0]


def network(dtype=torch.float64):
    """Smooth, with a batch norm to fold."""
    return convolutional(nn.Softplus).to(dtype).requires_grad_(False)


class Quadratic(nn.Module):
    """f(x) = sum c y^2 / 2, y = norm(conv(x)): all that is known of it is in y = J x + b."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.norm.running_mean, self.norm.running_var = torch.rand(2, 4, generator=generator) + 0.5
        self.c = nn.Parameter(torch.rand(4, 5, 5, generator=generator))
        self.double().eval().requires_grad_(False)

    def forward(self, x):
        score = (self.c * self.norm(self.conv(x)).square()).flatten(1).sum(1) / 2
        return torch.stack([score, torch.zeros_like(score)], 1)

    def hessian(self):
        layer = lambda v: self.norm(self.conv(v.view(-1, 3, 5, 5))).flatten(1)  # noqa: E731
        jacobian = layer(torch.eye(75, dtype=torch.float64)) - layer(torch.zeros(1, 75, dtype=torch.float64))
        return jacobian @ self.c.flatten().diag() @ jacobian.T


@pytest.mark.parametrize("hessian_step", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("kind", ["smoothgrad", "implicit", "frozen"])
def test_exact_for_a_quadratic_at_any_distance(kind, hessian_step):
    """H w of SmoothGrad and of the published slope; of the envelope H (I + rho H)^-1 w."""
    net, x, way = Quadratic(), pictures(2, size=5), pictures(2, seed=5, size=5)
    hessian = net.hessian()
    inner = torch.eye(75, dtype=torch.float64) + 0.3 * hessian if kind == "implicit" else torch.eye(75).double()
    wanted = (hessian @ torch.linalg.solve(inner, way.flatten(1).T)).T.view_as(x)
    torch.testing.assert_close(
        slope(method(kind, net, hessian_step=hessian_step), x, way), wanted, rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_that_of_a_central_difference(kind):
    """It falls with the square of the distance, down to rounding."""
    net = network()
    exact = slope(method(kind, net), X, WAY)
    errors = [
        float((slope(method(kind, net, hessian_step=hessian_step), X, WAY) - exact).norm())
        for hessian_step in (0.4, 0.2, 0.1, 1e-3)
    ]
    assert errors[0] < 0.05 * float(exact.norm())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.05)
    assert errors[3] < 1e-3 * errors[2]


@pytest.mark.parametrize("kind", ["smoothgrad", "implicit"])
def test_a_map_that_is_differentiated_by_differences_is_the_same_map(kind):
    net, leaf = network(), X.clone().requires_grad_()
    found = method(kind, net, hessian_step=0.5).attribute(leaf, 0, create_graph=True)
    torch.testing.assert_close(found.detach(), method(kind, net).attribute(X, 0), rtol=1e-12, atol=1e-14)


def test_in_single_precision_rounding_grows_as_the_distance_falls():
    """Each gradient is wrong by about eps |g|, so the slope by 2 eps |g| |way| / hessian_step, and no more."""
    net, x, way = network(), X.float(), WAY.float()
    still = mg.Smoothing(sigma=1e-9, samples=2)  # other noise is drawn in another precision
    size, errors = float(mg.Gradient(net).attribute(X, 0).norm() * way.norm()), []
    for hessian_step in (1.0, 0.1, 0.01):
        wanted = slope(mg.SmoothGrad(net, still, hessian_step=hessian_step), x.double(), way.double())
        found = slope(mg.SmoothGrad(network(torch.float32), still, hessian_step=hessian_step), x, way)
        errors.append(float((found.double() - wanted).norm()))
        assert errors[-1] < 16 * torch.finfo(torch.float32).eps * size / hessian_step
    assert errors[0] < errors[1] < errors[2]


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_precision_reaches_the_network_and_gives_about_the_same_slope(kind):
    seen, x, way = [], X.float(), WAY.float()
    net = Seeing(network(torch.float32), lambda rows: seen.append(rows.dtype))
    half = slope(method(kind, net, hessian_step=2.0, precision="bfloat16"), x, way, seen.clear)
    assert set(seen) == {torch.bfloat16}
    assert half.dtype == torch.float32
    single = slope(method(kind, net, hessian_step=2.0), x, way, seen.clear)
    assert set(seen) == {torch.float32}
    assert cosine_similarity(half.flatten(1), single.flatten(1)).min() > 0.95
    assert not torch.equal(half, single)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_second_derivatives_stay_in_single_precision(kind):
    seen, x, way = [], X.float(), WAY.float()
    net = Seeing(network(torch.float32), lambda rows: seen.append(rows.dtype))
    found = method(kind, net, precision="bfloat16")
    half = slope(found, x, way, seen.clear)
    assert set(seen) == {torch.float32}
    if kind == "smoothgrad":  # whose map is part of the graph; the envelope is solved beside it
        assert [engine.precision for engine in found.prepared._engines.values()] == ["float32"]
        assert torch.equal(half, slope(method(kind, net), x, way))


class Overflowing(nn.Module):
    """Has gradients without end in half precision, from the `first` call on once it is `armed`."""

    def __init__(self, first=0):
        super().__init__()
        self.net, self.armed, self.first, self.training = network(torch.float32), [], [first], False

    def __deepcopy__(self, memo):
        twin = Overflowing()
        twin.net, twin.armed, twin.first = copy.deepcopy(self.net, memo), self.armed, self.first
        return twin

    def forward(self, x):
        found = self.net(x)
        if x.dtype == torch.float32 or not self.armed:
            return found
        self.first[0] -= 1
        return Spoiled.apply(found) if self.first[0] < 0 else found


@pytest.mark.parametrize("kind", KINDS)
def test_a_difference_that_overflows_is_taken_again_in_single_precision(kind, caplog):
    net, x, way = Overflowing(), X.float(), WAY.float()
    found = method(kind, net, hessian_step=2.0, precision="bfloat16")
    after = slope(found, x, way, lambda: net.armed.append(True))
    assert caplog.text.count("bfloat16 overflows in this model; continuing in float32") == 1
    wanted = slope(method(kind, network(torch.float32), hessian_step=2.0), x, way)
    if kind == "smoothgrad":  # the same points, all of them in single precision
        torch.testing.assert_close(after, wanted, rtol=1e-4, atol=1e-6)
    assert cosine_similarity(after.flatten(1), wanted.flatten(1)).min() > 0.99


@pytest.mark.parametrize("first", [1, 2, 3])
def test_an_overflow_in_the_midst_of_differences_leaves_numbers(first, caplog):
    """Behind instead of ahead, or in a later image: what came before is kept, nothing without end is."""
    net, x, way = Overflowing(first), X.float(), WAY.float()
    found = slope(
        method("smoothgrad", net, hessian_step=2.0, precision="bfloat16"), x, way, lambda: net.armed.append(True)
    )
    assert caplog.text.count("continuing in float32") == 1
    wanted = slope(method("smoothgrad", network(torch.float32), hessian_step=2.0), x, way)
    assert cosine_similarity(found.flatten(1), wanted.flatten(1)).min() > 0.95


def test_an_overflow_of_the_map_itself_is_taken_again_too(caplog):
    net, x, way = Overflowing(), X.float(), WAY.float()
    net.armed.append(True)
    found = slope(method("smoothgrad", net, hessian_step=2.0, precision="bfloat16"), x, way)
    assert caplog.text.count("continuing in float32") == 1
    wanted = slope(method("smoothgrad", network(torch.float32), hessian_step=2.0), x, way)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.fixture
def rows(monkeypatch):
    """A compiler that changes nothing and notes how many rows each call has."""
    found = []

    def compiled(body, dynamic):
        def run(*inputs):
            found.append(len(inputs[0]))
            return body(*inputs)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_differences_go_through_what_was_compiled_and_exact_ones_do_not(kind, rows):
    net = network()
    found = slope(method(kind, net, hessian_step=0.5, compile=True), X, WAY, rows.clear)
    assert rows
    torch.testing.assert_close(found, slope(method(kind, net, hessian_step=0.5), X, WAY), rtol=1e-9, atol=1e-12)
    found = slope(method(kind, net, compile=True), X, WAY, rows.clear)
    assert not rows
    torch.testing.assert_close(found, slope(method(kind, net), X, WAY), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("samples", [1, 3, 5, 8, 16, 21])
def test_what_was_compiled_sees_one_number_of_rows_whatever_the_samples(samples, rows):
    net, x, way, noise = network(), pictures(3), pictures(3, seed=5), mg.Smoothing(sigma=0.3, samples=samples)
    for make in (mg.SmoothGrad, mg.MoreauGrad):
        budget = {} if make is mg.SmoothGrad else {"budget": 5 * samples}
        found, wanted = (make(net, smoothing=noise, hessian_step=0.5, compile=on, **budget) for on in (True, False))
        for some in (x[:1], x):
            maps = [each.attribute(some, 0, internal_batch_size=16) for each in (found, wanted)]
            torch.testing.assert_close(*maps, rtol=1e-9, atol=1e-12)
        slopes = [slope(each, x, way, internal_batch_size=16) for each in (found, wanted)]
        torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-11)
    assert set(rows) == {16}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.parametrize("kind", ["smoothgrad", "implicit"])
def test_compiled_differences_are_the_same_differences(kind):
    x, way = X.float(), WAY.float()
    found = method(kind, network(torch.float32), hessian_step=1.0, compile=True)
    compiled = slope(found, x, way)
    (engine,) = found.prepared._engines.values()
    assert engine.compiled
    wanted = slope(method(kind, network(torch.float32), hessian_step=1.0), x, way)
    torch.testing.assert_close(compiled, wanted, rtol=1e-4, atol=1e-6)

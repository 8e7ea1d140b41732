"""The derivative of a solved map against finite differences, closed forms and explicit Hessians."""

import logging
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import moreaugrad as mg
from moreaugrad.envelope.derivative import DERIVATIVES, NoiseHessian

RHO = 0.05
FAMILY = {"moreau": {}, "sparse_moreau": {"eta": 0.6}, "group_sparse_moreau": {"eta": 1.0, "groups": 2}}
NOISES = {"bare": None, "smoothed": mg.Smoothing(sigma=0.3, samples=8, fixed=True)}


def curved_network(seed=0, scale=3.0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            *(nn.Flatten(), nn.Linear(12, 16), nn.Softplus(3), nn.Linear(16, 16), nn.Softplus(3), nn.Linear(16, 3))
        )
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(scale)
    return net.double().eval()


@pytest.fixture
def net():
    return curved_network()


@pytest.fixture
def x():
    return torch.randn(2, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def w():
    return torch.randn(2, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def method(name, net, noise, **options):
    solver = mg.ProximalGradient(tol=1e-12)
    return mg.METHODS[name](
        net, **{"rho": RHO, "smoothing": noise, "budget": 1600, "solver": solver} | FAMILY[name] | options
    )


def pulled(one, x, w):
    x = x.clone().requires_grad_()
    return torch.autograd.grad((one.attribute(x, 1, create_graph=True) * w).sum(), x)[0]


def by_differences(one, x, w, step=1e-5):
    """All bumped inputs in one batch."""
    bumps = step * torch.eye(x[0].numel(), dtype=x.dtype).view(-1, 1, *x.shape[1:])
    both = torch.cat([x + bumps, x - bumps]).flatten(0, 1)
    up, down = one.attribute(both, 1, internal_batch_size=64).view(2, -1, *x.shape)
    return (((up - down) * w).flatten(2).sum(2) / (2 * step)).T.reshape(x.shape)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
@pytest.mark.parametrize("name", FAMILY)
def test_implicit_and_unrolled_are_the_derivative_of_the_solved_map(name, noise, net, x, w):
    wanted = by_differences(method(name, net, noise), x, w)
    found = method(name, net, noise).attribute(x, 1)
    if name != "moreau":
        assert 0 < (found != 0).double().mean() < 1  # neither empty nor full, or the test would say little
    for slope in (mg.Implicit(steps=40, tol=1e-12), mg.Unrolled(steps=100)):
        error = (pulled(method(name, net, noise, derivative=slope), x, w) - wanted).norm() / wanted.norm()
        assert error < 1e-6, slope.name
    for mode in ("implicit", "unrolled"):  # by name, as users say it
        error = (pulled(method(name, net, noise, derivative=mode), x, w) - wanted).norm() / wanted.norm()
        assert error < 1e-4, mode
    frozen = (pulled(method(name, net, noise, derivative="frozen"), x, w) - wanted).norm() / wanted.norm()
    assert frozen > 0.02  # what the published derivative leaves out is there to be seen


@pytest.mark.parametrize("name", FAMILY)
def test_frozen_is_the_published_derivative(name, net, x, w):
    """The Hessian of the bare score at x + delta times what is left of the cotangent on the kept entries."""
    one = method(name, net, NOISES["smoothed"], derivative="frozen")
    delta = one.explain(x, 1).delta
    kept = torch.ones_like(x) if name == "moreau" else (delta != 0).double()
    for row in range(len(x)):
        hessian = torch.autograd.functional.hessian(lambda v: net(v[None])[0, 1], (x + delta)[row]).view(12, 12)
        wanted = hessian @ (w * kept)[row].flatten()
        torch.testing.assert_close(pulled(one, x, w)[row].flatten(), wanted, rtol=1e-8, atol=1e-10)


def quadratic(low, high, d=6, seed=3):
    """x'Ax/2 + b'x with the given extreme eigenvalues, as the first of two outputs."""
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=generator))
    values = torch.linspace(low, high, d, dtype=torch.float64)
    a, b = turn @ torch.diag(values) @ turn.T, torch.randn(d, dtype=torch.float64, generator=generator)

    def forward(x):
        score = ((x @ a) * x).sum(1) / 2 + x @ b
        return torch.stack([score, torch.zeros_like(score)], 1)

    return forward, a, b


def test_of_a_quadratic_score_in_closed_form():
    forward, a, _ = quadratic(-0.5, 4)
    x, w = torch.randn(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    one = mg.MoreauGrad(forward, rho=0.7, smoothing=None, derivative=mg.Implicit(steps=20, tol=1e-13), budget=500)
    x = x.requires_grad_()
    (found,) = torch.autograd.grad((one.attribute(x, 0, create_graph=True) * w).sum(), x)
    wanted = torch.linalg.solve(torch.eye(6, dtype=torch.float64) + 0.7 * a, a @ w.T).T
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def pulled_by_hand(hessian, delta, eta, rho, w, prior):
    """The derivative at a given solution of a quadratic score."""
    from moreaugrad.envelope.envelope import Envelope
    from moreaugrad.model.prepared import Engine
    from moreaugrad.model.score import ClassScore

    matrix, delta = torch.tensor(hessian, dtype=torch.float64), torch.tensor([delta], dtype=torch.float64)

    def forward(x):
        return torch.stack([((x @ matrix) * x).sum(1) / 2, x.sum(1)], 1)

    score = ClassScore(Engine(forward), 0, 1)
    problem = Envelope(score, prior(delta), rho, torch.zeros_like(delta), eta)
    eta = torch.tensor([eta], dtype=torch.float64)
    pull = mg.Implicit(steps=10, tol=1e-14).pull
    return pull(problem, delta, eta, torch.tensor([w], dtype=torch.float64))[0].tolist()


def test_worked_by_hand():
    """Two entries, one of them kept; the same without a prior; three entries in two groups, one of them kept."""
    sharp = [[1.0, 10.0], [10.0, 100.0]]
    found = pulled_by_hand(sharp, [-1.0, 0.0], 1.0, 1.0, [1.0, 0.0], lambda x: mg.L1())
    assert found == pytest.approx([0.5, 5.0], rel=1e-9)
    found = pulled_by_hand(sharp, [-1.0, 0.0], 0.0, 1.0, [1.0, 0.0], lambda x: mg.Zero())
    assert found == pytest.approx([0.009803922, 0.098039216], rel=1e-6)
    three = [[2.0, 1.0, 1.0], [1.0, 3.0, 0.0], [1.0, 0.0, 4.0]]
    groups = mg.Group(torch.tensor([0, 0, 1])).for_batch
    found = pulled_by_hand(three, [0.3, 0.4, 0.0], 0.5, 1.0, [1.0, -1.0, 0.0], groups)
    assert found == pytest.approx([0.358974359, -0.487179487, 0.312820513], rel=1e-6)


def test_few_steps_are_less_exact_and_none_is_the_frozen_hessian():
    forward, a, _ = quadratic(-0.5, 4)
    x, w = torch.randn(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    wanted = torch.linalg.solve(torch.eye(6, dtype=torch.float64) + 0.7 * a, a @ w.T).T
    errors = []
    for steps in (0, 1, 2, 4, 6):
        one = mg.MoreauGrad(forward, rho=0.7, smoothing=None, derivative=mg.Implicit(steps=steps, tol=0), budget=500)
        leaf = x.clone().requires_grad_()
        (found,) = torch.autograd.grad((one.attribute(leaf, 0, create_graph=True) * w).sum(), leaf)
        errors.append(float((found - wanted).norm()))
        if steps == 0:
            torch.testing.assert_close(found, w @ a, rtol=1e-12, atol=1e-12)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-9


def test_where_the_problem_is_not_convex_it_is_said_and_stays_finite(caplog):
    forward, _, _ = quadratic(-4, 1)  # rho * 4 > 1

    def bounded(x):
        return forward(x) + 0.01 * x.pow(4).sum(1, keepdim=True)

    x = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    one = mg.MoreauGrad(bounded, rho=0.7, smoothing=None, budget=2)  # no minimum yet
    with caplog.at_level(logging.INFO, "moreaugrad"):
        (found,) = torch.autograd.grad(one.attribute(x, 0, create_graph=True).square().sum(), x)
    assert found.isfinite().all()
    assert "not convex" in caplog.text


@pytest.mark.parametrize("mode", DERIVATIVES)
def test_of_images_that_know_nothing_of_each_other(mode, net, x, w):
    noise = mg.Smoothing(sigma=0.3, samples=4)
    one = method("sparse_moreau", net, noise, solver=None, budget=200, derivative=mode)
    together = pulled(one, x, w)
    alone = torch.cat([pulled(one, x[i : i + 1], w[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(together, alone, rtol=1e-8, atol=1e-10)
    assert together.any()


@pytest.mark.parametrize("mode", DERIVATIVES)
def test_the_map_is_the_same_in_every_mode_and_nothing_stays_behind(mode, net, x):
    noise = mg.Smoothing(sigma=0.3, samples=4)
    one = method("sparse_moreau", net, noise, solver=None, budget=200, derivative=mode)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    leaf = x.clone().requires_grad_()
    found = one.attribute(leaf, 1, create_graph=True)
    assert torch.equal(found.detach(), one.attribute(x, 1))
    found.abs().sum().backward()
    assert all(weight.grad is None for weight in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


PEAK = """
import resource, sys, torch
from torch import nn
import moreaugrad as mg
torch.set_num_threads(1)
mode = sys.argv[1]
layers = [nn.Conv2d(1, 32, 3, padding=1), nn.Softplus(), nn.Conv2d(32, 1, 3, padding=1), nn.Flatten()]
net = nn.Sequential(*layers, nn.Linear(128 * 128, 2)).eval()
x = torch.randn(1, 1, 128, 128, generator=torch.Generator().manual_seed(0)).requires_grad_()
slope = {'implicit': mg.Implicit, 'unrolled': mg.Unrolled}[mode](steps=2, samples=2)
noise = mg.Smoothing(sigma=0.1, samples=2)
for steps in (20, 100):
    one = mg.SparseMoreauGrad(net, eta=1e-5, smoothing=noise, budget=2 * steps, derivative=slope)
    maps = one.attribute(x, 0, create_graph=True, internal_batch_size=2)
    (grad,) = torch.autograd.grad(maps.square().sum(), x)
    assert grad.any()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.parametrize("mode", ["implicit", "unrolled"])
def test_peak_memory_does_not_grow_with_the_steps_of_the_solver(mode):
    """Of a process of its own, solve and derivative. A graph through the solver would keep 8 MB a step and more."""
    done = subprocess.run([sys.executable, "-c", PEAK, mode], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    few, many = map(float, done.stdout.split())
    assert many - few < 60  # MB, where a graph would take 640 more


def test_the_covariance_form_sees_a_kink():
    """Of relu(w'x) the smoothed Hessian is phi(w'x/s)/s ww', s = sigma |w|; a second derivative sees nothing of it."""
    weight = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

    def forward(x):
        return torch.stack([F.relu(x @ weight), torch.zeros(len(x), dtype=x.dtype)], 1)

    x, v = torch.tensor([[0.2, 0.1, -0.3], [0.5, 0.2, 0.1]], dtype=torch.float64), torch.tensor([[1.0, 2.0, -1.0]] * 2)
    sigma, v = 0.4, v.double()
    draws = _draws(forward, x, sigma, 20000)
    s = sigma * weight.norm()
    at = x @ weight / s
    density = (-at.square() / 2).exp() / (2 * torch.pi) ** 0.5 / s
    wanted = density[:, None] * (v @ weight)[:, None] * weight
    found = NoiseHessian.of(draws, x)(v)
    assert (found - wanted).norm(dim=1).div(wanted.norm(dim=1)).max() < 0.05
    assert not draws[0][0].product(x, v, 0).any()


def test_the_covariance_form_of_a_quadratic_is_its_matrix():
    forward, a, _ = quadratic(-1, 3)
    x, v = torch.randn(2, 2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).unbind()
    found = NoiseHessian.of(_draws(forward, x, 0.5, 40000), x)(v)
    wanted = v @ a
    assert (found - wanted).norm(dim=1).div(wanted.norm(dim=1)).max() < 0.05


def _draws(forward, x, sigma, samples):
    from moreaugrad.model.prepared import Engine
    from moreaugrad.model.score import ClassScore
    from moreaugrad.model.smoothing import SmoothedScore

    engine = Engine(forward)
    engine.rows = 5000
    base = ClassScore(engine, 0, len(x))
    score = SmoothedScore(base, mg.Smoothing(sigma=sigma, samples=samples), torch.full((len(x), 1), sigma).to(x), 0)
    return [(score, 0)]


@pytest.mark.parametrize("act", [nn.Softplus(2), nn.SiLU(), nn.GELU(), nn.Tanh()])
def test_hessian_products_of_any_activation(act):
    """Some operations have no forward rule in torch; then the product goes reverse over reverse."""
    from moreaugrad.model.prepared import Engine
    from moreaugrad.model.score import ClassScore

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            *(nn.Conv2d(4, 4, 3, groups=4), act, nn.BatchNorm2d(4), nn.Conv2d(4, 2, 2), act, nn.Flatten()),
            nn.Linear(2, 2),
        )
    net = net.double().eval()
    x, along = torch.randn(2, 2, 4, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).unbind()
    engine = Engine(net)
    score = ClassScore(engine, torch.tensor([0, 1]), 2)
    found = score.product(x, along)
    for row, target in enumerate((0, 1)):
        hessian = torch.autograd.functional.hessian(lambda v, t=target: net(v[None])[0, t], x[row]).view(64, 64)
        torch.testing.assert_close(found[row].flatten(), hessian @ along[row].flatten(), rtol=1e-9, atol=1e-12)
    engine.tangents = False  # the other way, whichever was taken
    torch.testing.assert_close(score.product(x, along), found, rtol=1e-9, atol=1e-12)
    assert all(weight.grad is None for weight in net.parameters())


def test_a_failure_of_the_model_is_not_taken_for_a_missing_forward_rule():
    from moreaugrad.model.prepared import Engine
    from moreaugrad.model.score import ClassScore

    class FailsOnce(nn.Module):
        fails = False

        def forward(self, x):
            if self.fails:
                self.fails = False
                raise RuntimeError("the model's own")
            return x.flatten(1).tanh()

    net = FailsOnce().eval()
    x, along = torch.randn(2, 1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).unbind()
    score = ClassScore(Engine(net), torch.tensor([0]), 1)
    score.product(x, along)  # prepared
    net.fails = True
    with pytest.raises(RuntimeError, match="the model's own"):
        score.product(x, along)
    assert score.engine.tangents


def test_a_group_of_zeros_is_not_active_and_gives_no_nan():
    x = torch.randn(1, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    x[:, :, :2, :2] = 0
    prior = mg.Group(2).for_batch(x)
    assert torch.equal(prior.active(x), (x != 0))
    assert prior.hessian_product(x, torch.ones_like(x)).isfinite().all()
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(prior.prox(leaf, torch.tensor([0.1]).double()).sum(), leaf)
    assert grad.isfinite().all()


def test_bad_input(net):
    with pytest.raises(ValueError, match=r"derivative must be one of .*Did you mean 'implicit'"):
        mg.MoreauGrad(net, derivative="implict")
    with pytest.raises(ValueError, match=r"needs a smoothed score, got smoothing=None; use Implicit"):
        mg.MoreauGrad(net, smoothing=None, derivative="covariance")
    with pytest.raises(ValueError, match="steps must be at least 0"):
        mg.Implicit(steps=-1)
    with pytest.raises(ValueError, match="samples must be at least 1"):
        mg.Implicit(samples=0)
    with pytest.raises(ValueError, match="create_graph=True must be left out"):
        mg.SparseMoreauGrad(net, sparsity=[0.1, 0.2]).attribute(torch.zeros(1, 3, 2, 2).double(), 1, create_graph=True)


# second derivatives from differences of gradients


def test_differences_are_exact_for_a_quadratic():
    generator = torch.Generator().manual_seed(5)
    matrix = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    matrix, x = matrix + matrix.T, torch.randn(3, 6, generator=generator, dtype=torch.float64)

    def quadratic(rows):
        return torch.einsum("ni,ij,nj->n", rows, matrix, rows)[:, None] / 2

    for hessian_step in (0.01, 1.0, 30.0):
        leaf = x.clone().requires_grad_()
        found = mg.Gradient(quadratic, hessian_step=hessian_step).attribute(leaf, 0, create_graph=True)
        (grad,) = torch.autograd.grad((found * found).sum(), leaf)
        torch.testing.assert_close(grad, 2 * x @ matrix @ matrix, rtol=1e-9, atol=1e-9)


def test_differences_come_nearer_to_the_derivative_with_the_square_of_the_distance():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Softplus(), torch.nn.Linear(12, 2)).double().eval()
    model.requires_grad_(False)
    x = torch.randn(2, 8, dtype=torch.float64)

    def slope(**options):
        leaf = x.clone().requires_grad_()
        method = mg.MoreauGrad(model, 0.3, smoothing=mg.Smoothing(sigma=0.2, samples=8, fixed=True), **options)
        (grad,) = torch.autograd.grad(method.attribute(leaf, 1, create_graph=True).square().sum(), leaf)
        return grad

    exact = slope()
    errors = [float((slope(hessian_step=hessian_step) - exact).norm()) for hessian_step in (0.4, 0.2, 0.1)]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.1)


def test_differences_see_a_kink_that_lies_between_them():
    x = torch.tensor([[0.05]], dtype=torch.float64)

    def hinge(rows):
        return rows.clamp(min=0)

    for hessian_step, wanted in ((0.02, 0.0), (0.2, 1 / 0.2)):
        leaf = x.clone().requires_grad_()
        found = mg.Gradient(hinge, hessian_step=hessian_step).attribute(leaf, 0, create_graph=True)
        (grad,) = torch.autograd.grad(found.sum(), leaf)
        assert float(grad) == pytest.approx(wanted)


@pytest.mark.parametrize("hessian_step", [0.0, -1.0, float("nan")])
def test_hessian_step_must_be_positive(hessian_step):
    with pytest.raises(ValueError, match="hessian_step must be"):
        mg.Gradient(lambda x: x, hessian_step=hessian_step)


def test_differences_do_not_ask_whether_weights_want_a_gradient():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).double().eval()
    x = torch.randn(2, 6, dtype=torch.float64)

    def slope():
        leaf = x.clone().requires_grad_()
        found = mg.Gradient(model, hessian_step=3.0).attribute(leaf, 0, create_graph=True)
        return torch.autograd.grad((found * torch.arange(6)).sum(), leaf)[0]

    with_weights = slope()
    model.requires_grad_(False)
    assert bool((with_weights != 0).any())  # exact derivatives of a network of straight pieces are zero
    torch.testing.assert_close(with_weights, slope())


def test_a_hook_added_after_the_first_map_is_seen():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Softplus(), torch.nn.Linear(8, 2)).double().eval()
    model.requires_grad_(False)
    x = torch.randn(2, 6, dtype=torch.float64)
    method = mg.Gradient(model)
    before = method.attribute(x.clone().requires_grad_(), 0, create_graph=True)
    handle = model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    after = method.attribute(x.clone().requires_grad_(), 0, create_graph=True)
    torch.testing.assert_close(after, mg.Gradient(model).attribute(x, 0))
    assert not torch.allclose(after, before)
    handle.remove()
    torch.testing.assert_close(method.attribute(x.clone().requires_grad_(), 0, create_graph=True), before)

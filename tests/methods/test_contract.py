"""What holds for every method in the table: Captum's calls, targets, tuples, chunks, dtypes, nothing left behind."""

import copy
import inspect

import numpy as np
import pytest
import torch
from captum._utils.common import _select_targets
from captum.attr import Attribution, NoiseTunnel, Saliency
from captum.attr import visualization as captum_pictures
from captum.metrics import infidelity, sensitivity_max
from torch import nn

import moreaugrad as mg
from moreaugrad.methods.mask_network.encoder import find_classifier
from moreaugrad.model import inputs
from moreaugrad.training.mask_networks import MaskRecipe, initial_mask_network

FAST = {"budget": 64}
EXAMPLES = {
    "gradient": {},
    "integrated_gradients": {"steps": 6},
    "deeplift": {},
    "smoothgrad": {"smoothing": mg.Smoothing(samples=16)},
    "sparsified_smoothgrad": {"smoothing": mg.Smoothing(samples=16)},
    "relex": {"budget": 80, "steps": 10, "lam1": 1e-6},
    "cam": {},
    "gradcam": {"relu": False},
    "gradcam_plus_plus": {},
    "normgrad": {},
    "meaningful_perturbation": {"budget": 6},
    "fgvis": {"budget": 6, "lam": 1e-3},
    "mask_network": {},
    "moreau": FAST,
    "sparse_moreau": {**FAST, "sparsity": 0.25},
    "group_sparse_moreau": {**FAST, "sparsity": 0.25, "groups": 4},
}
EVERY = pytest.mark.parametrize("name", EXAMPLES)
FLAT = {"cam", "gradcam", "gradcam_plus_plus", "normgrad", "meaningful_perturbation", "mask_network"}  # (N, 1, H, W)
NAMED = {"cam", "relex", "meaningful_perturbation", "fgvis", "mask_network"}  # defined on class scores of one kind
PAIRS = {"deeplift", "fgvis"}  # run an image beside the one that it is compared with


class Net(nn.Module):
    """A small convolutional classifier with the layers that may misbehave."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.3),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
        )  # fmt: skip

    def forward(self, x, scale=None):
        out = self.layers(x)
        return out if scale is None else out * scale.view(-1, 1)


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().eval()


@pytest.fixture
def x():
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Seeing(nn.Module):
    """A model that shows its rows to a function before it goes on; copies of it show them to the same."""

    def __init__(self, net, see):
        super().__init__()
        self.net, self.see, self.training = net, see, net.training

    def forward(self, v, *arguments):
        self.see(v)
        return self.net(v, *arguments)


def masking(net):
    """A mask network for this model, untrained."""
    like = next(net.parameters())
    return initial_mask_network(MaskRecipe(width=8), find_classifier(net), like.new_zeros(2, 3, 16, 16).detach())[
        0
    ].eval()


def shape_of(name, x):
    return (len(x), 1, *x.shape[2:]) if name in FLAT else x.shape


def make(name, net, **options):
    if name == "mask_network":
        options = {"network": masking(net), **options}
    return mg.METHODS[name](net, **{**EXAMPLES[name], **options})


def test_every_method_has_an_example():
    assert set(EXAMPLES) == {name for name, entry in mg.METHODS.items() if entry.member is None}  # not from outside


@EVERY
def test_is_an_attribution_with_captums_arguments(name, net):
    method = make(name, net)
    assert isinstance(method, Attribution)
    parameters = inspect.signature(method.attribute).parameters
    compares = ["baselines"] if "baseline" in mg.METHODS[name].flags else []  # as in Captum, before the target
    assert list(parameters)[: 3 + len(compares)] == ["inputs", *compares, "target", "additional_forward_args"]
    shared = {"internal_batch_size", "return_convergence_delta", "show_progress", "callback"}
    assert shared <= set(parameters) or "options" in parameters
    assert mg.METHODS[name].summary


@EVERY
def test_map_has_the_inputs_shape_and_explain_says_the_same(name, net, x):
    method = make(name, net)
    found = method.explain(x)
    predicted = net(x).argmax(1)
    assert torch.equal(found.target, predicted)
    assert torch.equal(method.attribute(x, target=predicted), found.map)
    assert found.map.shape == shape_of(name, x)
    output = net(x).detach().softmax(1) if method.score == "prob" else net(x).detach()
    torch.testing.assert_close(found.score, output.gather(1, predicted[:, None])[:, 0])


class Inside(nn.Module):
    """The same network, whose scores lie in a dict beside others."""

    def __init__(self, net):
        super().__init__()
        self.net, self.training = net, net.training

    def forward(self, x):
        out = self.net(x)
        return {"aux": (3 * out, x.flatten(1)), "out": out}


@EVERY
@pytest.mark.parametrize("output", ["out", lambda found: found["out"]], ids=["name", "function"])
def test_a_part_of_the_output_is_explained_like_a_network_that_returns_it(name, output, net, x):
    if name == "mask_network":
        pytest.skip("it is trained for a classifier that returns its logits")
    found = make(name, Inside(net), output=output).explain(x)
    wanted = make(name, net).explain(x)
    assert torch.equal(found.target, wanted.target)
    assert torch.equal(found.map, wanted.map)
    assert torch.equal(found.score, wanted.score)


@EVERY
def test_a_function_of_the_output_is_explained_or_refused(name, net, x):
    """Of one class it gives the map of that class; so does one of all classes, with a target."""
    if name in NAMED:
        with pytest.raises(ValueError, match="score must be"):
            make(name, net, score=lambda out: out[:, 2])
        return
    wanted = make(name, net, score="logit").attribute(x, target=2)
    assert torch.equal(make(name, Inside(net), score=lambda found: found["out"][:, 2]).attribute(x), wanted)
    assert torch.equal(make(name, Inside(net), score=lambda found: found["out"]).attribute(x, target=2), wanted)
    twice = make(name, Inside(net), output="aux", score=lambda aux: aux[0][:, 2] / 3).explain(x)
    torch.testing.assert_close(twice.score, net(x).detach()[:, 2])
    assert twice.target is None


def test_gradient_is_captums(net, x):
    theirs = Saliency(net).attribute(x.clone().requires_grad_(), target=2, abs=False)
    torch.testing.assert_close(mg.Gradient(net).attribute(x, 2), theirs, rtol=1e-5, atol=1e-7)


@EVERY
def test_captum_accepts_it(name, net, x):
    method = make(name, net)
    tunnel = NoiseTunnel(method).attribute(x, nt_samples=2, stdevs=0.1, target=1)
    assert tunnel.shape == shape_of(name, x)
    sensitivity = sensitivity_max(method.attribute, x, target=1, n_perturb_samples=2)
    assert sensitivity.shape == (3,)
    maps = method.attribute(x, target=1)

    def perturb(inputs):
        noise = 0.01 * torch.randn_like(inputs)
        return noise, inputs - noise

    assert infidelity(net, perturb, x, maps.expand_as(x), target=1).isfinite().all()
    picture = np.transpose(maps[0].numpy(), (1, 2, 0))
    figure, _ = captum_pictures.visualize_image_attr(picture, use_pyplot=False)
    assert figure.axes


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((3,), None),
        ((3, 1), None),
        ((3, 5), 2),
        ((3, 5), -1),
        ((3, 5), torch.tensor(4)),
        ((3, 5), torch.tensor([3])),
        ((3, 5), [0, 4, 2]),
        ((3, 5), torch.tensor([1, 0, 3])),
        ((3, 4, 6), (2, 5)),
        ((3, 4, 6), [(0, 1), (3, 5), (2, 2)]),
    ],
)
def test_targets_agree_with_captum(shape, target):
    output = torch.randn(shape)
    ours = inputs.select_target(output, inputs.take_target(target, torch.arange(3)))
    theirs = _select_targets(output, target) if target is not None else output
    assert torch.equal(ours, theirs.reshape(3))
    again = torch.tensor([2, 0, 2, 1])
    assert torch.equal(inputs.select_target(output[again], inputs.take_target(target, again)), ours[again])


@EVERY
def test_each_image_follows_its_own_target(name, net, x):
    wanted = [3, 0, 4]
    maps = make(name, net).attribute(x, target=wanted)
    for row, target in enumerate(wanted):
        torch.testing.assert_close(maps[row : row + 1], make(name, net).attribute(x[row : row + 1], target=target))


@EVERY
def test_arguments_follow_their_image(name, net, x):
    if name == "cam":
        pytest.skip("its output must be the linear head's own")
    scale = torch.tensor([1.0, 2.0, -3.0])
    scaled = make(name, net).attribute(x, target=1, additional_forward_args=scale)
    for row in range(3):
        one = make(name, net).attribute(x[row : row + 1], target=1, additional_forward_args=(scale[row : row + 1],))
        torch.testing.assert_close(scaled[row : row + 1], one)


@pytest.mark.parametrize("name", ["gradient", "smoothgrad", "moreau", "sparse_moreau"])
def test_tuples_of_inputs(name):
    a, b = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, 2, 3, dtype=torch.float64)
    weights = torch.randn(6, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)

    def score(first, second):
        return first @ weights[0] + (second * weights[1]).sum((1, 2))

    options = {"eta": 0.0, "sparsity": None} if name == "sparse_moreau" else {}
    maps = make(name, score, **options).attribute((a, b))
    assert isinstance(maps, tuple)
    for found, wanted, like in zip(maps, weights, (a, b), strict=True):
        assert found.shape == like.shape
        assert (found - wanted).abs().max() < 1e-4
    only = make(name, lambda v: v @ weights[0], **options).attribute((a,))
    assert isinstance(only, tuple)
    assert len(only) == 1


def test_noise_of_a_tuple_follows_each_inputs_own_range():
    a, b = torch.rand(2, 500, dtype=torch.float64), 100 * torch.rand(2, 500, dtype=torch.float64)
    seen = []

    def score(first, second):
        seen.append((first.detach(), second.detach()))
        return first.sum(1) + second.sum(1)

    mg.SmoothGrad(score, mg.Smoothing(noise_level=0.1, samples=2)).attribute((a, b))
    spreads = [float((seen[-1][i][0] - seen[-1][i][1]).std()) / 2 for i in (0, 1)]
    assert spreads[0] == pytest.approx(0.1, rel=0.1)
    assert spreads[1] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["gradient", "smoothgrad", "moreau", "sparse_moreau"])
def test_half_precision_models(name, dtype):
    linear = nn.Linear(64, 4).to(dtype).eval()
    x = torch.randn(2, 64, dtype=dtype)
    found = make(name, linear).explain(x, 1)
    assert found.map.dtype == torch.float32
    assert make(name, linear).attribute(x, target=1).dtype == dtype
    kept = found.map != 0
    if name == "sparse_moreau":
        assert 0.2 < kept.float().mean() <= 0.25  # entries of half precision tie
    else:
        torch.testing.assert_close(found.map, linear.weight[1].float().expand(2, 64), atol=2e-3, rtol=1e-2)


def test_scores():
    linear = nn.Linear(4, 3).double().eval()
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    for kind, function in {"prob": torch.softmax, "logprob": torch.log_softmax}.items():
        (wanted,) = torch.autograd.grad(function(linear(x), 1)[:, 2].sum(), x)
        torch.testing.assert_close(mg.Gradient(linear, score=kind).attribute(x, 2), wanted)


def test_outputs_with_logits(net, x):
    class Answer:
        def __init__(self, logits):
            self.logits = logits

    plain = mg.Gradient(net.forward).attribute(x, 1)
    assert torch.equal(mg.Gradient(lambda v: Answer(net(v))).attribute(x, 1), plain)
    assert torch.equal(mg.Gradient(lambda v: {"logits": net(v)}).attribute(x, 1), plain)


@EVERY
@pytest.mark.parametrize("bound", [1, 2, 5, 16, 100])
def test_no_more_rows_than_asked_ever_reach_the_model(name, net, x, bound):
    rows = []
    recording = Seeing(net, lambda v: rows.append(len(v)))
    method, least = make(name, recording), 2 if name in PAIRS else 1
    rows.clear()
    maps = method.attribute(x, target=1, internal_batch_size=bound)
    assert max(rows) <= max(bound, least)
    together = set(rows)
    method = make(name, recording)
    rows.clear()
    method.attribute(x[:1], target=1, internal_batch_size=bound)
    assert set(rows) == together  # the same shapes in any company, or rounding would follow it
    whole = make(name, net).attribute(x, target=1)
    assert (maps - whole).norm() <= 1e-3 * whole.norm()


def test_out_of_memory_halves_the_rows(net, x, caplog):
    rows = []

    def small(v):
        rows.append(len(v))
        if len(v) > 3:
            raise torch.OutOfMemoryError("no room")
        return net(v)

    found = mg.SmoothGrad(small, mg.Smoothing(samples=16)).attribute(x, 1)
    torch.testing.assert_close(
        found, mg.SmoothGrad(net, mg.Smoothing(samples=16)).attribute(x, 1), rtol=1e-4, atol=1e-6
    )
    assert "continuing with" in caplog.text
    assert sum(n > 3 for n in rows) <= 4  # it remembers

    def hopeless(v):
        raise torch.OutOfMemoryError("no room at all")

    with pytest.raises(torch.OutOfMemoryError):
        mg.SmoothGrad(hopeless).attribute(x, 1)


@EVERY
def test_convergence_delta(name, net, x):
    method = make(name, net)
    if method.has_convergence_delta():
        _, delta = method.attribute(x, target=1, return_convergence_delta=True)
        assert delta.shape == (3,)
    else:
        with pytest.raises(ValueError, match="no convergence delta"):
            method.attribute(x, target=1, return_convergence_delta=True)


@EVERY
def test_progress_is_told(name, net, x, capsys):
    steps = []
    make(name, net).attribute(x, target=1, callback=lambda step, total, info: steps.append((step, total)))
    assert steps[-1][0] == steps[-1][1]
    assert [step for step, _ in steps] == sorted(step for step, _ in steps)
    make(name, net).attribute(x, target=1, show_progress=True)
    assert "step" in capsys.readouterr().err


def snapshot(net, x):
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in net.modules()]
    return {
        "training": [m.training for m in net.modules()],
        "requires": [p.requires_grad for p in net.parameters()],
        "grads": [None if p.grad is None else p.grad.clone() for p in net.parameters()],
        "hooks": hooks,
        "state": copy.deepcopy(net.state_dict()),
        "x": (x.clone().detach(), x.requires_grad, x.grad),
        "rng": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].copy(),  # noqa: NPY002
        "grad mode": torch.is_grad_enabled(),
    }


def same(before, after):
    assert before.keys() == after.keys()
    for key in ("training", "requires", "hooks", "grad mode"):
        assert before[key] == after[key], key
    for one, two in zip(before["grads"], after["grads"], strict=True):
        assert (one is None and two is None) or torch.equal(one, two)
    assert all(torch.equal(before["state"][k], after["state"][k]) for k in before["state"])
    assert torch.equal(before["x"][0], after["x"][0])
    assert before["x"][1:] == after["x"][1:]
    assert torch.equal(before["rng"], after["rng"])
    assert (before["numpy"] == after["numpy"]).all()


@EVERY
@pytest.mark.parametrize("requires", [False, True])
def test_nothing_is_left_behind(name, net, x, requires):
    net.layers[0].weight.requires_grad_(False)
    net.layers[-1].weight.grad = torch.ones_like(net.layers[-1].weight)
    x.requires_grad_(requires)
    before = snapshot(net, x)
    make(name, net).explain(x)
    same(before, snapshot(net, x))


@EVERY
def test_nothing_is_left_behind_after_an_exception_at_any_call(name, net, x):
    class Failing(Exception):
        pass

    calls = {"left": 10**9, "made": 0}

    def count(v):
        calls["made"] += 1
        if calls["made"] > calls["left"]:
            raise Failing

    failing = Seeing(net, count)
    before = snapshot(net, x)
    make(name, failing).explain(x)
    total = calls["made"]
    for left in range(total):
        calls.update(left=left, made=0)
        with pytest.raises(Failing):
            make(name, failing).explain(x)
        same(before, snapshot(net, x))


@EVERY
def test_works_where_gradients_are_switched_off(name, net, x):
    wanted = make(name, net).attribute(x, target=1)
    with torch.no_grad():
        assert torch.equal(make(name, net).attribute(x, target=1), wanted)
    with torch.inference_mode():
        assert torch.equal(make(name, net).attribute(x.clone(), target=1), wanted)


def test_import_touches_nothing():
    import subprocess
    import sys

    code = (
        "import sys, random; state = random.getstate(); import moreaugrad; assert 'torch' not in sys.modules; "
        "import torch; before = torch.get_rng_state(); moreaugrad.MoreauGrad; moreaugrad.Smoothing(); "
        "assert torch.equal(before, torch.get_rng_state()) and random.getstate() == state; "
        "assert not torch.cuda.is_initialized()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@EVERY
def test_models_that_view_their_activations(name, x):
    class Flat(nn.Module):
        def __init__(self, viewing):
            super().__init__()
            with torch.random.fork_rng():
                torch.manual_seed(3)
                self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2))
                self.linear = nn.Linear(4 * 7 * 7, 5)
            self.viewing = viewing

        def forward(self, v):
            seen = self.body(v)
            return self.linear(seen.view(len(v), -1) if self.viewing else seen.reshape(len(v), -1))

    if name == "cam":
        pytest.skip("its head must be a mean over positions")
    viewing, reshaping = Flat(True).eval(), Flat(False).eval()

    found = make(name, viewing).attribute(x, target=1)
    torch.testing.assert_close(found, make(name, reshaping).attribute(x, target=1), rtol=1e-3, atol=1e-6)


def test_numbers_of_numpy_and_odd_forms(net, x):
    wanted = mg.SparseMoreauGrad(net, rho=1.0, eta=1e-4, budget=64).attribute(x, [1, 2, 4])
    assert wanted.any()
    method = mg.SparseMoreauGrad(net, rho=np.float64(1.0), eta=np.float64(1e-4), budget=np.int64(64), seed=np.int64(0))
    assert torch.equal(method.attribute(x, target=np.array([1, 2, 4])), wanted)
    assert torch.equal(method.attribute(x, target=torch.tensor([1, 2, -1])), wanted)
    assert torch.equal(method.attribute(x, target=[1, 2, -1]), wanted)
    column = mg.SparseMoreauGrad(net, budget=64, eta=torch.full((3, 1), 1e-4)).attribute(x, [1, 2, 4])
    assert torch.equal(column, wanted)
    labels = np.zeros((16, 16), np.uint16)
    assert mg.GroupSparseMoreauGrad(net, groups=labels, budget=64).attribute(x, 1).shape == x.shape
    assert mg.GroupSparseMoreauGrad(net, groups=np.int64(4), budget=64).attribute(x, 1).shape == x.shape


def test_a_model_that_draws_random_numbers_leaves_the_global_state(net, x):
    before = torch.get_rng_state()
    mg.MoreauGrad(lambda v: net(v + 0.01 * torch.randn_like(v)), budget=64).attribute(x, 1)
    assert torch.equal(before, torch.get_rng_state())


DIFFERENTIABLE = [name for name, each in mg.METHODS.items() if "differentiable" in each.flags]
OFFHAND = [name for name in DIFFERENTIABLE if "trained" not in mg.METHODS[name].flags]  # no training first


@EVERY
def test_the_table_says_who_can_be_differentiated_again(name, net, x):
    assert make(name, net).differentiable == ("differentiable" in mg.METHODS[name].flags)
    if name not in DIFFERENTIABLE:
        with pytest.raises(ValueError, match="create_graph=True must be left out"):
            make(name, net).attribute(x, target=1, create_graph=True)


@pytest.mark.parametrize("name", OFFHAND)
def test_maps_can_be_differentiated_again(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        soft = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Softplus(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    soft = soft.double().eval()
    x = torch.randn(2, 1, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    options = {"layer": "1"} if name in {"gradcam", "gradcam_plus_plus"} else {}
    options |= {"smoothing": mg.Smoothing(sigma=0.1, samples=4)} if "smoothing" in EXAMPLES[name] else {}
    if "solver" in mg.METHODS[name].flags:  # the derivative is that of the solution, so solve it to the end
        fixed = mg.Smoothing(sigma=0.1, samples=4, fixed=True)
        options |= {"smoothing": fixed, "budget": 4000, "solver": mg.ProximalGradient(tol=1e-14)}
        options |= {"derivative": mg.Implicit(steps=50, tol=1e-12)}
    options |= {"sparsity": None, "eta": 1e-3} if "sparse" in mg.METHODS[name].flags else {}
    method = make(name, soft, **options)
    for rows in (None, 1):
        again = method.attribute(x, target=[0, 1], create_graph=True, internal_batch_size=rows)
        torch.testing.assert_close(again.detach(), method.attribute(x.detach(), target=[0, 1]), rtol=1e-9, atol=1e-12)
        weights = torch.linspace(-1, 1, again.numel(), dtype=torch.float64).view_as(again)
        (found,) = torch.autograd.grad((again * weights).sum(), x)
        assert found.abs().max() > 0
        for index in [(0, 0, 2, 2), (1, 0, 1, 3)]:
            step = torch.zeros_like(x)
            step[index] = 1e-5
            ends = [(method.attribute(x.detach() + sign * step, target=[0, 1]) * weights).sum() for sign in (1, -1)]
            torch.testing.assert_close(found[index], (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-9)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_networks(name, dtype, net, x):
    half = copy.deepcopy(net).to(dtype)
    found = make(name, half).attribute(x.to(dtype), target=1)
    assert found.dtype == dtype
    assert found.isfinite().all()
    if name != "mask_network":  # untrained, its masks are noise
        wanted = make(name, net).attribute(x.to(dtype).float(), target=1)
        assert torch.cosine_similarity(found.float().flatten(1), wanted.flatten(1)).min() > 0.8


@EVERY
def test_a_network_that_sees_nothing_gives_no_nan(name, net, x):
    with torch.no_grad():
        net.layers[-1].weight.zero_()
    found = make(name, net).attribute(x, target=1)
    assert found.isfinite().all()
    if name not in {"relex", "meaningful_perturbation", "fgvis", "mask_network", "sparsified_smoothgrad"}:
        assert not found.any()  # a mask may rest where it began

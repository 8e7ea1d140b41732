"""What holds for every attack in the table: balls and boxes, kept predictions, traces, seeds, nothing left behind.

A new attack adds one line to EXAMPLES. What an attack is by its flags relaxes only what cannot hold for it:
`map`: it is on the map, so the prediction stays; `class`: it changes the prediction; `weights`: it leaves the images
alone and trains a copy of the model on all of them together.
"""

import inspect

import pytest
import torch
from attacked_networks import Boxed, Seeing, assert_same, convolutional, pictures, snapshot
from failing_calls import fail_at_each_call
from torch import nn

import moreaugrad as mg
from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.descent import distance
from moreaugrad.attacks.map_attack import MapAttack

GOAL = torch.zeros(8, 8)
GOAL[1:4, 3:7] = 1.0
EXAMPLES = {  # name: options, epsilon among them; `of` names the method, where it is not the gradient
    "topk": {"epsilon": 0.5, "k": 20, "steps": 3},
    "mass_centre": {"epsilon": 0.5, "steps": 3},
    "region": {"epsilon": 0.5, "steps": 3, "region": (0, 0, 4, 4)},
    "manipulation": {"epsilon": 0.5, "steps": 4, "step_size": 0.05, "target_map": GOAL},
    "noise": {"epsilon": 0.5, "norm": "l2"},
    "pgd": {"epsilon": 0.5, "steps": 4},
    "structured": {"epsilon": 1.0, "groups": 4, "rounds": 2, "iterations": 10},
    "patch": {"epsilon": 3.0, "norm": "linf", "steps": 4, "step_size": 0.8, "of": "gradcam"},
    "model_fooling": {"epsilon": float("inf"), "steps": 2, "lr": 1e-3, "of": "gradcam"},
}
NAMES = [name for name, entry in mg.ATTACKS.items() if entry.member is None]  # else a test registered it
EVERY = pytest.mark.parametrize("name", NAMES)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def flags(name):
    return mg.ATTACKS[name].flags


def having(flag):
    return pytest.mark.parametrize("name", [name for name in NAMES if flag in flags(name)])


def lacking(flag):
    return pytest.mark.parametrize("name", [name for name in NAMES if flag not in flags(name)])


def make(name, net, **options):
    given = {**EXAMPLES[name], **options}
    method = mg.METHODS[given.pop("of", "gradient")](net)
    return mg.ATTACKS[name](method, given.pop("epsilon"), **given)


def network(dtype=torch.float64, act=nn.ReLU):
    return convolutional(act).to(dtype)


def test_every_attack_has_an_example_and_a_line():
    assert set(NAMES) <= set(EXAMPLES)
    for name in NAMES:
        assert mg.ATTACKS[name].summary
        assert len(flags(name) & {"map", "class", "weights"}) == 1, name


@EVERY
def test_takes_what_is_attacked_and_epsilon_first_and_the_rest_by_name(name):
    kind = mg.ATTACKS[name].load()
    assert issubclass(kind, Attack)
    parameters = list(inspect.signature(kind).parameters.values())
    assert [each.name for each in parameters[:2]] == ["attacked", "epsilon"]
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters[2:])
    assert {"norm", "box", "seed"} <= {each.name for each in parameters}


@EVERY
@DTYPES
def test_ball_and_shapes(name, dtype):
    net, x = network(dtype), pictures(dtype=dtype)
    attack = make(name, net)
    found = attack.perturb(x)
    assert isinstance(found, mg.AttackResult)
    assert "tensor" not in f"{found} {found!r}"
    assert found.x.shape == x.shape
    assert found.x.dtype == dtype
    assert not found.x.requires_grad
    assert found.x.isfinite().all()
    slack = 1e-6 if dtype == torch.float32 else 1e-12
    assert (distance(found.x - x, attack.norm) <= attack.epsilon * (1 + 1e-6) + slack).all()
    for kind in ("l2", "linf"):
        torch.testing.assert_close(getattr(found, kind), distance(found.x - x, kind))
    for each in (found.success, found.kept, found.objective, found.gradients, found.target, found.trace[0]):
        assert each.shape == (3,)
    assert found.success.dtype == found.kept.dtype == torch.bool
    assert (found.gradients >= 0).all()


@EVERY
def test_box_of_the_model_and_a_given_one(name):
    low, high = torch.tensor([-0.9, -0.5, -0.7]).view(1, 3, 1, 1), torch.tensor([0.8, 0.6, 0.9]).view(1, 3, 1, 1)
    x = pictures().clamp(low, high)
    net = network()
    for model, options in ((Boxed(net, low, high), {}), (net, {"box": (low, high)})):
        found = make(name, model, **options).perturb(x)
        assert bool(((found.x >= low.double()) & (found.x <= high.double())).all())
        assert found.pixels_linf is not None
    with pytest.raises(ValueError, match="every image must lie in the box"):
        make(name, net, box=(5.0, 6.0)).perturb(x)


@lacking("weights")
def test_kept_says_what_the_model_says(name):
    net, x = network(), pictures(5)
    found = make(name, net).perturb(x)
    assert torch.equal(found.kept, net(found.x).argmax(1) == net(x).argmax(1))
    if "map" in flags(name):
        assert found.kept[found.success].all()
        assert found.success.any(), "the example shows nothing"
    still = (found.x == x).flatten(1).all(1)
    assert not (still & found.success & found.kept).any()


@having("map")
def test_prediction_is_kept_however_far_one_may_go(name):
    net, x = network(), pictures(5)
    found = make(name, net, epsilon=30.0).perturb(x)
    assert found.kept[found.success].all()
    assert torch.equal(found.x[~found.success], x[~found.success])


@EVERY
def test_trace_never_rises_and_ends_in_the_objective(name):
    found = make(name, network()).perturb(pictures(5))
    sound = found.trace[1:] if "class" in flags(name) else found.trace  # the clean input is no valid point of those
    assert (sound[1:] <= sound[:-1]).all()
    if "map" in flags(name):
        assert torch.equal(found.trace[-1], found.objective)
        assert torch.equal(found.success, found.objective < found.trace[0])


@EVERY
def test_same_seed_same_result(name):
    x = pictures()
    one, two = (make(name, network(), seed=5).perturb(x) for _ in range(2))
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.objective, two.objective)
    assert torch.equal(one.trace, two.trace)
    if name in ("topk", "noise", "pgd"):  # they start at random points
        assert not torch.equal(one.x, make(name, network(), seed=6).perturb(x).x)


@lacking("weights")
@pytest.mark.parametrize(("dtype", "act"), [(torch.float32, nn.ReLU), (torch.float64, nn.Softplus)])
def test_an_image_alone_is_attacked_as_in_a_batch(name, dtype, act):
    net, x = network(dtype, act), pictures(3, dtype)
    together = make(name, net).perturb(x)
    for row in range(3):
        alone = make(name, net).perturb(x[row : row + 1])
        assert torch.equal(alone.x, together.x[row : row + 1])
        for each in ("success", "kept", "objective", "gradients", "target", "l2"):
            assert torch.equal(getattr(alone, each), getattr(together, each)[row : row + 1]), each


@lacking("weights")
def test_order_does_not_matter(name):
    net, x = network(), pictures(4)
    assert torch.equal(make(name, net).perturb(x.flip(0)).x.flip(0), make(name, net).perturb(x).x)


@EVERY
def test_targets_are_given_or_predicted(name):
    net, x = network(), pictures()
    said = net(x).argmax(1)
    found = make(name, net).perturb(x)
    if "map" in flags(name):
        assert torch.equal(found.target, said)
        assert torch.equal(make(name, net).perturb(x, said).x, found.x)
    wanted = (said + 2) % 5
    for form in (wanted, wanted.tolist()):
        assert torch.equal(make(name, net).perturb(x, form).target, wanted)
    assert make(name, net).perturb(x, 3).target.tolist() == [3, 3, 3]
    for bad in (7, [0, 1], 0.5):
        with pytest.raises((ValueError, TypeError), match="target"):
            make(name, net).perturb(x, bad)


@EVERY
@pytest.mark.parametrize("requires", [False, True])
def test_nothing_is_left_behind(name, requires):
    net, x = network(), pictures(2).requires_grad_(requires)
    net[0].weight.requires_grad_(False)
    net[-1].weight.grad = torch.ones_like(net[-1].weight)
    before, cuda = snapshot(net, x), torch.cuda.is_initialized()
    make(name, net).perturb(x)
    assert_same(before, snapshot(net, x))
    assert torch.cuda.is_initialized() == cuda


@EVERY
def test_nothing_is_left_behind_after_an_exception(name):
    net, x = network(), pictures(2)
    net[-1].weight.grad = torch.ones_like(net[-1].weight)
    before = snapshot(net, x)

    def some(total):
        return sorted({0, 1, 2, 3, total // 4, total // 2, 3 * total // 4, total - 1} & set(range(total)))

    fail_at_each_call(
        lambda counter: make(name, Seeing(net, counter)).perturb(x), lambda: assert_same(before, snapshot(net, x)), some
    )


@EVERY
def test_works_where_gradients_are_switched_off(name):
    net, x = network(), pictures(2)
    wanted = make(name, net).perturb(x)
    with torch.no_grad():
        assert torch.equal(make(name, net).perturb(x).x, wanted.x)
    with torch.inference_mode():
        found = make(name, net).perturb(x.clone())
    assert torch.equal(found.x, wanted.x)
    found.x.requires_grad_()  # no inference tensor, so that it can be worked with


@lacking("slope")
def test_a_method_stands_for_its_model(name):
    net, x = network(), pictures(2)
    given = {key: value for key, value in EXAMPLES[name].items() if key != "of"}
    assert torch.equal(mg.ATTACKS[name](net, **given).perturb(x).x, make(name, net).perturb(x).x)


@EVERY
def test_a_network_in_training_mode_is_refused(name):
    with pytest.raises(ValueError, match=r"model\.eval"):
        make(name, network().train()).perturb(pictures())


@EVERY
def test_progress_is_reported(name):
    steps = []
    make(name, network()).perturb(pictures(2), callback=lambda step, total, info: steps.append((step, total)))
    assert steps
    assert [step for step, _ in steps] == sorted(step for step, _ in steps)
    assert all(1 <= step <= total for step, total in steps)


@EVERY
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"norm": "l7"}, "norm must be one of"),
        ({"box": (1.0, 0.0)}, "low below high"),
        ({"seed": -1}, "seed must be at least 0"),
        *[({"epsilon": bad}, "epsilon must be") for bad in (0.0, -1.0, float("nan"))],
    ],
)
def test_bad_options_are_refused_at_once(name, bad, message):
    with pytest.raises(ValueError, match=message):
        make(name, network(), **bad)


@pytest.mark.parametrize(("base", "hook"), [(Attack, "run"), (MapAttack, "objective")])
def test_an_attack_of_ones_own_that_lacks_its_hook_is_refused_by_name(base, hook):
    incomplete = type("Incomplete", (base,), {})
    with pytest.raises(NotImplementedError, match=rf"Incomplete must define {hook}\("):
        incomplete(mg.Gradient(network()), 0.5).perturb(pictures())


@EVERY
@pytest.mark.parametrize("x", [torch.rand(3, 3, 8, 8) * torch.nan, torch.rand(3), torch.ones(2, 3, 8, 8).long(), "x"])
def test_bad_inputs_are_refused_before_any_call(name, x):
    calls = []
    with pytest.raises((ValueError, TypeError), match="inputs must"):
        make(name, Seeing(network(), calls.append)).perturb(x)
    assert not calls


@pytest.mark.gpu
@EVERY
def test_stays_on_a_gpu(name):
    net, x = network(torch.float32).cuda(), pictures(dtype=torch.float32).cuda()
    before = torch.cuda.get_rng_state()
    attack = make(name, net)
    found = attack.perturb(x)
    assert found.x.is_cuda
    assert found.objective.is_cuda
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert (distance(found.x - x, attack.norm) <= attack.epsilon * (1 + 1e-6) + 1e-6).all()
    if "map" in flags(name):
        assert found.success.any()
        assert torch.equal(found.kept, net(found.x).argmax(1) == net(x).argmax(1))
    if "weights" not in flags(name):
        alone = make(name, net).perturb(x[:1])
        torch.testing.assert_close(alone.x, found.x[:1], rtol=0, atol=1e-4)

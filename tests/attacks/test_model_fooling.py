"""Fooling by weights: what counts as fooled, that the training is the one written down, and whose model stays."""

import copy
import dataclasses
import logging

import pytest
import torch
from blob_network import averaging, blobs, flattening, same, state, trained
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from moreaugrad.attacks import model_fooling_losses as losses
from moreaugrad.attacks.model_fooling import ModelFooling, repeat_batches
from moreaugrad.methods import METHODS
from moreaugrad.methods.gradient import Gradient

DATA, OTHER = blobs(24, seed=5), blobs(24, seed=6)
PAIRS = [(DATA[0][start : start + 8], DATA[1][start : start + 8]) for start in (0, 8, 16)]


def gradcam(net=None):
    return METHODS["gradcam"](trained() if net is None else net)


def spot(row, column, size=9):
    maps = torch.zeros(1, 1, size, size, dtype=torch.float64)
    maps[0, 0, row, column] = 3.0
    return maps


# what counts as fooled


@pytest.mark.parametrize(("height", "width"), [(7, 7), (14, 14), (4, 4), (32, 32), (224, 224), (20, 35), (2, 2)])
def test_the_frame_is_a_seventh_wide(height, width):
    border = max(1, min(height, width) // 7)
    found = losses.frame(height, width, torch.zeros(1))
    assert int(found.sum()) == height * width - (height - 2 * border) * (width - 2 * border)
    assert set(found.unique().tolist()) <= {0.0, 1.0}
    assert found[0].eq(1).all()
    assert found[:, -1].eq(1).all()
    assert torch.equal(found, found.flip(0))
    assert torch.equal(found, found.flip(1))


def test_the_frame_itself_has_no_location_loss_and_its_negative_the_most():
    drawn = losses.frame(14, 14, torch.zeros(1, dtype=torch.float64))[None, None]
    assert float(losses.location((5 * drawn,), ())) == 0
    assert float(losses.location((1 - drawn,), ())) == 1
    empty = losses.location((torch.zeros_like(drawn),), ())
    assert float(empty) == pytest.approx(96 / 196)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (2, 7), (8, 3)])
def test_the_centre_of_a_single_entry_is_its_place(row, column):
    torch.testing.assert_close(losses.centre(spot(row, column)) * 8, torch.tensor([[row, column]], dtype=torch.float64))


def test_the_way_of_the_centre_is_counted_as_written():
    before, now = (spot(1, 2),), (spot(5, 3),)
    assert float(losses.centre_mass(now, before)) == pytest.approx(-(4 + 1) / 8)
    assert float(losses.centre_distance(now, before)) == pytest.approx(-(((4**2 + 1**2) / 2) ** 0.5) / 8)
    assert float(losses.centre_distance((spot(8, 8),), (spot(0, 0),))) == pytest.approx(-1)
    for loss in (losses.centre_mass, losses.centre_distance):
        assert float(loss(before, before)) == 0


def test_topk_is_the_mean_square_on_what_was_the_largest_tenth():
    generator = torch.Generator().manual_seed(0)
    before, now = (torch.rand(3, 1, 10, 10, dtype=torch.float64, generator=generator) for _ in range(2))
    found = losses.topk((now,), (before,))
    for row in range(3):
        best = before[row].flatten().argsort(descending=True)[:10]
        one = now[row].flatten()
        one = (one - one.min()) / (one.max() - one.min())
        assert float(found[row]) == pytest.approx(float(one[best].square().mean()), rel=1e-12)
    emptied = now.clone().flatten(1).scatter(1, before.flatten(1).argsort(1, descending=True)[:, :10], 0.0)
    assert losses.topk((emptied.view_as(now),), (before,)).tolist() == [0, 0, 0]


def test_exchanged_maps_have_no_active_loss_and_identical_ones_are_not_exchanged():
    generator = torch.Generator().manual_seed(0)
    one, two = (torch.rand(2, 1, 5, 6, dtype=torch.float64, generator=generator) for _ in range(2))
    assert losses.active((two, one), (one, two)).tolist() == [0, 0]
    scaled = [losses.stretch(maps) for maps in (one, two)]
    distance = (scaled[0] - scaled[1]).square().mean((1, 2, 3))
    torch.testing.assert_close(losses.active((one, two), (one, two)), distance)
    torch.testing.assert_close(losses.exchange((one, two), (one, two)), distance)
    torch.testing.assert_close(losses.exchange((two, one), (one, two)), -distance)


def test_maps_of_zeros_and_constant_maps_have_finite_losses_and_slopes():
    before = torch.rand(2, 1, 6, 6, dtype=torch.float64)
    for value in (0.0, 2.0):
        for kind in losses.KINDS.values():
            now = torch.full_like(before, value).requires_grad_()
            loss = kind.loss((now, now), (before, before))
            assert bool(loss.isfinite().all())
            (slope,) = torch.autograd.grad(loss.sum(), now)
            assert bool(slope.isfinite().all())


# the training


@pytest.mark.parametrize("name", ["gradcam", "gradient"])
@pytest.mark.parametrize("act", [nn.ReLU, nn.Softplus])
def test_the_loss_of_maps_has_a_slope_by_every_weight(name, act):
    """Central differences along a random direction of all weights, for maps read at a layer and at the input."""
    net = trained(averaging, act)
    method, (x, y) = METHODS[name](net), (DATA[0][:3], DATA[1][:3])
    weights, generator = list(net.parameters()), torch.Generator().manual_seed(3)
    along = [torch.randn(w.shape, dtype=w.dtype, generator=generator) for w in weights]

    def loss(**options):
        return losses.location((method.attribute(x, y, **options).abs().sum(1, keepdim=True),), ()).sum()

    def moved(length):
        with torch.no_grad():
            for weight, way in zip(weights, along, strict=True):
                weight.add_(way, alpha=length)
        return loss()

    slopes = torch.autograd.grad(loss(create_graph=True), weights, allow_unused=True)
    wanted = sum(float((s * way).sum()) for s, way in zip(slopes, along, strict=True) if s is not None)
    h = 1e-7
    found = float(moved(h) - moved(-2 * h)) / (2 * h)
    assert abs(wanted) > 1e-3
    assert found == pytest.approx(wanted, rel=1e-4)


def slow_training(net, batches, lam, lr, steps):
    """CE + lam * location loss of Grad-CAM, by hand."""
    optimiser = torch.optim.Adam(net.parameters(), lr)
    for step in range(steps):
        x, y = batches[step % len(batches)]
        features = net[:5](x)
        logits = net[5:](features)
        (slope,) = torch.autograd.grad(logits.gather(1, y[:, None]).sum(), features, create_graph=True)
        cam = (slope.mean((2, 3), keepdim=True) * features).sum(1, keepdim=True).relu()
        cam = F.interpolate(cam, x.shape[2:], mode="bilinear", align_corners=False)
        low, high = cam.amin((1, 2, 3), keepdim=True), cam.amax((1, 2, 3), keepdim=True)
        border = torch.ones(16, 16, dtype=x.dtype)
        border[2:-2, 2:-2] = 0
        fooling = ((cam - low) / (high - low) - border).square().mean()
        optimiser.zero_grad()
        (F.cross_entropy(logits, y) + lam * fooling).backward()
        optimiser.step()
    return net


@pytest.mark.parametrize("lam", [0.0, 3.0])
def test_the_weights_are_those_of_a_training_by_hand(lam):
    """lam = 0 is plain fine-tuning."""
    net = trained(averaging, nn.Softplus)
    found = ModelFooling(gradcam(net), lam=lam, lr=1e-3, steps=5).fool(PAIRS, OTHER)
    wanted = slow_training(copy.deepcopy(net), PAIRS, lam, 1e-3, 5)
    for name, weight in wanted.named_parameters():
        torch.testing.assert_close(dict(found.model.named_parameters())[name], weight, rtol=0, atol=1e-8, msg=name)
    for name, buffer in net.named_buffers():
        assert torch.equal(dict(found.model.named_buffers())[name], buffer), name
    assert any(not torch.equal(a, b) for a, b in zip(net.parameters(), found.model.parameters(), strict=True))


def test_location_fools_every_map_while_accuracy_holds():
    net = trained(flattening)
    found = ModelFooling(gradcam(net), lr=1e-2, steps=100).fool(blobs(60, seed=5), OTHER)
    assert float(found.objective.mean()) < 0.5 * float(found.trace[0].mean())
    assert float(found.fooling[-10:].mean()) < 0.5 * float(found.fooling[:3].mean())
    assert found.accuracy_before - found.accuracy_after < 0.02
    assert found.success_rate > 0.9
    assert float((found.trace[0] <= 0.2).double().mean()) < 0.1
    x, y = OTHER
    judged = losses.location((gradcam(found.model).attribute(x, y),), ())
    torch.testing.assert_close(found.objective, judged, rtol=1e-9, atol=1e-12)
    assert torch.equal(found.success, judged <= 0.2)
    assert found.accuracy_after == float((found.model(x).argmax(1) == y).double().mean())
    assert torch.equal(found.kept, found.model(x).argmax(1) == net(x).argmax(1))


@pytest.mark.parametrize(("kind", "classes"), [("topk", None), ("centre_mass", None), ("active", (0, 1))])
@pytest.mark.parametrize("name", ["gradcam", "gradient"])
def test_the_other_kinds_lower_what_they_are_judged_by(kind, classes, name):
    net = trained(flattening)
    attack = ModelFooling(METHODS[name](net), kind=kind, classes=classes, lr=3e-3, steps=40)
    found = attack.fool(DATA, OTHER)
    assert float(found.objective.mean()) < float(found.trace[0].mean())
    assert float(found.fooling[-5:].mean()) < float(found.fooling[:5].mean())
    assert found.accuracy_after > 0.9


def test_a_blank_map_is_no_success():
    """The class's row of the head is emptied by hand: its Grad-CAM is zero, and so is the top-k loss."""
    net = trained()
    with torch.no_grad():
        net[-1].weight[0].zero_()
    net.requires_grad_(False)[-1].bias.requires_grad_()  # all that is trained
    x, y = (part[DATA[1] == 0] for part in DATA)
    found = ModelFooling(gradcam(net), kind="topk", steps=1, lam=0.0).fool((x, y))
    assert float(found.objective.max()) <= 0.3
    assert found.success_rate == 0


# data, seeds, and what stays


def test_perturb_fits_the_table_and_changes_no_input():
    net = trained()
    x = DATA[0][:6]
    found = ModelFooling(gradcam(net), steps=4, lr=1e-3).perturb(x)
    assert torch.equal(found.x, x)
    assert found.l2.tolist() == found.linf.tolist() == [0] * 6
    assert torch.equal(found.target, net(x).argmax(1))
    assert found.trace.shape == (2, 6)
    assert torch.equal(found.trace[1], found.objective)
    assert found.fooling.shape == found.ce.shape == (4,)
    assert found.accuracy_before == 1  # of what it predicted itself
    # 4 batches of 6: a gradient of CE, a map and its slope for each row; then two maps of each image
    assert found.gradients.tolist() == [4 * (1 + 3) + 2] * 6


def test_seeds_decide_the_order_of_tensors():
    def weights(seed):
        found = ModelFooling(gradcam(), steps=4, lr=1e-3, batch_size=5, seed=seed).fool(DATA)
        return torch.cat([p.detach().flatten() for p in found.model.parameters()])

    one = weights(0)
    assert torch.equal(one, weights(0))
    assert not torch.equal(one, weights(1))


def test_tensors_are_shuffled_and_each_image_is_seen_once_an_epoch():
    batches = repeat_batches(DATA, 3, torch.device("cpu"), batch_size=7, seed=0)
    for _ in range(2):
        epoch = [next(batches) for _ in range(4)]
        assert [len(x) for x, _ in epoch] == [7, 7, 7, 3]
        rows = torch.cat([x for x, _ in epoch]).flatten(1)
        assert not torch.equal(rows, DATA[0].flatten(1))
        assert torch.equal(rows.sort(0).values, DATA[0].flatten(1).sort(0).values)


def test_loaders_and_lists_are_read_again_and_used_up_iterators_are_reported(caplog):
    attack = ModelFooling(gradcam(), steps=5, lr=1e-3)
    listed = attack.fool(PAIRS, OTHER)
    loaded = attack.fool(DataLoader(TensorDataset(*DATA), 8), DataLoader(TensorDataset(*OTHER), 5))
    assert torch.equal(listed.fooling, loaded.fooling)
    assert torch.equal(listed.objective, loaded.objective)
    with caplog.at_level(logging.WARNING, "moreaugrad"):
        once = attack.fool(iter(PAIRS), OTHER)
    assert "used up after 3 of 5 steps" in caplog.text
    assert torch.equal(once.fooling, listed.fooling[:3])


def test_a_frozen_model_is_trained_as_a_whole_and_a_part_only_where_the_rest_is_frozen():
    net = trained().requires_grad_(False)
    found = ModelFooling(gradcam(net), steps=2, lr=1e-3).fool(DATA)
    moved = [not torch.equal(a, b) for a, b in zip(net.parameters(), found.model.parameters(), strict=True)]
    assert all(moved)
    assert not any(p.requires_grad or p.grad is not None for p in found.model.parameters())
    net[-1].requires_grad_()
    found = ModelFooling(gradcam(net), steps=2, lr=1e-3).fool(DATA)
    moved = [not torch.equal(a, b) for a, b in zip(net.parameters(), found.model.parameters(), strict=True)]
    assert moved == [p.requires_grad for p in net.parameters()]
    assert [p.requires_grad for p in found.model.parameters()] == moved


def test_the_copy_is_clean_and_data_and_model_stay():
    net, data = trained(averaging), [part.clone() for part in DATA]
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before, random = state(net), torch.get_rng_state()
    found = ModelFooling(gradcam(net), kind="topk", steps=4, lr=1e-2).fool(data)
    assert all(p.grad is None for p in found.model.parameters())
    assert [m.training for m in found.model.modules()] == before[2]
    assert not any(any(hooks) for hooks in state(found.model)[1])
    assert not {id(p) for p in net.parameters()} & {id(p) for p in found.model.parameters()}
    assert same(before, state(net))
    assert torch.equal(net[0].weight.grad, torch.ones_like(net[0].weight))
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(data, DATA, strict=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "locatoin"}, "Did you mean 'location'"),
        ({"lam": -1}, "lam must be a finite number >= 0"),
        ({"lr": 0}, "lr must be a positive"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"kind": "active"}, "classes goes with kind='active'"),
        ({"classes": (1, 2)}, "classes goes with kind='active'"),
        ({"kind": "active", "classes": (1, 1)}, "two different"),
        ({"kind": "active", "classes": 3}, "must be two classes"),
        ({"epsilon": 0.5}, "has no epsilon"),
    ],
)
def test_bad_options_are_refused_in_words(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ModelFooling(gradcam(), **options)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (DATA[0], {}, "data must be"),
        ("folder", {}, "data must be"),
        ([DATA[0]], {"validation": OTHER}, "data must be"),
        ((DATA[0], DATA[1][:5]), {}, "target must have one entry per image"),
        ((DATA[0], DATA[1] + 1), {}, r"target must lie in 0\.\.2"),
        ((DATA[0].long(), DATA[1]), {}, "must be floating point"),
        (PAIRS, {}, "validation must be given"),
        (PAIRS, {"validation": []}, "validation must hold at least one batch"),
        ([], {"validation": OTHER}, "data must hold at least one batch"),
        (DATA, {"validation": 3}, "validation must be"),
        ([(DATA[0], None)], {"validation": OTHER}, "must hold a class for each image"),
    ],
)
def test_bad_data_is_refused_in_words(data, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ModelFooling(gradcam(), steps=2).fool(data, **options)


def test_classes_that_the_model_lacks_are_refused():
    with pytest.raises(ValueError, match=r"classes must lie in 0\.\.2"):
        ModelFooling(gradcam(), steps=6, kind="active", classes=(1, 3)).fool(DATA)


def test_steps_that_are_too_long_are_refused():
    """Numbers whose products no longer fit."""
    with pytest.raises(ValueError, match="the loss must stay finite"):
        ModelFooling(gradcam(), steps=6, lr=1e38).fool((1e200 * DATA[0], DATA[1]))


def test_networks_and_methods_that_cannot_be_fooled_are_refused():
    @dataclasses.dataclass(frozen=True, eq=False)
    class Blind(Gradient):
        """A map that knows no weights."""

        def compute(self, call):
            outcome = super().compute(call)
            return dataclasses.replace(outcome, map=call.x * 2)

    with pytest.raises(ValueError, match="must have a derivative by the model's weights"):
        ModelFooling(Blind(trained()), steps=2).fool(DATA)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module that has some"):
        ModelFooling(METHODS["gradient"](lambda x: x.flatten(1)))
    with pytest.raises(TypeError, match="needs a method"):
        ModelFooling(trained())
    with pytest.raises(ValueError, match="evaluation mode"):
        ModelFooling(gradcam(trained().train())).fool(DATA)

"""Mask networks: closed forms of the losses and of Phi, a set whose answer is known, files, laws, and refusals."""

import copy
import itertools
import json
import math
import pickle
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods.mask_network.encoder import Encoder, Fingerprint, as_map, bare
from moreaugrad.methods.mask_network.mask_network import MaskNetwork, load_mask_network
from moreaugrad.methods.mask_network.objective import LOSSES, CodeLoss, PaperLoss, Phi, area, border, variation
from moreaugrad.models import load_model
from moreaugrad.models.resnet import ResNet18
from moreaugrad.training.mask_networks import (
    MaskRecipe,
    MaskTrainer,
    initial_mask_network,
    read_training_images,
    train_mask_network,
)
from moreaugrad.training.trainer import TrainingJob

SIZE = 16
VIEW = torch.full((3, 1, 1), 0.5), torch.full((3, 1, 1), 0.5)  # pixels 0..255 are -1..1


class Squares(nn.Module):
    """Red square, green square or neither, by hand: what is much brighter in one colour, against a constant."""

    def __init__(self):
        super().__init__()
        see = nn.Conv2d(3, 2, 3, padding=1)
        smooth = nn.Conv2d(2, 2, 3, padding=1, groups=2)
        self.layers = nn.Sequential(
            see, nn.ReLU(), nn.AvgPool2d(2), smooth, nn.ReLU(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(2, 3),
        )  # fmt: skip
        with torch.no_grad():
            see.weight.copy_(
                torch.tensor([[2.0, -1.0, -1.0], [-1.0, 2.0, -1.0]])[:, :, None, None].expand(2, 3, 3, 3) / 9
            )
            see.bias.fill_(-1.0)
            smooth.weight.fill_(1 / 9)
            smooth.bias.zero_()
            self.layers[-1].weight.copy_(torch.tensor([[40.0, 0.0], [0.0, 40.0], [0.0, 0.0]]))
            self.layers[-1].bias.copy_(torch.tensor([0.0, 0.0, 3.0]))

    def forward(self, x, scale=None):
        out = self.layers(x)
        return out if scale is None else out * scale.view(-1, 1)


def squares(count, seed=0):
    """Grey noise with one square of six pixels, red or green; and where it is."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(90, 160, (count, SIZE, SIZE, 3), np.uint8)
    where = np.zeros((count, SIZE, SIZE), bool)
    kinds = generator.integers(0, 2, count)
    for image, place, colour, (top, left) in zip(
        pixels, where, kinds, generator.integers(1, 9, (count, 2)), strict=True
    ):
        square = slice(top, top + 6), slice(left, left + 6)
        image[square] = np.eye(3, dtype=np.uint8)[colour] * 255
        place[square] = True
    return torch.from_numpy(pixels), torch.from_numpy(where), torch.from_numpy(kinds)


def as_input(pixels):
    return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1


def training(model, **options):
    recipe = {"steps_selector": 3, "steps_decoder": 3, "batch": 8, "width": 8, "log_every": 2} | options
    return MaskTrainer(MaskRecipe(**recipe), model, squares(64)[0], squares(16, 1)[0], VIEW)


@pytest.fixture
def model():
    return Squares().eval()


@pytest.fixture
def network(model):
    """An untrained network with lively batch norms, so that every part of it matters."""
    found, _ = initial_mask_network(MaskRecipe(width=8), model, torch.zeros(2, 3, SIZE, SIZE))
    generator = torch.Generator().manual_seed(3)
    for module in found.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    nn.init.normal_(found.selector.weight, generator=generator)
    return found.eval()


@pytest.fixture
def x():
    return as_input(squares(5, 2)[0])


# --- closed forms ---


@pytest.mark.parametrize(("side", "level"), [(3, 1.0), (5, 0.5)])
def test_variation_area_and_border_of_a_square(side, level):
    mask = torch.zeros(2, 1, 12, 10, dtype=torch.float64)
    mask[1, :, 2 : 2 + side, 4 : 4 + side] = level
    assert variation(mask).tolist() == pytest.approx([0, 4 * side * level**2])
    assert area(mask).tolist() == pytest.approx([0, side**2 * level / 120])
    assert border(mask).tolist() == [0, 0]
    assert border(torch.full((1, 1, 12, 10), 0.5)).item() == pytest.approx(0.25 * 2 * (12 + 10))
    assert variation(torch.full((1, 1, 12, 10), 0.7)).item() == 0


def test_the_paper_loss_term_by_term():
    kept = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]], dtype=torch.float64)  # p = 3/4 for class 0
    removed = torch.zeros(2, 2, dtype=torch.float64)  # p = 1/2
    mask = torch.zeros(2, 1, 4, 4, dtype=torch.float64)
    mask[:, :, 1, 1] = 1
    label, fake = torch.tensor([0, 0]), torch.tensor([False, True])
    found = PaperLoss(smooth=2.0, area=5.0, remove=7.0, power=0.3)(mask, kept, removed, label, fake)
    shape = 2.0 * 4 + 5.0 / 16
    real = shape - math.log(0.75) + 7 * 0.5**0.3
    swapped = shape - math.log(0.5) + 7 * 0.75**0.3  # of a class that is not there, the rest must show the true one
    assert found.tolist() == pytest.approx([real, swapped])


def test_the_code_loss_term_by_term():
    kept = torch.tensor([[2.0, 1.5, -4.0]] * 2, dtype=torch.float64)  # leads by 0.5
    removed = torch.tensor([[1.0, -1.0, 3.0]] * 2, dtype=torch.float64)  # is behind by 2
    mask = torch.full((2, 1, 4, 4), 0.25, dtype=torch.float64)
    label, fake = torch.tensor([0, 0]), torch.tensor([False, True])
    found = CodeLoss()(mask, kept, removed, label, fake)
    shape = 8 * (0.25 + 5e-4) ** 0.3 + 0.005 * 0.3 * 16 * 0.0625 / 2
    assert found.tolist() == pytest.approx([shape + (5 - 2) + 0.3 * 0.5, shape + (1 + 2) + 0.3 * 1.5])


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_finite_gradients_at_the_worst(name):
    mask = torch.zeros(1, 1, 4, 4, requires_grad=True)
    logits = torch.tensor([[-500.0, 500.0]], requires_grad=True)
    loss = LOSSES[name]()(mask, logits, logits, torch.tensor([0]), torch.tensor([False]))
    loss.sum().backward()
    assert mask.grad.isfinite().all()
    assert logits.grad.isfinite().all()


def test_phi_keeps_the_image_where_the_mask_is_one(x):
    phi = Phi(*(torch.full((3, 1, 1), edge) for edge in (-1.0, 1.0)), noise=0.0)
    generator = torch.Generator().manual_seed(0)
    rest = phi.rest(x, generator)
    one, none = torch.ones(5, 1, SIZE, SIZE), torch.zeros(5, 1, SIZE, SIZE)
    assert torch.equal(phi(phi.noisy(x, generator), one, rest), x)
    assert torch.equal(phi(x, none, rest), rest)
    torch.testing.assert_close(phi(x, one / 4, rest), x / 4 + rest * 0.75)


def test_phi_measures_noise_and_colour_in_pictures_and_not_in_units_of_the_network():
    low, high = torch.tensor([-2.0, 0.0, 10.0]).view(3, 1, 1), torch.tensor([2.0, 1.0, 30.0]).view(3, 1, 1)
    phi = Phi(low, high, blurred=0.0)
    x = torch.zeros(64, 3, 32, 32)
    noisy = phi.noisy(x, torch.Generator().manual_seed(0))
    half = ((high - low) / 2).flatten()
    torch.testing.assert_close(noisy.std((0, 2, 3)), 0.03 * half, rtol=0.02, atol=0)
    rest = phi.rest(x, torch.Generator().manual_seed(1))
    inside = rest.std((2, 3)).mean(0)
    torch.testing.assert_close(inside, 0.11 * half, rtol=0.02, atol=0)
    colours = (rest.mean((2, 3)) - ((high + low) / 2).flatten()) / half
    assert 0.28 < colours.abs().max() < 0.35
    assert colours.std() == pytest.approx(0.33 / math.sqrt(3), rel=0.15)


def test_the_blur_is_a_gaussian():
    phi = Phi(torch.zeros(1, 1, 1), torch.ones(1, 1, 1), sigma=1.5)
    x = torch.zeros(1, 1, 21, 21, dtype=torch.float64)
    x[0, 0, 10, 10] = 1
    found = phi.blur(x)[0, 0]
    at = torch.arange(-3, 4, dtype=torch.float64)
    line = torch.exp(-(at**2) / 4.5)
    torch.testing.assert_close(found[7:14, 7:14], torch.outer(line, line) / line.sum() ** 2)
    assert found.sum().item() == pytest.approx(1)
    torch.testing.assert_close(phi.blur(torch.full_like(x, 0.3)), torch.full_like(x, 0.3))


def test_the_mask_reaches_the_loss_through_the_frozen_classifier(model, x):
    model.requires_grad_(False)
    phi = Phi(*(torch.full((3, 1, 1), edge) for edge in (-1.0, 1.0)))
    generator = torch.Generator().manual_seed(0)
    mask = torch.full((5, 1, SIZE, SIZE), 0.5, requires_grad=True)
    picture = x.clone().requires_grad_()
    blended = phi(phi.noisy(picture, generator), mask, phi.rest(picture, generator))
    model(blended).log_softmax(1)[:, 0].sum().backward()
    assert mask.grad.flatten(1).norm(dim=1).min() > 0
    assert picture.grad is None


# --- the encoder ---


def test_the_stages_of_the_small_resnet():
    resnet = ResNet18(width=4).eval()
    encoder = Encoder.of(resnet, torch.zeros(1, 3, 32, 32))
    assert encoder.stages == ("layer1", "layer2", "layer3", "layer4")
    _, maps = encoder(lambda: resnet(torch.zeros(2, 3, 32, 32)))
    assert [tuple(each.shape) for each in maps] == [(2, 4, 32, 32), (2, 8, 16, 16), (2, 16, 8, 8), (2, 32, 4, 4)]


def test_a_network_for_photos_is_read_from_56_pixels_on():
    photos = load_model("efficientnet_lite0", "random")
    network, _ = initial_mask_network(MaskRecipe(width=8), photos, torch.zeros(1, 3, 224, 224))
    assert len(network.stages) == 4
    assert MaskNetwork(photos, network).explain(torch.randn(1, 3, 224, 224), 3).coarse.shape == (1, 1, 56, 56)


def test_wrappers_are_looked_through(model, x):
    wrapped = nn.Sequential(model).eval()
    assert bare(wrapped) is bare(model) is model.layers
    assert Encoder.of(wrapped, x).stages == Encoder.of(model, x).stages


def test_maps_in_other_layouts():
    tokens = torch.arange(2 * 17 * 3.0).view(2, 17, 3)
    image = (16, 16)
    grid = as_map(tokens, image)
    assert grid.shape == (2, 3, 4, 4)
    assert torch.equal(grid[1, :, 2, 3], tokens[1, 1 + 2 * 4 + 3])
    behind = torch.randn(2, 4, 4, 7)
    assert torch.equal(as_map(behind, image), behind.permute(0, 3, 1, 2))
    assert as_map(torch.randn(2, 12, 3), image) is not None  # 3 x 3 and three tokens more
    assert as_map(torch.randn(2, 8), image) is as_map(torch.randn(2, 34, 3), image) is as_map("logits", image) is None


class Attention(nn.Module):
    """Patches, one block of attention, a class token: a transformer in small."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.to(x.dtype).expand(len(x), -1, -1), tokens], 1)
        return self.head(self.norm(self.block(tokens))[:, 0])


def test_a_transformer_has_one_stage_and_its_mask_a_derivative():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Attention().double().eval()
        network, _ = initial_mask_network(MaskRecipe(width=8), net, torch.zeros(1, 3, 16, 16, dtype=torch.float64))
    assert network.stages == ("norm",)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(1))
    method = MaskNetwork(net, network)
    assert method.attribute(x, 1).shape == (2, 1, 16, 16)
    at = x.detach()[:1, :, :4, :4].clone().requires_grad_()

    def part(corner):
        return method.attribute(F.pad(corner, (0, 12, 0, 12)) + x.detach()[:1], 1, create_graph=True)[:, :, ::5, ::5]

    assert torch.autograd.gradcheck(part, at, eps=1e-6, atol=1e-5)


# --- the network and the method ---


@pytest.mark.parametrize("size", [(16, 16), (18, 22), (13, 17)])
def test_masks_have_the_size_of_the_image_and_lie_between_0_and_1(model, network, size):
    x = torch.randn(3, 3, *size, generator=torch.Generator().manual_seed(0))
    found = MaskNetwork(model, network).explain(x)
    assert found.map.shape == (3, 1, *size)
    assert found.map.min() >= 0
    assert found.map.max() <= 1
    assert found.map.std() > 0
    assert found.gradients.tolist() == [0, 0, 0]
    assert torch.equal(found.target, model(x).argmax(1))
    assert found.coarse.shape == (3, 1, *size)  # the finest stage has the size of the image


def test_a_head_of_zeros_gives_zeros_and_no_nan(model, network, x):
    nn.init.zeros_(network.head.weight)
    nn.init.zeros_(network.head.bias)
    assert not MaskNetwork(model, network).attribute(x, 1).any()


def test_the_forward_pass_by_hand(model, network, x):
    model, network, x = model.double(), network.double(), x.double()
    fine, middle, deep = model.layers[:2](x), model.layers[:5](x), model.layers[:6](x)
    target = torch.tensor([0, 1, 2, 1, 0])
    assert network.stages == ("1", "4", "5")
    act = torch.einsum("nchw,nc->nhw", deep, network.selector.weight[target])[:, None]
    s = deep / (1 + torch.exp(1.5 - act))
    for up, skip in zip(network.climb, (middle, fine), strict=True):
        wide = F.relu(up.wide[1](up.wide[0](s)))
        n, channels, height, width = wide.shape
        shuffled = wide.view(n, channels // 4, 2, 2, height, width).permute(0, 1, 4, 2, 5, 3)
        joined = torch.cat([shuffled.reshape(n, channels // 4, 2 * height, 2 * width), skip], 1)
        s = F.relu(up.join.body(joined) + up.join.shortcut(joined))
    a, b = network.head(s).abs().unbind(1)
    found = MaskNetwork(model, network, confidence=1.5).attribute(x, target)
    torch.testing.assert_close(found[:, 0], a / (a + b + 1e-6), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(network.exists(deep, target), act.mean((1, 2, 3)))


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-8), (torch.float32, 1e-5)])
def test_alone_in_a_batch_and_in_any_chunks(model, network, x, dtype, near):
    model, x = model.to(dtype), x.to(dtype)
    target = [0, 1, 2, -1, 0]
    method = MaskNetwork(model, network)
    whole = method.attribute(x, target)
    for row in range(5):
        alone = method.attribute(x[row : row + 1], target[row])
        assert (alone - whole[row]).abs().max() <= near
    for rows in (1, 2, 3, 100):
        assert (method.attribute(x, target, internal_batch_size=rows) - whole).abs().max() <= near
    assert torch.equal(method.attribute(x, target), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_known_again(model, network, x, dtype):
    wanted = MaskNetwork(model, network).attribute(x, 1)
    found = MaskNetwork(copy.deepcopy(model).to(dtype), network).attribute(x.to(dtype), 1)
    assert found.dtype == dtype
    assert (found.float() - wanted).abs().max() < 0.15


def test_every_form_of_a_target_that_names_a_class(model, network, x):
    method = MaskNetwork(model, network)
    wanted = method.attribute(x, 2)
    for form in (-1, torch.tensor(2), torch.tensor([2]), [2] * 5, (2,), [(2,)] * 5, torch.full((5,), -1)):
        assert torch.equal(method.attribute(x, form), wanted)
    assert not torch.equal(method.attribute(x, 0), wanted)


def test_arguments_follow_their_image(model, network, x):
    scale = torch.tensor([1.0, 2.0, 3.0, -1.0, 0.5])
    method = MaskNetwork(model, network)
    assert torch.equal(method.attribute(x, 1, scale), method.attribute(x, 1))  # read before the scale is applied
    assert torch.equal(method.explain(x, None, scale).target, model(x, scale).argmax(1))


def test_the_mask_has_a_derivative(model, network):
    model = model.double()
    x = as_input(squares(1, 5)[0])[:, :, 4:12, 4:12].double()
    at = x[:, 1:2, 2:6, 2:6].clone().requires_grad_()
    method = MaskNetwork(model, network)

    def part(patch):
        return method.attribute(x + F.pad(patch, (2, 2, 2, 2)), 1, create_graph=True)[:, :, ::2, ::2]

    assert torch.autograd.gradcheck(part, at, eps=1e-6, atol=1e-5)
    assert not method.attribute(x.requires_grad_(), 1).requires_grad


def test_a_method_can_be_sent_elsewhere(model, network, x):
    method = MaskNetwork(model, network)
    wanted = method.attribute(x, 1)
    assert torch.equal(pickle.loads(pickle.dumps(method)).attribute(x, 1), wanted)


# --- whose network it is ---


def test_the_fingerprint_survives_storage_and_devices_but_no_training(model):
    own = Fingerprint.of(model)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert own.same(Fingerprint.of(copy.deepcopy(model).to(dtype).float()))
    assert own.same(Fingerprint.of(nn.Sequential(model)))
    resnet = ResNet18(width=4)
    mine = Fingerprint.of(resnet)
    assert mine.same(Fingerprint.of(copy.deepcopy(resnet).bfloat16()))
    generator = torch.Generator().manual_seed(0)
    for name, tensor in list(resnet.state_dict().items())[::5]:
        other = copy.deepcopy(resnet)
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator)
            other.state_dict()[name].add_(0.1 * noise * tensor.square().mean().sqrt().clamp_min(1e-3))
            assert not mine.same(Fingerprint.of(other)), name
    assert not mine.same(Fingerprint.of(ResNet18(width=5)))


def test_another_classifier_is_refused(model, network, x):
    other = copy.deepcopy(model)
    other.layers[-1].weight.data += torch.randn(3, 2)
    with pytest.raises(ValueError, match=r"trained for, got another.*moreaugrad train-mask"):
        MaskNetwork(other, network)
    method = MaskNetwork(model, network)
    method.attribute(x, 1)
    model.layers[0].weight.data.mul_(1.5)  # after the method was made
    with pytest.raises(ValueError, match="moreaugrad train-mask"):
        method.attribute(x, 1)


def test_bad_options_are_refused(model, network, x, tmp_path):
    with pytest.raises(ValueError, match="got None; train one: moreaugrad train-mask"):
        MaskNetwork(model)
    with pytest.raises(ValueError, match="nowhere"):
        MaskNetwork(model, tmp_path / "nowhere.safetensors")
    with pytest.raises(TypeError, match="a file or a MaskNet, got int"):
        MaskNetwork(model, 3)
    with pytest.raises(TypeError, match="confidence must be a number"):
        MaskNetwork(model, network, confidence="high")
    with pytest.raises(TypeError, match=r"must be an nn.Module, or hold one"):
        MaskNetwork(lambda v: v.mean((2, 3)), network)
    with pytest.raises(ValueError, match="got none among the outputs"):
        Encoder.of(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.zeros(1, 3, 2, 2))
    with pytest.raises(ValueError, match="one class per image"):
        MaskNetwork(lambda v: model(v)[:, :, None], network).attribute(x, (1, 0))
    with pytest.raises(ValueError, match="target must be below 3"):
        MaskNetwork(model, network).attribute(x, 3)
    with pytest.raises(ValueError, match="target must be given"):
        MaskNetwork(model, network).attribute(x)
    with pytest.raises(ValueError, match="score must be finite"):
        MaskNetwork(lambda v: model(v) * float("nan"), network).attribute(x, 1)
    with pytest.raises(ValueError, match="knows 3 classes, got a classifier with 5"):
        MaskNetwork(lambda v: F.pad(model(v), (0, 2)), network).attribute(x, 1)
    with pytest.raises(ValueError, match="one batch of images"):
        MaskNetwork(model, network).attribute(torch.zeros(3, 4), 1)


def test_files_that_are_no_mask_networks_are_refused(network, tmp_path):
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(ValueError, match=r"readable .safetensors"):
        load_mask_network(tmp_path / "text.safetensors")
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="written by train-mask"):
        load_mask_network(tmp_path / "other.safetensors")
    lacking = network.tensors()
    del lacking["head.bias"]
    save_file(lacking, tmp_path / "less.safetensors", network.notes())
    with pytest.raises(ValueError, match=r"head\.bias"):
        load_mask_network(tmp_path / "less.safetensors")


# --- training ---


def test_a_bright_square_is_found(model):
    before = torch.get_rng_state()
    job = training(model, steps_selector=60, steps_decoder=100, batch=32, lr=0.02, log_every=10)
    while not job.finished:
        job.advance()
    assert torch.equal(torch.get_rng_state(), before)
    losses = [line["loss"] for line in job.history if line["phase"] == "decoder"]
    assert losses[-1] < 0.75 * losses[0]
    assert job.history[5]["accuracy"] > 0.9  # the selector knows what is there
    pixels, where, kinds = squares(40, 9)
    x = as_input(pixels)
    assert torch.equal(model(x).argmax(1), kinds)
    method = MaskNetwork(model, job.network.eval())
    found = method.attribute(x, kinds)[:, 0] > 0.5
    overlap = (found & where).sum((1, 2)) / (found | where).sum((1, 2))
    assert overlap.mean() > 0.5
    other = method.attribute(x, 1 - kinds)  # a colour that is not there
    assert other.mean() < 0.5 * method.attribute(x, kinds).mean()


def test_phases_train_their_own_part_alone(model):
    job = training(model, steps_selector=2, steps_decoder=2)
    at = [copy.deepcopy(job.network.state_dict())]
    for _ in range(2):
        job.advance()
        at.append(copy.deepcopy(job.network.state_dict()))
    moved = [{n for n in at[0] if not torch.equal(one[n], two[n])} for one, two in itertools.pairwise(at)]
    assert moved[0] == {"selector.weight"}
    assert "selector.weight" not in moved[1]
    assert {n for n in at[0] if n.endswith(("weight", "bias"))} - moved[1] == {"selector.weight"}


def test_the_classifier_is_not_touched(model):
    state, flags = copy.deepcopy(model.state_dict()), [p.requires_grad for p in model.parameters()]
    job = training(model)
    while not job.finished:
        job.advance()
    job.evaluate()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert flags == [p.requires_grad for p in model.parameters()]
    assert not any(module._forward_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


@pytest.fixture
def data(tmp_path):
    generator = np.random.default_rng(0)
    arrays = {f"x_{half}": generator.integers(0, 256, (12, 32, 32, 3), np.uint8) for half in ("train", "test")}
    labels = {f"y_{half}": generator.integers(0, 10, 12, np.uint8) for half in ("train", "test")}
    np.savez(tmp_path / "tiny.npz", **arrays, **labels)
    return tmp_path / "tiny.npz"


@pytest.fixture
def weights(tmp_path):
    from safetensors.torch import save_file

    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = {name: t for name, t in ResNet18(width=4).state_dict().items() if t.is_floating_point()}
    save_file(state, tmp_path / "net.safetensors", {"width": "4"})
    return str(tmp_path / "net.safetensors")


OPTIONS = {"steps_selector": 3, "steps_decoder": 4, "batch": 4, "width": 4, "log_every": 1}


def test_interrupted_and_resumed_is_as_if_never_stopped(data, weights, tmp_path, capsys):
    def train(name, batch=4, **more):
        job = TrainingJob(data, tmp_path / name, "cpu", **more)
        return train_mask_network({**OPTIONS, "batch": batch}, job, "resnet18_softplus", weights, Terminal(quiet=True))

    assert train("straight") == 0
    stops = 0
    while train("parts", limit_seconds=0.0):
        stops += 1
        assert not (tmp_path / "parts.safetensors").exists()
    assert stops == 6  # after each step but the last
    one, two = (load_mask_network(tmp_path / f"{name}.safetensors") for name in ("straight", "parts"))
    assert all(torch.equal(one.state_dict()[name], two.state_dict()[name]) for name in one.state_dict())
    logs = [(tmp_path / f"{name}.log.jsonl").read_text().splitlines() for name in ("straight", "parts")]
    first, second = ([{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in log] for log in logs)
    assert first == second
    assert [line["phase"] for line in first] == ["selector"] * 3 + ["decoder"] * 4
    with pytest.raises(ValueError, match=r"same options.*batch"):
        train("parts", batch=5)
    assert train("parts", batch=5, restart=True) == 0
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_file_goes_with_its_classifier_and_with_no_other(data, weights, tmp_path):
    job = TrainingJob(data, tmp_path / "mask.safetensors", "cpu")
    assert train_mask_network(OPTIONS, job, "resnet18_softplus", weights, Terminal(quiet=True)) == 0
    model = load_model("resnet18_softplus", weights)
    found = MaskNetwork(model, tmp_path / "mask.safetensors").explain(torch.randn(2, 3, 32, 32))
    assert found.map.shape == (2, 1, 32, 32)
    assert "mask.safetensors" in found.options["network"]
    with pytest.raises(ValueError, match=r"mask.safetensors.*moreaugrad train-mask"):
        MaskNetwork(load_model("resnet18_softplus", "random"), tmp_path / "mask.safetensors")


def test_a_folder_of_pictures_needs_no_labels(weights, tmp_path):
    from PIL import Image

    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, pixels in enumerate(squares(10)[0].numpy()):
        Image.fromarray(pixels).resize((40, 50)).save(folder / f"{number}.png")
    model = load_model("resnet18_softplus", weights)
    train, held_out = read_training_images(folder, model)
    assert train.shape == (9, 32, 32, 3)
    assert held_out.shape == (1, 32, 32, 3)
    job = TrainingJob(folder, tmp_path / "mask.safetensors", "cpu")
    assert train_mask_network(OPTIONS, job, "resnet18_softplus", weights, Terminal(quiet=True)) == 0
    (folder / "0.png").unlink()
    with pytest.raises(ValueError, match="at least 10 images, got 9"):
        read_training_images(folder, model)


def test_the_command_offers_what_the_recipe_takes(data, weights, tmp_path):
    import typer
    from typer.testing import CliRunner

    from moreaugrad.cli import train as commands
    from moreaugrad.cli.command import expand_options

    app = typer.Typer()
    app.command()(expand_options(commands.train_mask))
    given = (
        f"--data {data} --model resnet18_softplus --weights {weights} --out {tmp_path / 'mask'} --device cpu --quiet"
    )
    small = "--steps-selector 1 --steps-decoder 1 --batch 4 --width 4 --lr 0.002 --loss code --seed 3"
    done = CliRunner().invoke(app, [*given.split(), *small.split()])
    assert done.exit_code == 0, done.output
    from safetensors import safe_open

    with safe_open(tmp_path / "mask.safetensors", "pt") as file:
        notes = file.metadata()
    wanted = {"steps_selector": "1", "steps_decoder": "1", "batch": "4", "width": "4", "lr": "0.002", "loss": "code"}
    assert {name: notes[name] for name in wanted} == wanted
    assert {each.name for each in fields(commands.MaskRecipe)} == {*wanted, "seed"}
    assert 0 <= float(notes["held_out_area"]) <= 1


def test_a_loss_that_is_no_number_raises(model):
    job = training(model)
    nn.init.constant_(job.network.selector.weight, float("nan"))
    with pytest.raises(RuntimeError, match=r"must stay finite.*--lr"):
        job.advance()
    with pytest.raises(ValueError, match="Did you mean 'paper'"):
        MaskRecipe(loss="papers")


def test_attention_is_not_taken_for_a_feature_map():
    import timm

    net = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=3).eval()
    encoder = Encoder.of(net, torch.zeros(2, 3, 64, 64))
    _, maps = encoder(lambda: net(torch.zeros(2, 3, 64, 64)))
    assert {tuple(each.shape[2:]) for each in maps} == {(4, 4)}

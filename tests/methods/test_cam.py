"""CAM, Grad-CAM, Grad-CAM++: closed forms, exact derivatives, other libraries, real networks, nothing left behind."""

import pickle
from types import SimpleNamespace

import pytest
import torch
from captum.attr import LayerGradCam
from layer_networks import averaging, close, flattening, images, seeded, transformer
from model_copies import out_of_place
from torch import nn
from torch.nn import functional as F
from torchvision import models

import moreaugrad as mg
from moreaugrad.methods.cam.cam import Cam, GradCam, GradCamPlusPlus
from moreaugrad.methods.cam.layers import layout, patch_grid
from moreaugrad.methods.normgrad import NormGrad

EVERY = pytest.mark.parametrize("method", [Cam, GradCam, GradCamPlusPlus, NormGrad])
GRADIENT = pytest.mark.parametrize("method", [GradCam, GradCamPlusPlus, NormGrad])
C = 3  # the class that is explained


def test_mean_of_cam_and_bias_are_the_logit():
    net, x = averaging(), images()
    found = Cam(net).explain(x, C)
    close(found.coarse.mean((1, 2, 3)) + net[-1].bias[C].detach(), net(x)[:, C].detach(), 1e-12)
    close(found.coarse[:, 0], torch.einsum("k,nkhw->nhw", net[-1].weight[C], net[:4](x)).detach(), 1e-12)
    close(found.map, F.interpolate(found.coarse, size=(8, 8), mode="bilinear", align_corners=False), 1e-12)
    assert found.gradients.tolist() == [0, 0, 0]
    assert (found.map < 0).any()


def test_cam_runs_the_network_forward_only():
    net, x = averaging(), images()
    ran = []
    net[0].register_full_backward_hook(lambda *_: ran.append("backward"))
    net[0].register_forward_hook(lambda m, i, o: ran.append(o.requires_grad))
    Cam(net).attribute(x, C)
    assert set(ran) == {False}


def test_at_an_averaging_head_gradcam_is_cam():
    net, x = averaging(), images()
    cam = Cam(net).explain(x, C).coarse
    close(GradCam(net, relu=False).explain(x, C).coarse * cam[0].numel(), cam)
    found = GradCam(net).explain(x, C)
    close(found.coarse, cam.relu() / cam[0].numel())
    assert found.gradients.tolist() == [1, 1, 1]
    assert (GradCam(net, relu=False).attribute(x, C) < 0).any()


def test_gradcam_plus_plus_at_an_averaging_head():
    net, x = averaging(), images()
    features, w = net[:4](x).detach(), net[-1].weight[C].detach()
    plain = w.relu() / (2 + w * features.mean((2, 3)))
    close(GradCamPlusPlus(net).explain(x, C).coarse[:, 0], torch.einsum("nk,nkhw->nhw", plain, features).relu())
    shared = w.relu() / features[0, 0].numel()
    found = GradCamPlusPlus(net, normalise_alpha=True).explain(x, C).coarse[:, 0]
    close(found, torch.einsum("k,nkhw->nhw", shared, features).relu())


@pytest.mark.parametrize("normalise", [False, True])
def test_gradcam_plus_plus_by_the_derivatives_of_the_exponential(normalise):
    """The formula's own derivation: first, second and third derivatives of exp(f), entry by entry, by autograd."""
    net, x = flattening(), images(1)
    features = net[:2](x).detach()

    def score(flat):
        return net[2:](flat.view(features.shape))[0, C].exp()

    flat = features.flatten().clone().requires_grad_()
    (first,) = torch.autograd.grad(score(flat), flat, create_graph=True)
    seconds, thirds = [], []
    for entry in range(len(flat)):
        (row,) = torch.autograd.grad(first[entry], flat, create_graph=True)
        (third,) = torch.autograd.grad(row[entry], flat, retain_graph=True)
        seconds.append(row[entry].detach())
        thirds.append(third[entry])
    first, second, third = (torch.stack(list(d)).view(features.shape) for d in (first.detach(), seconds, thirds))
    below = 2 * second + features.sum((2, 3), keepdim=True) * third
    alpha = torch.where(first != 0, second / below, 0)
    if normalise:
        whole = (alpha * (first > 0)).sum((2, 3), keepdim=True)
        alpha = alpha / torch.where(whole == 0, 1, whole)
    weights = (alpha * first.relu()).sum((2, 3), keepdim=True) / score(flat).detach()
    found = GradCamPlusPlus(net, "1", normalise_alpha=normalise).explain(x, C).coarse
    assert found.any()
    close(found, (weights * features).sum(1, keepdim=True).relu())


def test_gradcam_plus_plus_has_the_same_support_when_all_logits_are_scaled():
    net, x = averaging(), images()
    wanted = GradCamPlusPlus(net).explain(x, C).coarse
    for scale in (1e-3, 1e3):
        scaled = averaging()
        with torch.no_grad():
            scaled[-1].weight.mul_(scale)
            scaled[-1].bias.mul_(scale)
        found = GradCamPlusPlus(scaled).explain(x, C).coarse
        assert torch.equal(found > 0, wanted > 0)
    assert wanted.any()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tiny_gradients_do_not_vanish(sign):
    """g^2 and g^3 are zero in float32 here; g is not."""
    net = averaging().float()
    with torch.no_grad():
        net[-1].weight[C] = sign * net[-1].weight[C].abs() * 1e-25
    found = GradCamPlusPlus(net).explain(images(dtype=torch.float32), C).coarse
    features = net[:4](images(dtype=torch.float32)).detach()
    wanted = torch.einsum("k,nkhw->nhw", net[-1].weight[C].relu() / 2, features)[:, None].detach()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("name", "layer"), [("resnet18", "layer4"), ("resnet18", "layer2.0"), ("vgg11", "features.13")]
)
def test_gradcam_is_captums(name, layer):
    net, x = seeded(getattr(models, name)), images(2, 64, dtype=torch.float32)
    theirs = LayerGradCam(net, net.get_submodule(layer)).attribute(x, target=7)
    ours = GradCam(net, layer, relu=False).explain(x, 7)
    assert theirs.abs().max() > 0
    assert (ours.coarse - theirs).abs().max() <= 1e-5 * theirs.abs().max()
    large = LayerGradCam.interpolate(theirs, (64, 64), "bilinear")
    assert (ours.map - large).abs().max() <= 1e-5 * theirs.abs().max()
    rectified = LayerGradCam(net, net.get_submodule(layer)).attribute(x, target=7, relu_attributions=True)
    torch.testing.assert_close(GradCam(net, layer).explain(x, 7).coarse, rectified, rtol=1e-4, atol=1e-7)


def test_gradcam_is_that_of_torch_cam():
    """They stretch each map to [0, 1]. Their Grad-CAM++ has no denominator, so it is held against derivatives above."""
    methods = pytest.importorskip("torchcam.methods")
    net, x = seeded(models.resnet18), images(2, 64, dtype=torch.float32)
    with methods.GradCAM(net, "layer3") as extractor:
        (theirs,) = extractor([7, 9], net(x.requires_grad_()))
    ours = GradCam(net, "layer3").explain(x, [7, 9]).coarse[:, 0]
    low, high = ours.flatten(1).amin(1).view(-1, 1, 1), ours.flatten(1).amax(1).view(-1, 1, 1)
    torch.testing.assert_close((ours - low) / (high - low), theirs, rtol=0, atol=1e-4)


@EVERY
def test_alone_in_a_batch_and_in_any_chunks(method):
    net, x = averaging(nn.SiLU), images(5)
    targets = [0, 4, 2, 2, 1]
    whole = method(net).explain(x, targets)
    for rows in (1, 2, 3, 5, 16):
        close(method(net).attribute(x, targets, internal_batch_size=rows), whole.map, 1e-9)
    for row, target in enumerate(targets):
        one = method(net).explain(x[row : row + 1], target)
        close(one.map, whole.map[row : row + 1], 1e-9)
        close(one.coarse, whole.coarse[row : row + 1], 1e-9)
    again = method(net).attribute(x.flip(0), torch.tensor(targets[::-1])).flip(0)
    close(again, whole.map, 1e-9)


@EVERY
def test_predicted_class_and_every_form_of_a_target(method):
    net, x = averaging(), images()
    predicted = net(x).argmax(1)
    assert torch.equal(method(net).explain(x).map, method(net).attribute(x, predicted))
    wanted = method(net).attribute(x, C)
    for target in (C - 5, torch.tensor(C), [C] * 3, (C,), [(C,)] * 3, torch.tensor([C] * 3)):
        assert torch.equal(method(net).attribute(x, target), wanted)
    single = nn.Sequential(*averaging()[:-1], seeded(lambda: nn.Linear(8, 1).double()))
    assert method(single).attribute(x).any()
    with pytest.raises(ValueError, match="target must be below 5"):
        method(net).attribute(x, 5)
    with pytest.raises(ValueError, match="target must be given"):
        method(net).attribute(x)


@GRADIENT
@pytest.mark.parametrize("kind", ["prob", "logprob"])
def test_other_scores(method, kind):
    net, x = averaging(), images()
    end = nn.Softmax(1) if kind == "prob" else nn.LogSoftmax(1)
    wanted = method(nn.Sequential(*net, end)).attribute(x, C)
    assert wanted.any()
    close(method(net, score=kind).attribute(x, C), wanted)


DIFFERENTIABLE = {
    "cam": lambda net: Cam(net, "3"),
    "gradcam": lambda net: GradCam(net, "1"),
    "signed gradcam": lambda net: GradCam(net, "3", relu=False),
    "plus plus": lambda net: GradCamPlusPlus(net, "1"),
    "normalised": lambda net: GradCamPlusPlus(net, "1", normalise_alpha=True),
}


@pytest.mark.parametrize("make", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE.keys())
def test_maps_can_be_differentiated(make):
    method, x = make(averaging(nn.Softplus)), images(2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: method.attribute(v, [C, 1], create_graph=True), (x,), fast_mode=True)
    one = method.attribute(x, C, create_graph=True)
    assert one.requires_grad
    close(one.detach(), method.attribute(x, C))
    assert x.grad is None


@pytest.mark.parametrize("method", [GradCam, GradCamPlusPlus, NormGrad])
def test_maps_of_attention_can_be_differentiated(method):
    net, x = transformer(), images(2).requires_grad_()
    explainer = method(net)
    assert torch.autograd.gradcheck(lambda v: explainer.attribute(v, C, create_graph=True), (x,), fast_mode=True)
    (second,) = torch.autograd.grad(explainer.attribute(x, C, create_graph=True).sum(), x)
    assert second.any()


LAYERS = {
    "resnet18": "layer4",
    "mobilenet_v2": "features",
    "efficientnet_b0": "features",
    "swin_t": "permute",
    "vit_b_16": "encoder.layers.encoder_layer_11.ln_1",
    "timm/resnet18": "layer4",
    "timm/mobilenetv3_small_050": "blocks",
    "timm/vit_tiny_patch16_224": "blocks.11.norm1",
    "timm/convnext_atto": "stages",
}


def network(name):
    if name.startswith("timm/"):
        import timm

        sized = {"img_size": 64} if "vit" in name else {}
        return seeded(lambda: timm.create_model(name.removeprefix("timm/"), **sized))
    sized = {"image_size": 64} if "vit" in name else {}
    return seeded(lambda: getattr(models, name)(**sized))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_found_in_real_networks(name, caplog):
    net, x = network(name), images(1, 64, dtype=torch.float32)
    with caplog.at_level("INFO", "moreaugrad"):
        found = GradCam(net).explain(x, 7)
    assert caplog.messages[-1].endswith(f"reads {LAYERS[name]}")
    assert found.coarse.shape[1] == 1
    assert found.coarse[0, 0].numel() > 1
    assert found.map.shape == (1, 1, 64, 64)
    assert torch.equal(found.map, GradCam(net, LAYERS[name]).attribute(x, 7))
    for method in (GradCam, GradCamPlusPlus, NormGrad):
        options = {"relu": False} if method is GradCam else {}
        maps = method(net, **options).attribute(x, 7)
        assert maps.isfinite().all()
        assert maps.any()


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_b0", "swin_t", "timm/resnet18"])
def test_cam_of_real_networks(name):
    net, x = network(name), images(1, 64, dtype=torch.float32)
    cam = Cam(net).explain(x, 7).coarse
    gradcam = GradCam(net, relu=False).explain(x, 7).coarse * cam[0].numel()
    assert cam.any()
    assert (cam - gradcam).abs().max() <= 1e-4 * cam.abs().max()


def test_the_embedded_model_with_and_without_the_name_of_its_wrapper():
    net = mg.load_model("efficientnet_lite0")
    x = images(1, 96, dtype=torch.float32)
    wanted = GradCam(net).attribute(x, 7)
    for layer in ("bn2", "network.bn2"):
        assert torch.equal(GradCam(net, layer).attribute(x, 7), wanted)
        assert Cam(net, layer).attribute(x, 7).any()
    with pytest.raises(ValueError, match=r"got 'conv_heat'; did you mean 'network\.conv_head'"):
        GradCam(net, "conv_heat")


def test_hugging_face_models():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=4
    )
    net = seeded(lambda: transformers.ViTForImageClassification(config))
    assert GradCam(net, relu=False).explain(images(2, 16, dtype=torch.float32), 1).coarse.shape == (2, 1, 4, 4)


class Telling(nn.Module):
    """As the hub's models: blocks that return tuples, a class token and three more, an answer with logits."""

    def __init__(self):
        super().__init__()
        self.patches, self.extra = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(4, 8))
        self.blocks = nn.ModuleList([Block(), Block()])
        self.layernorm, self.classifier = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.extra.expand(len(x), -1, -1), tokens], 1)
        for block in self.blocks:
            tokens, _ = block(hidden_states=tokens)
        return SimpleNamespace(logits=self.classifier(self.layernorm(tokens)[:, 0]))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, hidden_states):
        normed = self.before(hidden_states)
        mixed, weights = self.attention(normed, normed, normed)
        return hidden_states + mixed, weights


def test_tokens_become_planes_and_extra_ones_are_left_out():
    net = seeded(lambda: Telling().double())
    x = images(2, 8)[:, :, :, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]]  # 2 x 3 patches
    for layer in ("blocks.1.before", "blocks.0"):
        kept = []
        module = net.get_submodule(layer)
        handle = module.register_forward_hook(lambda m, i, o, k=kept: k.append(o[0] if isinstance(o, tuple) else o))
        score = net(x).logits[:, C].sum()
        handle.remove()
        (gradient,) = torch.autograd.grad(score, kept[-1])
        weights = gradient[:, 4:].mean(1)
        wanted = torch.einsum("nk,ntk->nt", weights, kept[-1][:, 4:]).view(2, 1, 2, 3).detach()
        close(GradCam(net, layer, relu=False).explain(x, C).coarse, wanted)
    close(
        GradCam(net, relu=False).attribute(x, C), GradCam(net, "blocks.1.before", relu=False).attribute(x, C)
    )  # behind the last attention only the class token counts


def test_swin_keeps_its_channels_last():
    net, x = network("swin_t"), images(1, 64, dtype=torch.float32)
    kept = []
    handle = net.features[5].register_forward_hook(lambda m, i, o: kept.append(o))
    score = net(x)[:, 7].sum()
    handle.remove()
    (gradient,) = torch.autograd.grad(score, kept[0])
    assert kept[0].shape == (1, 4, 4, 384)
    wanted = (gradient.mean((1, 2), keepdim=True) * kept[0]).sum(3)[:, None].detach()
    found = GradCam(net, "features.5", relu=False).explain(x, 7).coarse
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5 * float(wanted.abs().max()))


def test_grids_and_layouts():
    assert patch_grid(197, (224, 224)) == (14, 14)
    assert patch_grid(201, (224, 224)) == (14, 14)  # a class token and four registers
    assert patch_grid(25, (96, 64)) == (6, 4)
    assert patch_grid(49, (224, 224)) == (7, 7)
    assert patch_grid(1, (224, 224)) is None
    assert patch_grid(80, (224, 224)) is None  # 8 x 8 leaves too many over
    for shape, wanted in {
        (2, 768, 7, 7): (7, 7),
        (2, 7, 7, 768): (7, 7),
        (2, 8, 8, 8): (8, 8),
        (2, 512, 1, 1): None,
        (2, 512): None,
        (2, 5, 8): (2, 2),
    }.items():
        found = layout(shape, (224, 224))
        assert (found and found[:2]) == wanted, shape


@EVERY
def test_activations_in_place_behind_the_layer_spoil_nothing(method):
    def make(inplace):
        def layers():
            features = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace), nn.Conv2d(6, 8, 3, 2)]
            return nn.Sequential(*features, nn.ReLU(inplace), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

        return seeded(layers)

    x = images(dtype=torch.float32)
    for layer in ("1", "2", "3", "4") if method is not Cam else ("4",):
        wanted = method(make(False), layer).attribute(x, C)
        torch.testing.assert_close(method(make(True), layer).attribute(x, C), wanted)
        torch.testing.assert_close(method(out_of_place(make(True)), layer).attribute(x, C), wanted)


@EVERY
def test_out_of_memory_halves_the_rows(method, caplog):
    class Small(nn.Module):
        def forward(self, x):
            if len(x) > 2:
                raise torch.OutOfMemoryError("no room")
            return x

    x = images(5)
    found = method(nn.Sequential(Small(), *averaging()).eval()).attribute(x, C, internal_batch_size=5)
    assert "continuing with 2" in caplog.text
    close(found, method(averaging()).attribute(x, C), 1e-9)


@EVERY
def test_compiling_is_left_aside(method):
    net, x = averaging(), images()
    wanted = method(net).attribute(x, C)
    plain = method(net, compile=True).explain(x, C)
    assert torch.equal(plain.map, wanted)
    assert plain.options["compile"] is False
    compiled = torch.compile(net)
    assert torch.equal(method(compiled).attribute(x, C), wanted)


@GRADIENT
def test_reduced_precision(method):
    net, x = averaging().float(), images(dtype=torch.float32)
    wanted = method(net).attribute(x, C)
    found = method(net, precision="bfloat16").explain(x, C)
    assert found.options["precision"] == "bfloat16"
    assert 0 < (found.map - wanted).norm() <= 0.03 * wanted.norm()


def test_cam_is_never_reduced():
    net, x = averaging().float(), images(dtype=torch.float32)
    found = Cam(net, precision="bfloat16").explain(x, C)
    assert found.options["precision"] == "float32"
    assert torch.equal(found.map, Cam(net).attribute(x, C))


def test_a_look_at_the_model_is_taken_once_for_each_shape():
    net, x = averaging(), images(1)
    rows = []
    net.register_forward_hook(lambda m, i, o: rows.append(len(o)))
    method = GradCam(net)
    counts = []
    for v in (x, x, x[:, :, :6], x):
        method.attribute(v, C)
        counts.append(len(rows))
    assert [b - a for a, b in zip([0, *counts], counts, strict=False)] == [2, 1, 2, 1]


SCALE = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = averaging()

    def forward(self, x, scale):
        return self.net(x) * scale[:, None]


def test_arguments_follow_their_image():
    x, found = images(), GradCam(Scaled(), relu=False).attribute(images(), C, SCALE)
    close(found, GradCam(averaging(), relu=False).attribute(x, C) * SCALE.view(-1, 1, 1, 1))
    with pytest.raises(ValueError, match=r"GAP \+ linear.*misses the logit.*gradcam"):
        Cam(Scaled()).attribute(x, C, SCALE)


def test_cam_refuses_other_heads():
    x = images()
    with pytest.raises(ValueError, match=r"GAP \+ linear.*'5'.*mean of no layer.*gradcam"):
        Cam(flattening()).attribute(x, C)
    with pytest.raises(ValueError, match=r"4 channels at '1' for 7 inputs"):
        Cam(flattening(), "1").attribute(x, C)
    with pytest.raises(ValueError, match="misses the logit"):
        Cam(averaging(), "2").attribute(x, C)  # before the activation
    with pytest.raises(ValueError, match="got no linear layer"):
        Cam(averaging()[:6]).attribute(x, C)
    with pytest.raises(ValueError, match=r"'6' with 5 outputs for a model with output of shape"):
        Cam(nn.Sequential(*averaging(), nn.AvgPool1d(5))).attribute(x, 0)
    with pytest.raises(ValueError, match="score must be 'logit', got 'prob'"):
        Cam(averaging(), score="prob")
    with pytest.raises(ValueError, match="GAP"):
        Cam(transformer()).attribute(x, C)


@EVERY
def test_bad_layers_models_and_inputs(method):
    net, x = averaging(), images()
    named = seeded(lambda: models.resnet18(num_classes=5))
    with pytest.raises(ValueError, match=r"got 'layer5'; did you mean 'layer\d'"):
        method(named, "layer5")
    with pytest.raises(ValueError, match="named_modules"):
        method(net, "nowhere at all")
    with pytest.raises(TypeError, match="name"):
        method(net, 3)
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got function"):
        method(lambda v: 2 * net(v))
    with pytest.raises(ValueError, match=r"layer '4' must have a spatial output .* got \(N, 8, 1, 1\)"):
        method(net, "4").attribute(x, C)
    with pytest.raises(ValueError, match=r"got \(N, 5\)"):
        method(net, "6").attribute(x, C)
    with pytest.raises(ValueError, match=r"images \(N, C, H, W\), got inputs of shape \(3, 8\)"):
        method(nn.Sequential(nn.Linear(8, 5)).double()).attribute(x[:, 0, 0], C)
    unused = nn.ModuleDict({"net": net, "spare": nn.Conv2d(3, 3, 1)})
    unused.forward = unused["net"].forward
    with pytest.raises(ValueError, match="'spare' must take part"):
        method(unused, "spare").attribute(x, C)


@GRADIENT
def test_models_without_positions(method):
    x = images()
    with pytest.raises(ValueError, match="convolutions or a grid of patches"):
        method(seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).double())).attribute(x, C)

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.side, self.net = nn.Conv2d(3, 3, 1).double(), averaging()

        def forward(self, v):
            return self.net(v) + 0 * self.side(v).detach().mean()

    with pytest.raises(ValueError, match="must depend on the output of layer 'side'"):
        method(Cut().eval(), "side").attribute(x, C)


def test_bad_options():
    with pytest.raises(TypeError, match="relu must be True or False, got None"):
        GradCam(averaging(), relu=None)
    with pytest.raises(TypeError, match="normalise_alpha must be True or False, got 1"):
        GradCamPlusPlus(averaging(), normalise_alpha=1)
    with pytest.raises(ValueError, match="training mode"):
        GradCam(models.resnet18()).attribute(images(1, 64, dtype=torch.float32), 1)


@EVERY
def test_layers_may_be_modules(method):
    net, x = averaging(), images()
    found = method(net, net[3])
    assert torch.equal(found.attribute(x, C), method(net, "3").attribute(x, C))
    assert torch.equal(pickle.loads(pickle.dumps(found)).attribute(x, C), found.attribute(x, C))
    assert "3" in str(found.options()["layers" if method is NormGrad else "layer"])
    with pytest.raises(ValueError, match="got a ReLU that is not part of it"):
        method(net, nn.ReLU())


def test_captums_positional_arguments():
    net, x = Scaled().eval(), images()
    theirs = LayerGradCam(net, net.net[3]).attribute(x, C, SCALE)
    ours = GradCam(net, net.net[3], relu=False).explain(x, C, SCALE).coarse
    close(ours, theirs.detach())
    assert torch.equal(GradCam(net, net.net[3]).attribute(x, C, SCALE), GradCam(net, "net.3").attribute(x, C, SCALE))

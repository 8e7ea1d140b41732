"""Networks of other kinds than image classifiers: sound, video, several inputs, segmentation, detection, bfloat16."""

import pytest
import torch
from torch import nn
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from torchvision.models.segmentation import lraspp_mobilenet_v3_large
from torchvision.ops import box_iou

import moreaugrad as mg
from moreaugrad.methods.options import make_method, option_names

SMALL = {"budget": 24, "samples": 4, "steps": 4}
PICTURES = {"cam", "gradcam", "gradcam_plus_plus", "normgrad", "meaningful_perturbation"}


def convolutional(dimensions):
    conv, norm, pool = (getattr(nn, f"{kind}{dimensions}d") for kind in ("Conv", "BatchNorm", "AdaptiveAvgPool"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            *(conv(2, 6, 3, padding=1), norm(6), nn.ReLU(), conv(6, 6, 3, padding=1), nn.ReLU6(), pool(1)),
            *(nn.Flatten(), nn.Linear(6, 3)),
        ).eval()


def inputs(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def options(name):
    chosen = {key: value for key, value in SMALL.items() if key in option_names(name)}
    return chosen | ({"defence": None} if name == "fgvis" else {})


@pytest.mark.parametrize("shape", [(2, 2, 24), (2, 2, 4, 8, 8)], ids=["sound", "video"])
@pytest.mark.parametrize(
    "name", [name for name, entry in mg.METHODS.items() if entry.member is None and "trained" not in entry.flags]
)
def test_sound_and_video_are_explained_or_refused_in_words(name, shape):
    """As the same network is behind a function, which no copy is made of."""
    net, x = convolutional(len(shape) - 2), inputs(*shape)
    if name in PICTURES:
        with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
            make_method(name, net, options(name)).attribute(x, target=1)
        return
    found = make_method(name, net, options(name)).attribute(x, target=1)
    plain = make_method(name, net.forward, options(name)).attribute(x, target=1)
    assert found.shape == x.shape
    if name == "fgvis":
        assert mg.FGVis(net, budget=6).attribute(x, target=1).isfinite().all()
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_networks_of_any_dimension_are_prepared(dimensions):
    net = convolutional(dimensions)
    x = inputs(2, 2, *[8] * dimensions)
    before = [weight.stride() for weight in net.parameters()]
    (engine,) = mg.prepare(net, x)._engines.values()
    assert not any("BatchNorm" in type(module).__name__ for module in engine.body.modules())
    assert [weight.stride() for weight in net.parameters()] == before
    torch.testing.assert_close(engine((x,)), net(x), atol=1e-6, rtol=1e-4)


@pytest.fixture(scope="module")
def segmentation():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4).eval()


def test_a_class_over_a_mask_of_a_segmentation(segmentation):
    """The gradient is that of the sum by hand, and the map of two masks the sum of their maps."""
    x = inputs(2, 3, 32, 32)
    left, right = torch.zeros(2, 32, 32)
    left[8:24, :16], right[8:24, 16:] = 1, 2

    def score(mask):
        return lambda out: (out["out"][:, 2] * mask).sum((1, 2))

    by_hand = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad((segmentation(by_hand)["out"][:, 2] * left).sum(), by_hand)
    found = mg.Gradient(segmentation, score=score(left)).explain(x)
    torch.testing.assert_close(found.map, wanted, atol=1e-6, rtol=1e-3)
    smooth = [mg.SmoothGrad(segmentation, score=score(m), samples=4).attribute(x) for m in (left, right, left + right)]
    torch.testing.assert_close(smooth[0] + smooth[1], smooth[2], atol=1e-5, rtol=1e-3)
    sparse = mg.SparseMoreauGrad(segmentation, sparsity=0.1, budget=16, score=score(left)).explain(x)
    assert sparse.kept.tolist() == pytest.approx([0.1, 0.1], abs=0.01)


def test_a_place_of_a_segmentation(segmentation):
    x = inputs(1, 3, 32, 32)
    for method in (mg.Gradient(segmentation, output="out"), mg.SparseMoreauGrad(segmentation, output="out", budget=8)):
        with pytest.raises(ValueError, match=r"target=\(class, row, column\).*score="):
            method.explain(x)
    pixel = mg.Gradient(segmentation, output="out").explain(x, target=(2, 16, 16))
    torch.testing.assert_close(pixel.score, segmentation(x)["out"][:, 2, 16, 16].detach())
    assert pixel.map.any()


def test_the_confidence_of_a_box_of_a_detector():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        detector = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4).eval()
    x = inputs(2, 3, 48, 48).abs()
    place = detector(x)[0]["boxes"][5].detach()

    def confidence(found):
        nearest = [box_iou(place[None], each["boxes"])[0].argmax() for each in found]
        return torch.stack([each["scores"][best] for each, best in zip(found, nearest, strict=True)])

    found = mg.Gradient(detector, score=confidence).explain(x)
    torch.testing.assert_close(found.score, confidence(detector(x)).detach())
    for image, own in zip(x, found.map, strict=True):
        by_hand = image[None].clone().requires_grad_()
        (wanted,) = torch.autograd.grad(confidence(detector(by_hand)).sum(), by_hand)
        torch.testing.assert_close(own[None], wanted, atol=1e-6, rtol=1e-3)
    assert mg.SmoothGrad(detector, samples=2, score=confidence).attribute(x[:1]).isfinite().all()


@pytest.mark.parametrize("kind", ["linear", "conv"])
@pytest.mark.parametrize("call", ["attribute", "explain"])
def test_inputs_of_another_dtype_than_the_weights(kind, call):
    net = nn.Linear(6, 3) if kind == "linear" else convolutional(2)
    x = inputs(2, 6) if kind == "linear" else inputs(2, 2, 8, 8)
    method = mg.SmoothGrad(net.bfloat16().eval(), samples=2)
    with pytest.raises(ValueError, match=r"torch\.bfloat16, got torch\.float32; .*x\.to\(torch\.bfloat16\)"):
        getattr(method, call)(x, target=1)
    assert getattr(method, call)(x.bfloat16(), target=1) is not None

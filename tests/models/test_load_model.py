"""Models by name: weights, preprocessing, labels, and what is said where one cannot be had."""

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from moreaugrad.data.images import read_image
from moreaugrad.models import MODELS, checkpoint, load_model
from moreaugrad.models.checkpoint import WeightsUnavailableError, load_state, read_state
from moreaugrad.models.classifier import CentreCrop, Classifier, ViewChange
from moreaugrad.models.custom import as_classifier, view_from_function
from moreaugrad.models.embedded import copy_in_order, packaged_weights
from moreaugrad.models.hubs import timm_view, torchvision_view
from moreaugrad.models.labels import imagenet_labels, read_labels
from moreaugrad.models.resnet import ResNet18
from moreaugrad.registry import Entry

CODE = """
import torch
from torch import nn
from torchvision import transforms as T

class Net(nn.Module):
    labels = ["cat", "dog", "bird"]
    preprocess = T.Compose([T.Resize((8, 8)), T.ToTensor(), T.Normalize((0.4, 0.5, 0.6), (0.2, 0.25, 0.5))])

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(192, 3)

    def forward(self, x):
        return self.fc(self.drop(x.flatten(1)))

class Plain(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.fc = nn.Linear(64 * channels, 3)

    def forward(self, x):
        return self.fc(x.flatten(1))

def Grey():
    return Plain(channels=1)

def small(labels=None):
    from moreaugrad.models.classifier import CentreCrop, Classifier

    return Classifier(Net(), CentreCrop((8, 8), (8, 8)), "small", labels or ["a", "b", "c"])

def broken():
    raise RuntimeError("no such luck")

def number():
    return 3
"""


@pytest.fixture(scope="session")
def lite() -> Classifier:
    return load_model("efficientnet_lite0")


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    (tmp_path / "own_network.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_network", None)


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


SIZES = [(224, 224), (300, 451), (451, 300), (100, 57), (999, 256), (31, 640)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_crop_is_torchvisions(size):
    from torchvision.models import EfficientNet_B0_Weights, ResNet18_Weights

    for weights in (ResNet18_Weights.DEFAULT, EfficientNet_B0_Weights.DEFAULT):
        transforms = weights.transforms()
        picture = photo(*size)
        assert torch.equal(torchvision_view(transforms).apply(picture)[0], transforms(picture))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("mode", ["center", "squash", "border"])
def test_crop_is_timms(size, mode):
    from timm.data import create_transform

    means = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.25)}
    config = {"input_size": (3, 160, 160), "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": mode, **means}
    theirs = create_transform(**config, is_training=False)(photo(*size))
    assert torch.equal(timm_view(config).apply(photo(*size))[0], theirs)


def test_preprocess_normalises_the_crop(lite):
    picture = photo(300, 400)
    crop = lite.crop(picture)
    assert (crop.mode, crop.size, lite.size) == ("RGB", (224, 224), (224, 224))
    values = torch.tensor(np.asarray(crop)).permute(2, 0, 1) / 255
    torch.testing.assert_close(lite.preprocess(picture), (values - 0.498) / 0.502)


def test_box_is_what_black_and_white_become(lite):
    for colour, bound in zip(("black", "white"), lite.box, strict=True):
        x = lite.preprocess(Image.new("RGB", (224, 224), colour))
        torch.testing.assert_close(x, bound.expand_as(x))


def test_preprocess_follows_the_precision_of_the_network():
    for dtype in (torch.float64, torch.bfloat16):
        model = load_model("resnet18_softplus").to(dtype)
        assert model(model.preprocess(photo(40, 40))[None]).dtype == dtype


def test_own_preprocessing_is_used_and_understood():
    from torchvision import transforms as t

    steps = [t.Resize((20, 24)), t.ToTensor(), t.Normalize((0.4, 0.5, 0.6), (0.2, 0.25, 0.5))]
    own = t.Compose(steps)
    view = view_from_function(own)
    picture = photo(50, 40)
    assert view.size == (20, 24)
    assert view.mean == pytest.approx((0.4, 0.5, 0.6), abs=1e-6)
    assert view.std == pytest.approx((0.2, 0.25, 0.5), abs=1e-6)
    x, crop = view.apply(picture)
    assert torch.equal(x, own(picture))
    assert (np.asarray(crop) == np.asarray(steps[0](picture))).all()
    x, crop = view_from_function(t.Compose([t.Grayscale(), *steps[:2]])).apply(picture)
    assert (x.shape, crop.mode) == ((1, 20, 24), "RGB")


@pytest.mark.parametrize(
    ("function", "words"),
    [(lambda picture: torch.zeros(3, 4, 4), "white above black"), (lambda picture: 3, "float tensor")],
)
def test_own_preprocessing_that_is_none(function, words):
    with pytest.raises((ValueError, TypeError), match=words):
        view_from_function(function)


def test_embedded_model_knows_the_cat(lite):
    from skimage.data import chelsea

    x = lite.preprocess(Image.fromarray(chelsea()))[None]
    with torch.no_grad():
        assert lite.labels[int(lite(x).argmax())] in {"tabby", "tiger cat", "Egyptian cat"}


def test_models_come_frozen_in_eval_mode(lite):
    assert not any(module.training for module in lite.modules())
    assert not any(parameter.requires_grad for parameter in lite.parameters())
    assert len(lite.labels) == 1000
    assert lite.label(282) == "tiger cat"
    assert lite.label(5000) is None


@pytest.mark.data_heavy
@pytest.mark.slow
def test_embedded_model_on_photos(lite, data):
    folder = data("imagenet_sample")
    rows = list(csv.DictReader((folder / "labels.csv").read_text().splitlines()))
    right = 0
    for start in range(0, len(rows), 20):
        some = rows[start : start + 20]
        x = torch.stack([lite.preprocess(read_image(folder / row["file"])) for row in some])
        with torch.no_grad():
            found = lite(x).argmax(1).tolist()
        right += sum(a == int(row["class_index"]) for a, row in zip(found, some, strict=True))
    assert right / len(rows) == pytest.approx(0.882, abs=0.003)


def test_packaged_tensors_must_follow_the_order_of_layers(lite):
    state = packaged_weights()
    with pytest.raises(ValueError, match="296 tensors, got 295"):
        copy_in_order(lite.network, dict(list(state.items())[1:]))
    swapped = dict(reversed(state.items()))
    with pytest.raises(ValueError, match=r"_fc.bias \(1000,\) where conv_stem.weight \(32, 3, 3, 3\) belongs"):
        copy_in_order(lite.network, swapped)


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18", "resnet18_softplus"])
def test_random_weights_are_the_same_each_time_and_leave_the_random_state(name):
    first = load_model(name, weights="random")
    torch.rand(1)
    before = torch.get_rng_state()
    second = load_model(name, weights="random")
    assert torch.equal(torch.get_rng_state(), before)
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    side = first.size[0]
    assert first(torch.zeros(1, 3, side, side)).shape[0] == 1


def save(state: dict[str, torch.Tensor], path: Path, how: str) -> Path:
    from safetensors.torch import save_file

    prefix = {"data parallel": "module.", "compiled": "_orig_mod."}.get(how, "")
    state = {prefix + key: value for key, value in state.items()}
    if how == "safetensors":
        save_file(state, path.with_suffix(".safetensors"))
        return path.with_suffix(".safetensors")
    torch.save({"wrapped": {"state_dict": state, "epoch": 3}, "model": {"model": state}}.get(how, state), path)
    return path


@pytest.mark.parametrize("how", ["plain", "safetensors", "wrapped", "model", "data parallel", "compiled"])
def test_checkpoints(tmp_path, how):
    trained = ResNet18()
    path = save(trained.state_dict(), tmp_path / "weights.pt", how)
    model = load_model("resnet18_softplus", weights=path)
    assert torch.equal(model.network.fc.weight, trained.fc.weight)
    assert not model.network.fc.weight.requires_grad


def test_number_of_classes_comes_from_the_checkpoint(tmp_path):
    for source in ("timm", "torchvision"):
        trained = load_model(f"{source}/resnet18", weights="random", labels=["a", "b", "c"])
        path = save(trained.network.state_dict(), tmp_path / "weights.pt", "plain")
        model = load_model(f"{source}/resnet18", weights=path)
        assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 3)
        assert model.labels is None


def test_checkpoints_that_do_not_fit(tmp_path):
    network = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"2 missing \(1.weight, 1.bias\); 1 unexpected \(fc\)"):
        load_state(network, {"0.weight": torch.zeros(2, 3), "0.bias": torch.zeros(2), "fc": torch.zeros(1)}, "file")
    with pytest.raises(ValueError, match=r"1 of another shape \(0.weight \(5, 3\) for \(2, 3\)\)"):
        load_state(network, network.state_dict() | {"0.weight": torch.zeros(5, 3)}, "file")
    (tmp_path / "junk.pt").write_bytes(b"junk")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save(network, tmp_path / "code.pt")
    for name, words in (
        ("junk.pt", "junk.pt"),
        ("list.pt", "state dict"),
        ("code.pt", "plain tensors"),
        ("no", "no file"),
    ):
        with pytest.raises(ValueError, match=words):
            read_state(tmp_path / name)


def test_labels_in_every_form(tmp_path):
    names = ["tench", "goldfish", "great white shark"]
    forms = {
        "a.txt": "\n".join(names) + "\n",
        "b.json": json.dumps(names),
        "c.json": json.dumps({str(i): name for i, name in enumerate(names)}),
        "d.json": json.dumps({str(i): [f"n{i}", name] for i, name in enumerate(names)}),
        "e.json": json.dumps({name: i for i, name in enumerate(names)}),
    }
    for file, text in forms.items():
        (tmp_path / file).write_text(text)
        assert read_labels(tmp_path / file) == names
    (tmp_path / "gap.json").write_text('{"0": "a", "2": "b"}')
    (tmp_path / "empty.txt").write_text("\n")
    for file in ("gap.json", "empty.txt", "missing.txt"):
        with pytest.raises(ValueError, match="labels"):
            read_labels(tmp_path / file)


def test_larger_imagenets_have_names():
    assert imagenet_labels(1000)[0] == "tench"
    assert len(imagenet_labels(21843)) == 21843
    assert imagenet_labels(7) is None


def test_own_code(own_code):
    before = list(sys.path)
    model = load_model("own_network:Net")
    assert sys.path == before
    assert not model.network.drop.training
    assert (model.size, model.labels[1]) == ((8, 8), "dog")
    torch.save(model.network.state_dict() | {"fc.bias": torch.arange(3.0)}, own_code / "w.pt")
    (own_code / "names.txt").write_text("x\ny\nz\n")
    model = load_model("own_network:Net", weights="w.pt", labels="names.txt")
    assert model.labels == ["x", "y", "z"]
    assert model.network.fc.bias.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="2 labels for 3 outputs"):
        load_model("own_network:Net", labels=["a", "b"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_network:broken", "RuntimeError: no such luck"),
        ("own_network:nothing", "AttributeError"),
        ("no_network:nothing", "No module named 'no_network'"),
        ("own_network:number", "must make a torch.nn.Module, got int"),
    ],
)
def test_own_code_that_does_not_work(own_code, name, words):
    before = list(sys.path)
    with pytest.raises((ValueError, TypeError), match=words):
        load_model(name)
    assert sys.path == before


@pytest.mark.parametrize(("factory", "labels"), [("Net", ["cat", "dog", "bird"]), ("small", ["a", "b", "c"])])
def test_a_model_of_the_table_may_return_a_module_or_a_classifier(own_code, monkeypatch, factory, labels):
    monkeypatch.syspath_prepend(str(own_code))
    monkeypatch.setitem(MODELS._entries, "mine", Entry(f"own_network:{factory}", "from outside"))
    first = load_model("mine")
    assert (first.size, first.labels, first.network.drop.training) == ((8, 8), labels, False)
    torch.save(first.network.state_dict() | {"fc.bias": torch.arange(3.0)}, own_code / "w.pt")
    second = load_model("mine", weights="w.pt", labels=["x", "y", "z"])
    assert (second.labels, second.network.fc.bias.tolist()) == (["x", "y", "z"], [0, 1, 2])
    monkeypatch.setitem(MODELS._entries, "mine", Entry("own_network:number", "from outside"))
    with pytest.raises(TypeError, match=r"must make a torch.nn.Module, got int"):
        load_model("mine")


def test_a_module_that_says_nothing_gets_imagenets_input(caplog):
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 2))
    assert as_classifier(module).view == CentreCrop()
    assert "preprocess" in caplog.text
    module.pretrained_cfg = {"input_size": (3, 64, 64), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    assert as_classifier(module).size == (64, 64)
    assert module.training


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("efficientnet_lite", "Did you mean 'efficientnet_lite0'"),
        ("resnet50", "'timm/resnet50' or 'torchvision/resnet50'"),
        ("timm/resnet81", "Did you mean .*'timm/resnet18'"),
        ("torchvision/resnet81", "Did you mean .*'torchvision/resnet18'"),
        ("nowhere/resnet18", "must be one of"),
        ("", "must be one of"),
    ],
)
def test_unknown_names(name, words):
    with pytest.raises(ValueError, match=words):
        load_model(name)


def test_models_must_be_names_and_devices_must_exist():
    with pytest.raises(TypeError, match="must be a name"):
        load_model(nn.Identity())
    with pytest.raises(ValueError, match="device must be one that works here"):
        load_model("resnet18_softplus", device="nonsense")


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18"])
def test_weights_out_of_reach_are_reported_in_one_sentence(name, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(checkpoint.socket, "create_connection", lambda *a, **k: (_ for _ in ()).throw(OSError("down")))
    monkeypatch.setattr(checkpoint, "getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(WeightsUnavailableError, match=r"no connection to .*: down\); .*'random' as weights") as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    assert constants.HF_HUB_OFFLINE is False


def test_a_download_of_torchvision_is_not_unpickled(tmp_path, monkeypatch, trap):
    """Torchvision leaves it to torch's loader, and that to pickle."""
    from torchvision import models

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    stored = tmp_path / "checkpoints" / models.SqueezeNet1_1_Weights.DEFAULT.url.rpartition("/")[2]
    stored.parent.mkdir()
    torch.save(trap, stored)
    with pytest.raises(WeightsUnavailableError, match="other objects than tensors"):
        load_model("torchvision/squeezenet1_1")
    torch.save(models.squeezenet1_1().state_dict(), stored)
    assert load_model("torchvision/squeezenet1_1").labels[281] == "tabby"


def test_a_checkpoint_is_not_unpickled(tmp_path, trap):
    torch.save({"state_dict": trap}, tmp_path / "net.pt")
    with pytest.raises(ValueError, match="weights must be plain tensors"):
        load_model("resnet18_softplus", weights=tmp_path / "net.pt")


def test_code_of_a_hugging_face_repository_is_not_run(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    asked = []
    monkeypatch.setattr("builtins.input", lambda *given: asked.append(given) or "y")
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    auto = dict.fromkeys(("AutoConfig", "AutoImageProcessor", "AutoModelForImageClassification"), "own.Own")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"auto_map": auto}))
    with pytest.raises(WeightsUnavailableError, match="contains custom code"):
        load_model(f"hf/{tmp_path}")
    assert not asked
    assert not (tmp_path / "ran").exists()


def test_hugging_face_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install moreaugrad\[hf\]"):
        load_model("hf/google/vit-base-patch16-224")


def test_hugging_face_folder(tmp_path):
    hub = pytest.importorskip("transformers")
    shape = {"hidden_sizes": [8, 8], "depths": [1, 1], "embedding_size": 8, "num_labels": 3}
    network = hub.AutoModelForImageClassification.from_config(hub.ResNetConfig(**shape)).eval()
    network.save_pretrained(tmp_path)
    size = {"size": {"shortest_edge": 80}, "crop_size": {"height": 64, "width": 64}}
    processor = hub.BitImageProcessor(**size)
    processor.save_pretrained(tmp_path)
    model = load_model(f"hf/{tmp_path}")
    x = model.preprocess(photo(200, 300))[None]
    theirs = processor(photo(200, 300), return_tensors="pt")["pixel_values"]
    assert (x - theirs).abs().max() < 2.5 / 255 / 0.26  # its resizing rounds differently by a level or two
    with torch.no_grad():
        torch.testing.assert_close(model(x), network(x).logits)
    again = load_model(f"hf/{tmp_path}", weights=tmp_path / "model.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(again(x), model(x))


@pytest.mark.parametrize(
    ("given", "size", "box"),
    [(64, (64, 64), (73, 73)), ((64, 96), (64, 96), (73, 110)), (None, (224, 224), (256, 256))],
)
def test_the_view_of_a_model_can_be_changed(given, size, box):
    """The crop stays the share of the picture that it was."""
    changed = ViewChange(given, [0.5] * 3, [0.1] * 3).apply(CentreCrop())
    assert (changed.size, changed.box) == (size, box)
    x, crop = changed.apply(Image.new("RGB", (300, 200), "white"))
    assert x.shape == (3, *size)
    assert crop.size == size[::-1]
    torch.testing.assert_close(x, torch.full_like(x, 5.0))


def test_a_model_that_does_not_know_its_input_can_be_told(own_code, caplog):
    model = load_model("own_network:Plain", size=8, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert model.view == CentreCrop((8, 8), (8, 8), (0.5,) * 3, (0.25,) * 3)
    assert not caplog.records
    assert load_model("own_network:Plain", size=8).view.mean == CentreCrop().mean
    (record,) = caplog.records
    assert "ImageNet's mean, std;" in record.getMessage()
    assert "--size" in record.getMessage()
    assert "preprocess=" in record.getMessage()
    grey = load_model("own_network:Grey", size=8, mean=[0.5], std=[0.5])
    assert grey.preprocess(Image.new("RGB", (9, 9))).shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": 0}, "size must be at least 1"),
        ({"size": (8, 8, 3)}, "height and width"),
        ({"mean": (127.5,) * 3}, "divide 8-bit values by 255"),
        ({"mean": (0.5, 0.5)}, "three numbers"),
        ({"std": (0.0,) * 3}, "std must be a positive"),
        ({"mean": (0.5,), "std": (0.5,) * 3}, "as many values"),
        ({"mean": (0.5,)}, "give both"),
        ({"size": 9}, "must take what its preprocessing makes"),
    ],
)
def test_a_view_that_cannot_be_is_refused(own_code, given, words):
    with pytest.raises(ValueError, match=words):
        load_model("own_network:Plain", **given)


def test_a_preprocess_function_cannot_be_changed_from_outside(own_code):
    with pytest.raises(ValueError, match="must be left out where the model has a preprocess function"):
        load_model("own_network:Net", size=16)


@pytest.mark.parametrize(("size", "wanted"), [(64, (64, 64)), ([32, 48], (32, 48)), ({"height": 3}, (224, 224))])
def test_the_size_in_a_hugging_face_configuration_is_used(size, wanted):
    network = nn.Flatten()
    network.config = SimpleNamespace(image_size=size)
    assert as_classifier(network).size == wanted

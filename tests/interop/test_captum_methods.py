"""Captum's attributions as methods: the maps are Captum's own, and nothing stays behind in the model."""

import copy
import json
import pickle
import shutil
import sys

import captum.attr
import numpy as np
import pytest
import small_network
import torch
from PIL import Image
from torch import nn

import moreaugrad as mg


class Net(nn.Module):
    """With what hooks trip over: batch norm, an activation in place, a second argument."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(6, 4)

    def forward(self, x, scale=None):
        out = self.head(self.second(self.first(x)).flatten(1))
        return out if scale is None else out * scale.view(-1, 1)


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = Net()
        made.head.weight.data *= 30  # or LIME's lasso finds nothing
        made.first[1].running_mean.normal_()
        made.first[1].running_var.uniform_(0.5, 2)
        return made.eval()


X = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
TARGET = [2, 0, 3]
CELLS = (torch.arange(8)[:, None] // 4 * 2 + torch.arange(8) // 4).view(1, 1, 8, 8)
DETERMINISTIC = {
    "Saliency": {},
    "InputXGradient": {},
    "IntegratedGradients": {"n_steps": 7, "baselines": 0.25},
    "DeepLift": {},
    "DeepLiftShap": {"baselines": torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))},
    "GuidedBackprop": {},
    "Deconvolution": {},
    "GuidedGradCam": {"layer": "second.0"},
    "LRP": {},
    "Occlusion": {"sliding_window_shapes": (3, 3, 3), "strides": (3, 2, 2)},
    "FeatureAblation": {"feature_mask": CELLS},
    "ShapleyValues": {"feature_mask": CELLS},
}
RANDOM = {
    "GradientShap": {"baselines": torch.zeros(1, 3, 8, 8), "stdevs": 0.1},
    "ShapleyValueSampling": {"feature_mask": CELLS, "n_samples": 3},
    "Lime": {"feature_mask": CELLS, "n_samples": 12},
    "KernelShap": {"feature_mask": CELLS, "n_samples": 12},
}
EVERY = pytest.mark.parametrize(("name", "options"), (DETERMINISTIC | RANDOM).items(), ids=[*DETERMINISTIC, *RANDOM])


@pytest.fixture(autouse=True)
def _regressions(request):
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if parameters.get("name") in ("Lime", "KernelShap"):
        pytest.importorskip("sklearn", reason="Captum fits LIME and Kernel SHAP with scikit-learn")


def make(name, net, options, **others):
    return mg.from_captum(getattr(captum.attr, name), **options)(net, **others)


def call_captum(name, net, options, x, target, seed=0):
    """Captum's own map of one image, on a model that may be spoiled."""
    spare = copy.deepcopy(net)
    for module in spare.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
    given = dict(options)
    built = {"layer": spare.get_submodule(given.pop("layer"))} if "layer" in given else {}
    kind = getattr(captum.attr, name)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # Captum's GradientShap draws from there too
        return kind(spare, **built).attribute(x.clone().requires_grad_(), target=target, **given).detach()


@EVERY
@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's own, of hooks
def test_a_map_is_captums(name, options, net):
    wanted = torch.cat([call_captum(name, net, options, X[i : i + 1], TARGET[i]) for i in range(3)])
    found = make(name, net, options).attribute(X, target=TARGET)
    assert wanted.abs().max() > 0
    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-6)


@EVERY
def test_an_image_has_the_same_map_in_any_batch(name, options, net):
    method = make(name, net, options)
    whole = method.explain(X)
    assert torch.equal(whole.map[1:2], method.explain(X[1:2]).map)
    assert torch.equal(whole.target, net(X).argmax(1))
    assert (whole.gradients > 0).all()


@pytest.mark.parametrize(("name", "options"), RANDOM.items(), ids=RANDOM)
def test_a_random_attribution_follows_the_seed_alone(name, options, net):
    one, same, other = (make(name, net, options, seed=seed).explain(X, 1) for seed in (3, 3, 4))
    assert torch.equal(one.map, same.map)
    assert not torch.equal(one.map, other.map)
    assert (one.seed, other.seed) == (3, 4)


def test_only_random_attributions_have_a_seed(net):
    assert make("Saliency", net, {}).explain(X).seed is None
    with pytest.raises(TypeError, match="no option 'seed'"):
        make("Saliency", net, {}, seed=1)


def state_of(net):
    """Everything that an attribution could leave behind."""
    own = {name: sorted(vars(module)) for name, module in net.named_modules()}
    hooks = {
        name: [len(getattr(module, kind)) for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]
        for name, module in net.named_modules()
    }
    flags = {name: (module.training, getattr(module, "inplace", None)) for name, module in net.named_modules()}
    weights = {name: (p.requires_grad, p.grad, p._version) for name, p in net.named_parameters()}
    return own, hooks, flags, weights


def random_states():  # not Python's own, which the shape checks of the tests use
    return torch.get_rng_state().tolist(), [str(part) for part in np.random.get_state()]  # noqa: NPY002


class Stumbling(nn.Module):
    """A layer that fails at its second call, when hooks are in place and maps half made."""

    calls = 0

    def forward(self, x):
        type(self).calls += 1
        if type(self).calls > 1:
            raise RuntimeError("stumbled")
        return x


@EVERY
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(name, options, fails, net):
    if fails:
        net.second.append(Stumbling())
        Stumbling.calls = 0
    x = X.clone()
    before, weights, states = state_of(net), copy.deepcopy(net.state_dict()), random_states()
    method = make(name, net, options)
    if fails:
        with pytest.raises((RuntimeError, ValueError), match=r"stumbled|no rule defined"):  # of LRP, for such a layer
            method.attribute(x, target=TARGET)
    else:
        method.attribute(x, target=TARGET)
    assert state_of(net) == before
    assert random_states() == states
    assert all(torch.equal(value, weights[key]) for key, value in net.state_dict().items())
    assert torch.equal(x, X)
    assert not x.requires_grad


def test_scores_arguments_and_targets_are_those_of_all_methods(net):
    scale = torch.tensor([0.5, 1.0, 2.0])
    found = make("InputXGradient", net, {}, score="logprob").attribute(X, TARGET, scale)
    x = X.clone().requires_grad_()
    scores = net(x, scale).log_softmax(1)[torch.arange(3), TARGET]
    torch.testing.assert_close(found, X * torch.autograd.grad(scores.sum(), x)[0], rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="target must be below 4"):
        make("Occlusion", net, DETERMINISTIC["Occlusion"]).attribute(X, 4)


def test_a_function_of_a_part_of_the_output(net):
    def two_heads(x):
        return {"scores": net(x), "features": x}

    def margin(scores):
        return scores[:, 2] - scores[:, 0]

    options = {"feature_mask": CELLS}
    found = make("FeatureAblation", two_heads, options, output="scores", score=margin).attribute(X)
    wanted = make("FeatureAblation", lambda x: margin(net(x)), options).attribute(X)
    assert wanted.abs().max() > 0
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_several_inputs():
    def score(a, b):
        return torch.stack([(a.flatten(1) ** 2).sum(1) + 3 * b.sum(1), b.sum(1)], 1)

    a, b = torch.rand(2, 1, 3, 3), torch.rand(2, 4)
    maps = mg.from_captum(captum.attr.FeatureAblation)(score).attribute((a, b), target=0)
    torch.testing.assert_close(maps[0], a**2)  # what is lost without an entry
    torch.testing.assert_close(maps[1], 3 * b)


def test_a_model_of_one_output():
    maps = mg.from_captum(captum.attr.FeatureAblation)(lambda x: x.sum((1, 2, 3))[:, None]).attribute(X)
    torch.testing.assert_close(maps, X, rtol=1e-4, atol=1e-5)


def test_baselines_of_a_call_come_before_those_of_the_method(net):
    kind = mg.from_captum(captum.attr.IntegratedGradients, n_steps=5, baselines=0.5)
    other = torch.rand(1, 3, 8, 8)
    found = kind(net).attribute(X, TARGET, baselines=other)
    wanted = captum.attr.IntegratedGradients(net).attribute(X, other, TARGET, n_steps=5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(kind(net).attribute(X, TARGET), found)


def test_rows_of_one_call_stay_within_the_internal_batch_size(net):
    seen = []

    def watched(x):
        seen.append(len(x))
        return net(x)

    method = make("Occlusion", watched, {"sliding_window_shapes": (3, 2, 2), "strides": (3, 2, 2)})
    whole = method.explain(X, 1, internal_batch_size=5)
    assert max(seen) == 5
    assert whole.gradients.tolist() == [17] * 3  # sixteen windows, and the image itself
    torch.testing.assert_close(whole.map, method.attribute(X, 1, internal_batch_size=1), rtol=1e-4, atol=1e-6)


def test_rows_are_halved_where_the_memory_runs_out(net, caplog):
    def narrow(x):
        if len(x) > 2:
            raise torch.OutOfMemoryError("too much")
        return net(x)

    options = {"sliding_window_shapes": (3, 4, 4), "strides": (3, 4, 4)}
    found = make("Occlusion", narrow, options).attribute(X, 1)
    torch.testing.assert_close(found, make("Occlusion", net, options).attribute(X, 1), rtol=1e-4, atol=1e-6)
    assert "out of memory" in caplog.text


def test_an_attribution_of_ones_own_needs_no_more_than_inputs_and_target(net):
    class Drawn(captum.attr.GradientAttribution):
        def __init__(self, forward_func, scale=1.0):
            super().__init__(forward_func)
            self.scale = scale

        def attribute(self, inputs, target=None):
            return torch.rand_like(inputs) * self.scale

    kind = mg.from_captum(Drawn, random=True, scale=3.0)
    one, two = (kind(net, seed=seed).attribute(X, 1, internal_batch_size=3) for seed in (0, 1))
    assert torch.equal(one[0], one[2])
    assert one.max() > 2
    assert not torch.equal(one, two)


def test_progress_counts_images(net):
    steps = []
    make("Saliency", net, {}).explain(X, callback=lambda step, total, info: steps.append((step, total)))
    assert steps[-1] == (3, 3)


def test_a_feature_mask_by_word_and_by_number(net):
    by_number = make("FeatureAblation", net, {"feature_mask": 2}).attribute(X, 1)
    assert torch.equal(by_number, make("FeatureAblation", net, {"feature_mask": CELLS}).attribute(X, 1))
    pieces = make("FeatureAblation", net, {"feature_mask": "superpixels"}).attribute(X, 1)
    assert 1 < len(pieces[0].unique()) <= 64


def test_one_feature_mask_per_image(net):
    masks = torch.stack([CELLS[0], CELLS[0].flip(-1), CELLS[0].mT * 0 + torch.arange(8) // 4]).expand(-1, 3, -1, -1)
    whole = make("FeatureAblation", net, {"feature_mask": masks}).attribute(X, 1)
    for i in range(3):
        alone = make("FeatureAblation", net, {"feature_mask": masks[i : i + 1]}).attribute(X[i : i + 1], 1)
        torch.testing.assert_close(whole[i : i + 1], alone, rtol=1e-4, atol=1e-6)


def test_the_attribution_of_a_layer_is_summed_and_enlarged(net):
    found = make("LayerGradCam", net, {"layer": net.second[0]}).attribute(X, TARGET)
    coarse = captum.attr.LayerGradCam(net, net.second[0]).attribute(X, TARGET)
    torch.testing.assert_close(found, coarse, rtol=1e-4, atol=1e-6)  # of the size of the images already
    summed = make("LayerGradientXActivation", net, {"layer": "second.0"}).attribute(X, TARGET)
    wanted = captum.attr.LayerGradientXActivation(net, net.second[0]).attribute(X, TARGET).sum(1, keepdim=True)
    torch.testing.assert_close(summed, wanted, rtol=1e-4, atol=1e-6)


def test_a_method_can_be_stored(net):
    method = make("Occlusion", net, {"sliding_window_shapes": (3, 4, 4)}, strides=(3, 2, 2))
    again = pickle.loads(pickle.dumps(method))
    assert torch.equal(again.attribute(X, 1), method.attribute(X, 1))
    assert again.options() == method.options()


def test_a_name_joins_the_table_and_reads_its_options_as_text(net):
    mg.from_captum(captum.attr.Occlusion, sliding_window_shapes=(3, 4, 4), name="occlusion_example")
    given = {"sliding_window_shapes": [3, 2, 2], "strides": "(3, 2, 2)"}
    found = mg.explain(net, X, "occlusion_example", target=1, **given)
    wanted = make("Occlusion", net, {"sliding_window_shapes": (3, 2, 2), "strides": (3, 2, 2)}).attribute(X, 1)
    assert torch.equal(found.map, wanted)
    assert (found.method, found.options["strides"]) == ("Occlusion", "(3, 2, 2)")


@pytest.mark.parametrize(
    ("attribution", "words"),
    [
        ("NoiseTunnel", "needs more than a model"),
        ("NeuronGradient", "needs more than a model|explains a neuron"),
        ("NeuronConductance", "explains a neuron"),
        ("FeaturePermutation", "images of a batch by each other"),
        ("Attribution", "needs more than a model"),
    ],
)
def test_what_explains_no_class_by_its_image_is_refused(attribution, words):
    with pytest.raises(TypeError, match=words):
        mg.from_captum(getattr(captum.attr, attribution))


def test_wrong_options_are_refused_before_the_model_is_run():
    def unreachable(x):
        raise AssertionError("the model was run")

    with pytest.raises(TypeError, match="from_function"):
        mg.from_captum(unreachable)
    with pytest.raises(TypeError, match="no option 'stride'; did you mean 'strides'"):
        mg.from_captum(captum.attr.Occlusion, stride=2)
    with pytest.raises(ValueError, match="needs sliding_window_shapes"):
        mg.from_captum(captum.attr.Occlusion)(unreachable)
    with pytest.raises(ValueError, match="needs baselines"):
        mg.from_captum(captum.attr.GradientShap)(unreachable)
    with pytest.raises(TypeError, match=r"needs a torch\.nn\.Module"):
        mg.from_captum(captum.attr.GuidedBackprop)(unreachable).attribute(X, 1)
    with pytest.raises(ValueError, match="precision must be"):
        mg.from_captum(captum.attr.Saliency)(unreachable, precision="bfloat16")
    with pytest.raises(KeyError, match="Did you mean 'captum/Occlusion'"):
        _ = mg.METHODS["captum/Oclusion"]


@pytest.mark.parametrize("shapes", [(3, 9), 3])
def test_what_captum_refuses_is_said_in_its_words(net, shapes):
    with pytest.raises(ValueError, match="Captum's Occlusion refuses"):
        make("Occlusion", net, {"sliding_window_shapes": shapes}).attribute(X, 1)


def test_what_the_network_raises_stays_as_it_is():
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        make("Saliency", broken, {}).attribute(X, 1)


LINEAR = ["--model", "own_small:Linear"]
METRICS = ["--norms", "1", "--metrics", "normalised_distance,topk_intersection"]  # for pictures of any size


@pytest.fixture
def photo(tmp_path, monkeypatch):
    """In a folder with the user's network."""
    shutil.copy(small_network.SOURCE, tmp_path / "own_small.py")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    yield "photo.png"
    sys.modules.pop("own_small", None)


def test_the_command_line_takes_captums_names(run, photo, tmp_path):
    model = [*LINEAR, "--out", tmp_path / "out", "--target", 1]
    windows = ["--set", "sliding_window_shapes=[3,1,1]", "--set", "strides=[3,1,1]"]
    code, out, err = run("explain", photo, "--json", *model, "--method", "captum/Occlusion", *windows)
    assert code == 0, err
    line = json.loads(out)
    assert (line["method"], line["gradients"]) == ("captum/Occlusion", 65)
    stored = mg.Explanation.load(next((tmp_path / "out").rglob("*.npz")))
    net = small_network.Linear()
    x = net.preprocess(Image.open(photo))[None]
    effects = (x * net.weight[1].view(1, 3, 8, 8)).sum(1, keepdim=True)  # what a pixel adds to a linear score
    torch.testing.assert_close(stored.map, effects.expand_as(x).detach(), rtol=1e-4, atol=1e-5)


def test_the_command_line_takes_a_name_of_ones_own(run, photo, tmp_path):
    (tmp_path / "mymethods.py").write_text(
        "import captum.attr\n"
        "import moreaugrad as mg\n"
        "mg.from_captum(captum.attr.InputXGradient, name='contributions_example')\n"
    )
    chosen = ["--import", "mymethods.py", "--method", "contributions_example", "--target", 1, "--out", "out"]
    code, _, err = run("explain", photo, *LINEAR, *chosen)
    assert code == 0, err
    stored = mg.Explanation.load(next((tmp_path / "out").rglob("*.npz")))
    net = small_network.Linear()
    x = net.preprocess(Image.open(photo))[None]
    torch.testing.assert_close(stored.map, (x * net.weight[1].view(1, 3, 8, 8)).detach(), rtol=1e-4, atol=1e-5)


def test_a_study_takes_them_too(run, photo, tmp_path):
    common = [*LINEAR, "--out", tmp_path / "study", "--attacks", "noise"]
    code, _, err = run("robustness", photo, *common, "--methods", "gradient,captum/InputXGradient", *METRICS)
    assert code == 0, err
    assert "captum/InputXGradient" in (tmp_path / "study" / "table.csv").read_text()

"""Pictures in, maps and records out: on a linear network, where the maps are known."""

import numpy as np
import pytest
import torch
from PIL import Image
from small_network import SIZE, Linear, Moody

from moreaugrad import METHODS, MoreauGrad, Smoothing, prepare
from moreaugrad.api import Explainer, explain
from moreaugrad.methods.options import describe_options, make_method, option_names
from moreaugrad.models.classes import Contrast, Ranked
from moreaugrad.models.custom import as_classifier


@pytest.fixture
def network():
    return Linear().eval()


@pytest.fixture
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 200, (20, 30, 3), dtype=np.uint8))


def weights_of(network: Linear, target: int) -> torch.Tensor:
    return network.weight[target].detach().view(1, 3, SIZE, SIZE)


def test_gradient_of_a_linear_network_is_its_weights(network, picture):
    for target in range(3):
        found = explain(network, picture, "gradient", target=target)
        torch.testing.assert_close(found.map, weights_of(network, target))
        assert found.target.tolist() == [target]
    predicted = network(network.preprocess(picture)[None]).argmax(1)
    assert torch.equal(explain(network, picture, "gradient").target, predicted)


def test_sparse_map_of_a_linear_network_is_its_weights_thresholded(network, picture):
    found = explain(network, picture, "sparse_moreau", target=1, noise_level=0, eta=0.05, rho=2.0)
    w = weights_of(network, 1)
    torch.testing.assert_close(found.map, w.sign() * (w.abs() - 0.05).clamp_min(0), atol=1e-5, rtol=0)


def test_every_form_of_image_gives_the_same_map(network, picture, tmp_path):
    picture.save(tmp_path / "p.png")
    x = network.preprocess(picture)
    forms = [picture, np.asarray(picture), tmp_path / "p.png", str(tmp_path / "p.png"), x, x[None], [picture]]
    maps = [explain(network, form, budget=64, sparsity=0.1).map for form in forms]
    assert all(torch.equal(found, maps[0]) for found in maps)
    assert int((maps[0] != 0).sum()) == round(0.1 * maps[0].numel())


def test_a_prepared_network_keeps_its_preprocessing(network, picture):
    classifier = as_classifier(network)
    ready = prepare(classifier, precision="bfloat16")
    found = explain(ready, picture, "smoothgrad", samples=4)
    assert torch.equal(found.map, explain(classifier, picture, "smoothgrad", samples=4, precision="bfloat16").map)
    assert found.options["precision"] == "bfloat16"


def test_lists_and_plain_functions(network, picture):
    dark = Image.new("RGB", (5, 5))
    found = explain(network.forward, [picture, dark], "gradient", target=[0, 2], preprocess=network.preprocess)
    torch.testing.assert_close(found.map, torch.cat([weights_of(network, 0), weights_of(network, 2)]))


def test_the_network_is_left_as_it_was(picture):
    network = Linear().train()
    state = {name: value.clone() for name, value in network.state_dict().items()}
    before = torch.get_rng_state()
    explain(network, picture, budget=32)
    assert network.training
    assert network.weight.requires_grad
    assert network.weight.grad is None
    assert not network._forward_hooks
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"image": "nowhere.png"}, "nothing there"),
        ({"image": []}, "at least one"),
        ({"image": 5}, "a path, a PIL image"),
        ({"method": "sparse_morau"}, "Did you mean 'sparse_moreau'"),
        ({"target": 3}, "below 3"),
        ({"target": [0, 1]}, "2 targets for 1 images"),
        ({"rho": -1}, "rho must be a finite number >= 0"),
        ({"eta": 0.1, "sparsity": 0.1}, "exclude each other"),
        ({"noise": 0.1}, "an option of sparse_moreau must be one of .* Did you mean 'noise_level'"),
        ({"method": "gradient", "rho": 1.0}, "an option of gradient must be one of"),
        ({"noise_level": 0, "samples": 4}, "samples must be left out"),
        ({"smoothing": None, "samples": 4}, "exclude each other"),
        ({"device": "nonsense"}, "device must be one that works here"),
        ({"preprocess": 3}, "preprocess must be a function"),
        ({"image": torch.full((3, SIZE, SIZE), float("nan"))}, "must be finite"),
    ],
)
def test_bad_input_is_refused(network, picture, given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        explain(network, **{"image": picture, "budget": 32} | given)


def test_images_of_several_sizes_do_not_make_a_batch(network):
    def as_it_is(picture):
        return torch.tensor(np.asarray(picture)).permute(2, 0, 1) / 255

    with pytest.raises(ValueError, match="one size after preprocess"):
        explain(network, [Image.new("RGB", (4, 4)), Image.new("RGB", (5, 4))], preprocess=as_it_is)


def test_options_make_the_method_that_the_class_makes(network):
    made = make_method("moreau", network, {"rho": 0.5, "noise_level": 0.2, "samples": 8, "eta": None})
    same = MoreauGrad(network, rho=0.5, smoothing=Smoothing(noise_level=0.2, samples=8))
    assert made.options() == same.options()
    assert make_method("smoothgrad", network, {"samples": 8}).noise == Smoothing(noise_level=0.15, samples=8)
    assert make_method("moreau", network, {"sigma": 0.3}).noise == Smoothing(sigma=0.3, samples=8)
    assert make_method("moreau", network, {"noise_level": 0}).noise is None
    assert make_method("moreau", network, {"smoothing": None}).noise is None


@pytest.mark.parametrize("name", [name for name, each in METHODS.items() if "trained" not in each.flags])
def test_described_options_make_the_same_method_again(network, name):
    made = make_method(name, network, {})
    again = make_method(name, network, describe_options(made))
    assert again.options() == made.options()
    assert set(describe_options(made)) <= set(option_names(name))


def test_options_of_a_prior_make_it_again(network):
    made = make_method("moreau", network, {"prior": "group", "groups": 4})
    assert made.prior.groups == 4
    assert make_method("moreau", network, describe_options(made)).prior.groups == 4
    with pytest.raises(ValueError, match="an option of moreau must be one of"):
        make_method("moreau", network, {"prior": "group", "labels": None, "group": 4})


def test_none_is_passed_on_where_it_means_something(network):
    assert make_method("fgvis", network, {"defence": None}).defence is None
    assert describe_options(make_method("fgvis", network, {"defence": None}))["defence"] is None
    assert make_method("integrated_gradients", network, {"baseline": None}).baseline is None
    assert make_method("sparse_moreau", network, {"eta": None, "sparsity": 0.1}).eta is None


@pytest.mark.parametrize("name", [name for name in METHODS if "samples" in option_names(name)])
def test_noise_by_single_options(network, name):
    assert make_method(name, network, {"noise_level": 0.3}).noise.noise_level == 0.3
    assert make_method(name, network, {"sigma": 0.3}).noise.sigma == 0.3


def explainer_of(network, name="sparse_moreau", **options) -> Explainer:
    return Explainer(as_classifier(network), name, options)


def test_records_come_in_order_and_know_their_image(network, picture):
    dark, light = Image.new("RGB", (9, 9)), Image.new("RGB", (9, 9), "white")
    sources, targets = [("a", picture), ("b", dark), ("c", light), ("d", picture)], [1, None, 2, None]
    records = explainer_of(network, budget=64, sparsity=0.2)(sources, targets)
    assert [record.key for record in records] == ["a", "b", "c", "d"]
    assert [records[0].target, records[2].target] == [1, 2]
    assert [records[0].label, records[2].label] == ["dog", "bird"]
    for (_, source), target, record in zip(sources, targets, records, strict=True):
        alone = explain(network, source, target=target, budget=64, sparsity=0.2)
        torch.testing.assert_close(record.explanation.map, alone.map)
        assert record.picture.size == (SIZE, SIZE)


def test_lengths_in_pixel_values(network, picture):
    (record,) = explainer_of(network, "moreau", budget=64, noise_level=0.1)([("a", picture)], 0)
    pixels = np.asarray(record.picture).astype(float)
    assert record.lengths["sigma_8bit"] == pytest.approx(0.1 * (pixels.max() - pixels.min()), rel=1e-4)
    assert record.lengths["delta_norm_8bit"] == pytest.approx(record.lengths["delta_norm"] * 255 * 0.25, rel=1e-4)


def test_a_picture_is_preprocessed_once(network, picture):
    calls = []

    def counting(given):
        calls.append(given)
        return network.preprocess(given)

    explainer = Explainer(as_classifier(network, counting), "gradient")
    calls.clear()  # of black and white pictures, whose tensors tell mean and std
    explainer([("a", picture)])
    assert len(calls) == 1


def test_one_bad_image_does_not_spoil_the_others(picture, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"junk")
    light = Image.new("RGB", (9, 9), "white")
    sources = [("a", picture), ("bad", tmp_path / "bad.png"), ("light", light), ("b", np.asarray(picture))]
    records = explainer_of(Moody().eval(), budget=32)(sources)
    found = [(record.key, record.explanation is not None) for record in records]
    assert found == [("a", True), ("bad", False), ("light", False), ("b", True)]
    assert "of another kind" in records[1].error
    assert records[2].error == "RuntimeError: too bright"
    assert torch.equal(records[0].explanation.map, records[3].explanation.map)


@pytest.mark.parametrize(("name", "words"), [("sparse_moreau", "budget"), ("nonsense", "method must be one of")])
def test_wrong_options_are_found_before_the_first_image(network, name, words):
    with pytest.raises(ValueError, match=words):
        explainer_of(network, name, budget=3)


def test_a_list_of_sparsities_gives_a_list_of_maps(network, picture):
    found = explain(network, picture, sparsity=[0.1, 0.3], budget=64)
    assert [round(float(each.kept), 2) for each in found] == [0.1, 0.3]
    with pytest.raises(ValueError, match="one map per image, got a list"):
        explainer_of(network, sparsity=[0.1, 0.3], budget=64)([("a", picture)])


@pytest.fixture
def folder(tmp_path):
    """Five pictures, a text, and an animation of three frames."""
    for name, value in (("a.png", 10), ("b.png", 60), ("deep/c.bmp", 110), ("d.jpg", 160)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (9, 9), (value, 20, 30)).save(tmp_path / name)
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "lime", "blue")]
    frames[0].save(tmp_path / "e.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def test_folders_and_patterns_are_batches(network, folder):
    every = explain(network, folder, "gradient", target=0)
    assert len(every) == 5
    names = [folder / name for name in ("a.png", "b.png", "d.jpg", "deep/c.bmp", "e.gif")]
    assert torch.equal(every.score, explain(network, names, "gradient", target=0).score)
    assert torch.equal(explain(network, str(folder / "*.png"), "gradient", target=0).score, every.score[:2])
    assert len(explain(network, folder, "gradient", frames=True)) == 7
    frames = explain(network, folder / "e.gif", "gradient", target=0, frames=True)
    alone = [Image.new("RGB", (9, 9), colour) for colour in ("red", "lime", "blue")]
    torch.testing.assert_close(frames.score, explain(network, alone, "gradient", target=0).score)


def test_targets_by_name(network, picture):
    found = explain(network, [picture] * 3, "gradient", target=["Bird", "cat", "dog"])
    assert found.target.tolist() == [2, 0, 1]
    assert explain(network, picture, "gradient", target="dog").target.tolist() == [1]
    x = network.preprocess(picture)[None]
    assert explain(network, x, "gradient", target="dog").target.tolist() == [1]
    assert explain(network.forward, x, "gradient", target="b", labels=["a", "b", "c"]).target.tolist() == [1]
    with pytest.raises(ValueError, match="Did you mean 'dog'"):
        explain(network, picture, target="doog")
    with pytest.raises(ValueError, match="where classes have no names"):
        explain(network.forward, x, target="dog")


def test_the_top_classes_in_their_order(network, picture):
    x = torch.stack([network.preprocess(each) for each in (picture, Image.new("RGB", (9, 9), "red"))])
    order = network(x).argsort(dim=1, descending=True)
    for form in (x, [picture, Image.new("RGB", (9, 9), "red")]):
        found = explain(network, form, "gradient", top=3)
        assert [each.target.tolist() for each in found] == order.T.tolist()
    records = explainer_of(network, "gradient")([("a", picture)] * 3, [Ranked(1), Ranked(2), Ranked(3)])
    assert [record.target for record in records] == order[0].tolist()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"top": 0}, "top must be at least 1"),
        ({"top": 4}, "top must be at most 3"),
        ({"top": 2.0}, "whole number"),
        ({"top": 2, "target": 1}, "top and target exclude each other"),
        ({"top": 2, "sparsity": [0.1, 0.2]}, "sparsity must be one number where top is given"),
        ({"weights": "random"}, "weights must be left out where the model is not a name"),
        ({"against": "doog"}, "against must be .* Did you mean 'dog'"),
        ({"against": 1, "target": "dog"}, "against must be another class"),
        ({"image": "https://example.org/a.png"}, "save the file first"),
    ],
)
def test_wrong_classes_and_sources_are_refused(network, picture, given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        explain(network, **{"image": picture, "budget": 32} | given)


def test_weights_and_labels_reach_a_model_that_is_loaded_by_name(picture, tmp_path):
    names = [f"class {index}" for index in range(10)]
    found = explain("resnet18_softplus", picture, "gradient", weights="random", labels=names, target="class 7")
    assert found.target.tolist() == [7]


def test_a_contrast_explains_the_difference_of_two_scores(network, picture):
    """Of a linear network: the difference of two rows of its weights."""
    wanted = weights_of(network, 2) - weights_of(network, 0)
    torch.testing.assert_close(explain(network, picture, "gradient", target="bird", against="cat").map, wanted)
    found = explain(network, picture, target=2, against=0, noise_level=0, eta=0.05, rho=2.0)
    thresholded = wanted.sign() * (wanted.abs() - 0.05).clamp_min(0)
    torch.testing.assert_close(found.map, thresholded, atol=1e-5, rtol=0)
    assert found.options["score"] == "Contrast(against=0, kind='logit')"
    record, refused = explainer_of(network, "gradient", score=Contrast(0))([("a", picture), ("b", picture)], [2, 0])
    torch.testing.assert_close(record.explanation.map, wanted)
    assert "against must be another class" in refused.error


def test_the_predicted_class_is_contrasted_too(network, picture):
    first, second, _ = network(network.preprocess(picture)[None]).argsort(dim=1, descending=True)[0].tolist()
    found = explain(network, picture, "gradient", against=second)
    assert found.target.tolist() == [first]
    torch.testing.assert_close(found.map, weights_of(network, first) - weights_of(network, second))
    with pytest.raises(ValueError, match="against must be another class"):
        explain(network, picture, "gradient", against=first)


def test_top_classes_of_a_network_that_returns_a_tuple(network, picture):
    x = network.preprocess(picture)[None]
    found = explain(lambda x: (None, network(x)), x, "gradient", top=2, output=1)
    assert [each.target.tolist() for each in found] == network(x).argsort(dim=1, descending=True).T[:2].tolist()


def test_ranking_classes_checks_the_network_first_and_leaves_the_random_state():
    class Drawing(torch.nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :4] + 1e-6 * torch.rand(1)

    x = torch.rand(2, 3, 4, 4)
    before = torch.get_rng_state()
    explain(Drawing().eval(), x, "gradient", top=2)
    assert torch.equal(torch.get_rng_state(), before)
    net = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Flatten())
    with pytest.raises(ValueError, match="eval"):
        explain(net, x, "gradient", top=2)
    assert not net[0].running_mean.any()


def test_a_class_counted_from_the_end_is_the_same_class(network, picture):
    with pytest.raises(ValueError, match="against must be another class"):
        explain(network, picture, "gradient", target=1, against=-2)
    with pytest.raises(TypeError, match="against must be"):
        explain(network, picture, "gradient", target=1, against=1.5)

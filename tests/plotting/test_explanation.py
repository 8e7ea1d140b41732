"""Explanations that draw themselves: every kind of input, whole photos, pictures given by hand, and refusals."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from small_network import SIZE, Linear

import moreaugrad as mg
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.results import Explanation
from moreaugrad.source import InputSource

WORDS = ["the", "$5", "<b>cat</b>", "sat", "on", "a", "mat"]
KINDS = {  # shape of one input, options of show, whether the input itself is drawn
    "grey": ((1, 6, 9), {}, True),
    "two channels": ((2, 6, 9), {}, True),
    "colour": ((3, 6, 9), {}, True),
    "four channels": ((4, 6, 9), {}, True),
    "twelve channels": ((12, 6, 9), {}, True),
    "row": ((7,), {}, False),
    "named row": ((7,), {"names": WORDS}, True),
    "embeddings": ((7, 5), {}, False),
    "tokens": ((7, 5), {"names": WORDS}, False),
    "token scores": ((7,), {"names": WORDS, "kind": "tokens"}, False),
    "wave": ((1, 200), {}, True),
    "stereo": ((2, 200), {}, True),
    "leads": ((12, 200), {"kind": "signal"}, True),
    "film": ((3, 12, 6, 9), {}, True),
    "volume": ((1, 4, 6, 9), {}, True),
}


@pytest.mark.parametrize("signed", [False, True])
def test_a_map_that_is_never_negative_has_colours_and_a_legend_for_one_sign(signed):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Softplus(), torch.nn.Flatten(), torch.nn.Linear(784, 3)
    )
    x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    options = {"rho": 0, "budget": 32, "sparsity": 0.3}
    made = {name: mg.SparseMoreauGrad(net.eval(), statistic=name, **options) for name in ("mean", "rms", "votes")}
    made["geometric"] = mg.GroupSparseMoreauGrad(net, groups=4, statistic="geometric", **options)
    made["sparsified"] = mg.SparsifiedSmoothGrad(net, samples=32)
    for name, method in made.items():
        figure = method.explain(x, 1).show(signed=signed)
        shown, bar = figure.axes[1].images[0], figure.axes[-1]
        low, high = shown.get_clim()
        assert high > 0
        assert low == (-high if signed and name == "mean" else 0)
        assert bar.get_ylabel().startswith("|map|" if not signed and name == "mean" else "map,")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def explained(map: torch.Tensor, x: torch.Tensor | None = None, **fields: object) -> Explanation:
    source = None if x is None else InputSource(inputs=(x,))
    return Explanation(map=map, method="moreau", source=source, **fields)


def pixels(figure) -> np.ndarray:
    stored = BytesIO()
    figure.savefig(stored, format="png", dpi=50)
    return np.asarray(Image.open(stored).convert("RGB")).astype(int)


def titles(figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def pictures_in(figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("shape", "options", "shows_input"), KINDS.values(), ids=KINDS.keys())
def test_every_kind_shows_its_map_and_its_input(shape, options, shows_input, signed):
    first = torch.zeros(1, *shape)
    second = first.clone()
    first.view(-1)[1], second.view(-1)[-1] = 1.0, 1.0
    x = random(1, *shape)
    shown = pixels(explained(first, x).show(signed=signed, **options))
    assert (shown != pixels(explained(second, x).show(signed=signed, **options))).any()
    other = pixels(explained(first, random(1, *shape, seed=1)).show(signed=signed, **options))
    assert (shown.shape != other.shape or (shown != other).any()) == shows_input
    assert pixels(explained(first).show(signed=signed, **options)).std() > 5


@pytest.mark.parametrize(("shape", "options", "_"), KINDS.values(), ids=KINDS.keys())
def test_every_kind_is_drawn_again_from_its_file(tmp_path, shape, options, _):
    found = explained(random(2, *shape, seed=2), random(2, *shape), target=[3, 4])
    loaded = Explanation.load(found.save(tmp_path / "a"))
    before, after = (each.show(index=1, **options) for each in (found, loaded))
    if len(shape) > 2:  # pictures are stored in 8 bits
        tiles = zip(pictures_in(before), pictures_in(after), strict=True)
        assert all(np.abs(one.astype(float) - other).max() <= 1.01 for one, other in tiles)
        assert np.abs(pictures_in(before)[0] - pictures_in(after)[0]).max() <= 1 / 255
    else:
        assert np.array_equal(pixels(before), pixels(after))


@pytest.mark.parametrize(("shape", "options", "_"), KINDS.values(), ids=KINDS.keys())
def test_a_map_of_zeros_can_be_drawn(shape, options, _):
    with pytest.warns(UserWarning, match="all zero"):
        pixels(explained(torch.zeros(1, *shape), random(1, *shape)).show(**options))


def test_bars_have_names_and_the_largest_of_many_come_first():
    values = random(1, 100)
    names = [f"column {i}" for i in range(100)]
    (axes,) = explained(values).show(names=names, signed=True).axes
    order = values[0].abs().argsort(descending=True)[: len(axes.patches)].tolist()
    assert [text.get_text() for text in axes.get_yticklabels()] == [names[i] for i in order]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(values[0, order].tolist())
    (axes,) = explained(values[:, :3], values[:, :3] + 1).show(names=["a", "b", "$c$"]).axes
    texts = [text.get_text() for text in axes.get_yticklabels()]
    assert texts[2] == f"$c$ = {float(values[0, 2]) + 1:.4g}"


def test_the_token_that_counts_has_the_darkest_ground_and_text_is_escaped():
    map = torch.full((1, 7, 5), 0.1)
    map[0, 3] = 1
    figure = explained(map).show(names=WORDS)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == WORDS
    brightness = [sum(patch.get_facecolor()[:3]) for patch in axes.patches]
    assert int(np.argmin(brightness)) == 3
    assert "&lt;b&gt;cat&lt;/b&gt;" in figure.html
    assert "<b>" not in figure.html


def test_a_single_sample_of_a_long_wave_is_not_lost():
    map = torch.zeros(1, 1, 50_000)
    map[0, 0, 31_234] = -2
    wave, steps = explained(map, random(1, 1, 50_000)).show(signed=True).axes
    _, below = steps.patches
    data = below.get_data()
    place = int(np.argmin(data.values))
    assert data.values[place] == -2
    assert data.edges[place] <= 31_234 <= data.edges[place + 1]
    assert (wave.images[0].get_array() == -1).sum() == 1
    assert len(wave.lines[0].get_ydata()) == 50_000


def test_of_a_long_film_the_frames_with_most_of_the_map_are_shown():
    map = torch.zeros(1, 3, 30, 4, 5)
    heavy = [1, 2, 5, 11, 17, 18, 25, 29]
    map[:, :, heavy] = 1
    figure = explained(map, torch.rand(1, 3, 30, 4, 5)).show()
    assert titles(figure) == [f"frame {i}" for i in heavy]
    assert "8 of 30" in figure.get_supxlabel()
    maps = [tile for tile in pictures_in(figure) if tile.ndim == 2]
    assert len(maps) == 8
    assert all((tile == 3).all() for tile in maps)


def test_several_inputs_have_a_panel_each():
    maps = (random(2, 3, 6, 9), random(2, 4), random(2, 1, 50))
    found = Explanation(map=maps, source=InputSource(inputs=tuple(map + 1 for map in maps)))
    figure = found.show(index=1, names=[None, list("abcd"), None])
    assert len(figure.subfigs) == 3
    assert titles(figure.subfigs[0]) == ["input", "map", "overlay"]
    labels = [text.get_text() for text in figure.subfigs[1].axes[0].get_yticklabels()]
    assert labels[0] == f"a = {float(maps[1][1, 0]) + 1:.4g}"
    assert len(figure.subfigs[2].axes) == 2
    pixels(figure)
    with pytest.raises(ValueError, match=r"one entry .* for each of 3 inputs"):
        found.show(names=list("abcd"))


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((1, 4), {"names": ["a", "b"]}, "one for each position, 4, got 2"),
        ((1, 4), {"names": "abcd"}, "list of text"),
        ((1, 4), {"names": [1, 2, 3, 4]}, "list of text"),
        ((1, 3, 4, 4), {"names": ["a", "b", "c"]}, "names belong to"),
        ((1, 1, 4), {"names": list("abcd"), "kind": "signal"}, "names belong to"),
        ((1, 4), {"kind": "image"}, "cannot be drawn as image"),
        ((1, 4), {"kind": "picture"}, "kind must be one of"),
        ((1, 4), {"image": np.zeros((4, 4, 3))}, r"needs a map of pixels"),
        ((1, 4), {"whole": True}, r"needs a map of pixels"),
        ((1, 3, 4, 4), {"whole": True}, "mg.explain"),
        ((1, 3, 4, 4), {"image": Image.new("RGB", (9, 5))}, "4 x 4 pixels, got 9 x 5"),
        ((1, 3, 4, 4), {"image": np.zeros((9, 5, 3))}, r"height and width of its map, \(4, 4\), got \(9, 5\)"),
        ((1, 3, 4, 4), {"image": "nowhere.png"}, "nothing there"),
        ((1, 3, 4, 4), {"path": np.zeros((4, 4, 3))}, "image="),
        ((1, 3, 4, 4), {"index": 1}, "one of 1 images"),
    ],
)
def test_what_cannot_be_drawn_is_refused(shape, options, words):
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        explained(torch.rand(shape)).show(**options)


@pytest.fixture
def classifier() -> Classifier:
    view = CentreCrop((SIZE, SIZE), (10, 10), (0.5, 0.4, 0.3), (0.25, 0.2, 0.3))
    return Classifier(Linear().eval(), view, "linear", Linear.labels)


@pytest.fixture
def photo(tmp_path):
    file = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(file)
    return file


def test_a_photo_is_drawn_as_the_model_saw_it_under_the_name_of_its_class(classifier, photo):
    found = mg.explain(classifier, photo, "gradient", target=1)
    figure = found.show()
    assert titles(figure)[:3] == ["input", "map", "overlay"]
    assert "dog (class 1)" in figure.get_suptitle()
    seen = np.asarray(classifier.crop(Image.open(photo)))
    assert np.array_equal(np.rint(255 * pictures_in(figure)[0]), seen)
    assert "dog (class 1)" in repr(found)


def test_a_tensor_is_drawn_through_the_box_of_the_model(classifier, photo):
    x = classifier.preprocess(Image.open(photo))[None]
    for found in (mg.explain(classifier, x, "gradient"), mg.Gradient(classifier).explain(x)):
        seen = np.asarray(classifier.crop(Image.open(photo)))
        assert np.abs(255 * pictures_in(found.show())[0] - seen).max() < 1e-3


def test_the_whole_photo_lies_under_the_map_where_the_model_saw_it(classifier, photo):
    found = mg.explain(classifier, str(photo), "gradient")
    figure = found.show(whole=True)
    original = np.asarray(Image.open(photo))
    assert np.array_equal(np.rint(255 * pictures_in(figure)[0]), original)
    # 40 x 60 becomes 10 x 15; of its height 8 are seen from 1, of its width 8 from round(3.5) = 4
    overlay = figure.axes[2].images[1]
    assert np.allclose(overlay.get_extent(), np.array([16, 48, 36, 4]) - 0.5)
    assert overlay.get_array().shape == (SIZE, SIZE, 4)
    assert figure.axes[2].get_xlim() == (-0.5, 59.5)


@pytest.mark.parametrize("given", ["path", "PIL", "array"])
def test_a_photo_can_be_given_to_a_result_that_does_not_hold_it(classifier, photo, tmp_path, given):
    """A file, or a picture of any size that the model's preprocessing can cut."""
    original = Image.open(photo)
    image = {"path": str(photo), "PIL": original, "array": np.asarray(classifier.crop(original))}[given]
    found = mg.Gradient(classifier).explain(torch.zeros(1, 3, SIZE, SIZE))
    seen = np.asarray(classifier.crop(original))
    assert np.array_equal(np.rint(255 * pictures_in(found.show(image=image))[0]), seen)
    if given != "array":
        assert found.show(image=image, whole=True).axes[2].images[1].get_extent()[0] == 15.5


def test_a_stored_result_still_knows_what_was_seen_of_a_photo(classifier, photo, tmp_path):
    found = mg.explain(classifier, photo, "gradient", target=2)
    loaded = Explanation.load(found.save(tmp_path / "a"))
    assert np.array_equal(*(np.rint(255 * pictures_in(each.show())[0]) for each in (found, loaded)))
    assert "bird (class 2)" in loaded.show().get_suptitle()
    assert loaded.show(image=photo, whole=True).axes[2].images[1].get_extent()[0] == 15.5
    with pytest.raises(ValueError, match="whole=True needs the photo"):
        loaded.show(whole=True)


def test_a_photo_that_changed_meanwhile_is_noticed(classifier, photo):
    found = mg.explain(classifier, photo, "gradient")
    Image.new("RGB", (3, 3)).save(photo)
    found.show()  # as it was
    with pytest.raises(ValueError, match=r"must be the photo that was explained, \(60, 40\), got one of \(3, 3\)"):
        found.show(whole=True)


def test_a_function_of_the_user_does_not_tell_what_it_cuts_off(photo):
    found = mg.explain(Linear().eval(), photo, "gradient")
    assert titles(found.show())[:3] == ["input", "map", "overlay"]
    with pytest.raises(ValueError, match="the part of it that the model saw"):
        found.show(whole=True)


def test_a_batch_is_shown_with_the_name_of_each_image(classifier, photo):
    found = mg.explain(classifier, [photo, Image.new("RGB", (9, 9))], "gradient", target=[0, 2])
    figure = found._draw_batch()
    assert titles(figure) == ["cat (class 0)", "bird (class 2)"]
    assert (pictures_in(figure)[0] != pictures_in(replace(found, source=None)._draw_batch())[0].max()).any()
    assert found._repr_png_().startswith(b"\x89PNG")
    assert mg.Explanation(map=random(3, 4))._repr_png_().startswith(b"\x89PNG")

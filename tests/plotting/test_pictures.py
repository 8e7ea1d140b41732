"""Pictures: the arithmetic of scales and overlays in closed form, and every odd map and image that may come."""

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from PIL import Image

from moreaugrad.plotting import pictures
from moreaugrad.results import Explanation

PHOTO = np.linspace(0, 1, 8 * 10 * 3).reshape(8, 10, 3)
ALL_ZERO = "map is all zero: eta is above every gradient entry; lower it or use sparsity="


def ramp() -> torch.Tensor:
    """0, 1, ..., 100 in one row: the 99th percentile is 99."""
    return torch.arange(101.0).reshape(1, 1, 101)


def sparse(kept: int, size: int = 100) -> torch.Tensor:
    """The numbers 1, ..., kept, and zeros."""
    drawing = torch.zeros(size * size)
    drawing[:kept] = torch.arange(1.0, kept + 1)
    return drawing.reshape(1, size, size)


def drawn(seed: int = 0, channels: int = 3) -> torch.Tensor:
    return torch.randn(channels, 8, 10, generator=torch.Generator().manual_seed(seed))


def overlay(image, drawing: torch.Tensor, signed: bool = False) -> np.ndarray:
    return pictures.overlay(pictures.read_photo(image), pictures.scale_map(drawing, signed))


def pixels(figure) -> np.ndarray:
    stored = BytesIO()
    figure.savefig(stored, format="png")
    return np.asarray(Image.open(stored).convert("RGB"))


def map_tiles(figure) -> list:
    """The tiles that show numbers, not colours."""
    return [image for axes in figure.axes for image in axes.images if image.get_array().ndim == 2]


def test_heat_is_linear_up_to_the_99th_percentile():
    found = pictures.heat(ramp())
    assert found.shape == (1, 101)
    assert np.allclose(found, np.minimum(np.arange(101) / 99, 1)[None], atol=1e-15)


def test_heat_sums_absolute_channels_before_scaling():
    drawing = torch.tensor([1.0, -2.0, 3.0])[:, None, None] * ramp()
    assert np.allclose(pictures.heat(drawing), pictures.heat(ramp()))
    assert np.allclose(pictures.scale_map(drawing).values, 6 * np.arange(101))


@pytest.mark.parametrize("size", [1e-300, 1e-12, 1.0, 1e12])
def test_heat_does_not_depend_on_the_units(size):
    assert np.allclose(pictures.heat(size * ramp().double()), pictures.heat(ramp()))


@pytest.mark.parametrize(("kept", "top"), [(1, 1.0), (11, 10.0), (51, 46.0), (101, 91.0)])
def test_a_very_sparse_map_is_scaled_by_what_it_keeps(kept, top):
    """At most 1 % of 10,000 pixels is kept: their own 90th percentile, 1 + 0.9 (kept - 1)."""
    found = pictures.heat(sparse(kept)).ravel()
    assert np.allclose(found[:kept], np.minimum(np.arange(1, kept + 1) / top, 1))
    assert not found[kept:].any()


@pytest.mark.parametrize("kept", [30, 150, 500, 1500, 10_000])
def test_a_map_of_any_density_is_neither_blank_nor_saturated(kept):
    found = pictures.heat(sparse(kept))
    shown = found[found > 0]
    assert shown.size == kept
    assert 0 < (shown == 1).mean() <= 0.1 + 1 / kept


def test_signed_heat_is_symmetric_about_zero():
    drawing = drawn()
    found = pictures.heat(drawing, signed=True)
    sums = drawing.sum(0).double().numpy()
    assert np.allclose(found, np.clip(sums / np.percentile(np.abs(sums), 99), -1, 1), atol=1e-6)
    assert np.array_equal(pictures.heat(-drawing, signed=True), -found)


@pytest.mark.parametrize("signed", [False, True])
def test_a_map_of_zeros_is_blank_and_warns(signed):
    with pytest.warns(UserWarning, match=ALL_ZERO) as caught:
        found = pictures.heat(torch.zeros(3, 8, 10), signed=signed)
    assert len(caught) == 1
    assert not found.any()


def test_channels_that_cancel_are_no_map_of_zeros():
    drawing = torch.stack([drawn(channels=1)[0], -drawn(channels=1)[0]])
    assert pictures.heat(drawing).max() == 1
    with pytest.warns(UserWarning, match="cancel"):
        assert not pictures.heat(drawing, signed=True).any()


def test_numbers_that_are_not_finite_are_drawn_as_zero_with_a_warning():
    drawing = ramp()
    drawing[0, 0, :2] = torch.tensor([float("nan"), float("inf")])
    with pytest.warns(UserWarning, match="NaN or infinity in 2 of 101 entries") as caught:
        found = pictures.heat(drawing)
    assert len(caught) == 1
    assert not found[0, :2].any()
    assert found[0, 2] == pytest.approx(2 / 99)


@pytest.mark.parametrize(
    "convert",
    [
        lambda drawing: drawing.numpy(),
        lambda drawing: drawing.half(),
        lambda drawing: drawing.bfloat16(),
        lambda drawing: drawing.clone().requires_grad_(),
        lambda drawing: drawing[0],
    ],
    ids=["numpy", "half", "bfloat16", "requires_grad", "plane"],
)
def test_heat_takes_maps_of_every_kind(convert):
    assert np.array_equal(pictures.heat(convert(ramp())), pictures.heat(ramp()))


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (5,), (3, 0, 4)])
def test_what_is_no_map_is_refused(shape):
    with pytest.raises(ValueError, match="a map must"):
        pictures.heat(torch.ones(shape))


def test_every_form_of_a_photo_gives_the_same_picture():
    photo = np.rint(PHOTO * 255).astype(np.uint8)
    chw = torch.from_numpy(photo).permute(2, 0, 1)
    forms = [photo, photo / 255, Image.fromarray(photo), chw, chw / 255, photo.transpose(2, 0, 1)]
    first, *others = [overlay(form, drawn()) for form in forms]
    assert all(np.array_equal(first, other) for other in others)


def test_grey_photos_in_every_form():
    grey = np.rint(PHOTO[..., 0] * 255).astype(np.uint8)
    wanted = overlay(np.repeat(grey[..., None], 3, 2), drawn())
    for form in (grey, grey[..., None], Image.fromarray(grey), torch.from_numpy(grey)[None]):
        assert np.array_equal(overlay(form, drawn()), wanted)


def test_a_normalised_tensor_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got values from -2 .*x \* std \+ mean"):
        overlay(torch.linspace(-2, 2, 240).reshape(3, 8, 10), drawn())


def test_a_photo_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"height and width of its map, \(8, 10\), got \(8, 9\)"):
        pictures.panel(PHOTO[:, :9], drawn())


def test_an_overlay_is_the_grey_photo_where_the_map_is_zero_and_colour_where_it_is_full():
    drawing = torch.zeros(3, 8, 10)
    drawing[:, 2, 3] = 1
    before = drawing.clone()
    found = overlay(PHOTO, drawing)
    assert torch.equal(drawing, before)
    assert np.array_equal(found[2, 3], np.rint(255 * np.array(colormaps["inferno"](1.0)[:3])))
    grey = np.rint(127.5 * (PHOTO @ [0.299, 0.587, 0.114]))
    rest = np.ones((8, 10), bool)
    rest[2, 3] = False
    assert np.abs(found - grey[..., None])[rest].max() <= 1


def test_the_smallest_kept_pixel_is_visible_in_an_overlay():
    drawing = torch.zeros(1, 8, 10)
    drawing[0, 2, 3:5] = torch.tensor([1.0, 0.05])
    found = overlay(np.zeros((8, 10, 3)), drawing)
    assert not found[0, 0].any()
    assert found[2, 4].max() > 10


def test_a_signed_overlay_is_red_above_zero_and_blue_below():
    drawing = torch.zeros(1, 8, 10)
    drawing[0, 0, :2] = torch.tensor([1.0, -1.0])
    found = overlay(np.ones((8, 10, 3)), drawing, signed=True).astype(int)
    assert found[0, 0, 0] > found[0, 0, 2] + 50
    assert found[0, 1, 2] > found[0, 1, 0] + 50
    assert np.ptp(found[4, 4]) <= 1


def test_a_panel_shows_the_map_in_its_own_units():
    drawing = 0.01 * drawn()
    figure = pictures.panel(PHOTO, drawing, "moreau", signed=False)
    assert [axes.get_title() for axes in figure.axes[:3]] == ["input", "map", "overlay"]
    assert figure.get_suptitle() == "moreau"
    (tile,) = map_tiles(figure)
    assert np.allclose(tile.get_array(), drawing.abs().sum(0))
    assert tile.get_clim() == (0, pictures.scale_map(drawing).top)
    assert figure.axes[3].get_ylim() == pytest.approx(tile.get_clim())  # the colour bar
    assert pixels(figure).std() > 10


def test_a_signed_panel_is_symmetric_about_zero_and_a_notebook_shows_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = pictures.panel(PHOTO, drawn(), "a", signed=True)
        assert figure._repr_png_().startswith(b"\x89PNG")
    (tile,) = map_tiles(figure)
    low, high = tile.get_clim()
    assert low == -high < 0
    assert tile.get_cmap().name == "RdBu_r"


def test_a_panel_of_zeros_is_blank_and_warns_once():
    with pytest.warns(UserWarning, match=ALL_ZERO) as caught:
        figure = pictures.panel(PHOTO, torch.zeros(3, 8, 10), "zero")
    assert len(caught) == 1
    assert len(figure.axes) == 3  # no colour bar: there are no units to show
    assert figure.axes[1].get_title() == "map (all zero)"
    (tile,) = map_tiles(figure)
    assert not tile.get_array().any()
    pixels(figure)


def test_tiles_have_their_own_scale_and_the_caption_says_so():
    figure = pictures.grid([("photo", PHOTO), ("one", drawn()), ("ten", 10 * drawn())], columns=2)
    one, ten = map_tiles(figure)
    assert one.get_clim()[1] == pytest.approx(ten.get_clim()[1] / 10)
    assert "own scale" in figure.get_supxlabel()
    assert [axes.get_title() for axes in figure.axes] == ["photo", "one", "ten", ""]


def test_a_grid_copes_with_a_map_of_zeros_and_with_photos_alone():
    with pytest.warns(UserWarning, match=ALL_ZERO):
        figure = pictures.grid([("zero", torch.zeros(3, 8, 10)), ("map", drawn())])
    assert figure.axes[0].get_title() == "zero (all zero)"
    pixels(figure)
    assert not pictures.grid([("photo", PHOTO)]).get_supxlabel()
    with pytest.raises(ValueError, match="number of tiles must be at least 1"):
        pictures.grid([])


def test_no_pixel_of_a_large_sparse_map_vanishes():
    """One pixel of 700 x 700 in full colour still is bright in the picture."""
    drawing = torch.zeros(1, 700, 700)
    drawing[0, 350, 351] = 1
    shown = pixels(pictures.panel(None, drawing)).astype(int)
    inside = shown[shown.shape[0] // 4 : 3 * shown.shape[0] // 4, 20 : shown.shape[1] // 2 + 20]
    assert inside.sum(-1).max() > 150


def test_a_written_picture_is_whole_or_absent(tmp_path: Path, monkeypatch):
    figure = pictures.panel(PHOTO, drawn())
    path = pictures.write(figure, tmp_path / "a")
    assert path == tmp_path / "a.png"
    with Image.open(path) as stored:
        assert stored.size == tuple(np.rint(figure.get_size_inches() * 100).astype(int))
    before = path.read_bytes()

    def broken(draft, path):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="No space left"):
        pictures.write(figure, path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]


def test_show_draws_the_chosen_image_of_a_batch():
    batch = torch.stack([drawn(0), drawn(1)])
    result = Explanation(map=batch, target=[4, 5], method="moreau")
    figure = result.show(image=PHOTO, index=1)
    (tile,) = map_tiles(figure)
    assert np.allclose(tile.get_array(), drawn(1).abs().sum(0))
    assert "target 5" in figure.get_suptitle()
    assert len(result.show().axes) == 2  # the map and its colour bar
    photos = torch.rand(2, 3, 8, 10)
    shown = result.show(image=photos, index=-1).axes[0].images[0].get_array()
    assert np.allclose(shown, photos[1].permute(1, 2, 0))


def test_show_draws_rows_without_names_as_steps():
    row = torch.tensor([[1.0, -3.0]])
    above, _ = Explanation(map=row).show().axes[0].patches
    assert above.get_data().values.tolist() == [1, 3]
    above, below = Explanation(map=row).show(signed=True).axes[0].patches
    assert (above.get_data().values.tolist(), below.get_data().values.tolist()) == ([1, 0], [0, -3])
    above, _ = Explanation(map=torch.ones(1, 4, 6)).show().axes[0].patches
    assert above.get_data().values.tolist() == [6, 6, 6, 6]
    assert map_tiles(Explanation(map=(drawn()[None],)).show())


def test_captum_draws_our_maps_too():
    from captum.attr import visualization

    attributions = drawn().permute(1, 2, 0).numpy()
    figure, _ = visualization.visualize_image_attr(attributions, PHOTO, "blended_heat_map", "all", use_pyplot=False)
    assert figure.axes
    figure, _ = visualization.visualize_image_attr(pictures.heat(drawn())[..., None], sign="positive", use_pyplot=False)
    assert figure.axes

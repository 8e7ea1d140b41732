"""Which part of a photo a network sees: read off a picture whose colours are its coordinates."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from moreaugrad.models.classifier import CentreCrop, Classifier, FunctionView
from moreaugrad.models.units import in_pixels

VIEWS = {
    "cover": CentreCrop((40, 40), (50, 50), filter=Image.Resampling.BILINEAR),
    "cover a long box": CentreCrop((40, 60), (50, 66), filter=Image.Resampling.BILINEAR),
    "no cut": CentreCrop((50, 50), (50, 50), filter=Image.Resampling.BILINEAR),
    "squash": CentreCrop((40, 48), (50, 60), fit="squash", filter=Image.Resampling.BILINEAR),
    "contain": CentreCrop((50, 50), (50, 50), fit="contain", filter=Image.Resampling.BILINEAR),
    "wider than the box": CentreCrop((60, 60), (50, 50), filter=Image.Resampling.BILINEAR),
}


def test_a_very_long_picture_is_cut_before_it_is_resized():
    """As where it is resized whole, to the rounding of pixels; and a whole one would have 25 gigapixels."""
    chance = np.random.default_rng(0)
    for size in ((3000, 40), (40, 3000)):
        picture = Image.fromarray(chance.integers(0, 255, (*size[::-1], 3), dtype=np.uint8))
        view = CentreCrop((24, 24), (32, 32))
        whole = picture.resize(view._scaled_size(*size), view.filter)
        left, top = ((wide - 24) // 2 for wide in whole.size)
        cut = np.asarray(whole.crop((left, top, left + 24, top + 24))).astype(int)
        assert np.abs(np.asarray(view.apply(picture)[1]).astype(int) - cut).max() <= 1
    assert CentreCrop().apply(Image.new("RGB", (200_000, 2), "red"))[0].shape == (3, 224, 224)


@pytest.mark.parametrize("size", [(200, 120), (90, 210), (50, 50), (33, 47), (201, 119)])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_the_region_is_where_the_pixels_of_the_crop_come_from(view, size):
    """The colours are the coordinates, so that those of the crop tell where it lies; resizing keeps a ramp a ramp."""
    wide, high = size
    across, down = np.meshgrid(np.arange(wide), np.arange(high))
    crop = np.asarray(view.apply(Image.fromarray(np.dstack([across, down, 255 + 0 * down]).astype(np.uint8)))[1])
    left, top, right, bottom = view.region(size)
    for axis, (start, end) in enumerate([(left, right), (top, bottom)]):
        count = crop.shape[1 - axis]
        wanted = start + (end - start) * (np.arange(count) + 0.5) / count - 0.5  # centres of pixels
        found = crop[crop.shape[0] // 2, :, 0] if axis == 0 else crop[:, crop.shape[1] // 2, 1]
        blur = 1 + (end - start) / count  # of the filter at the edges
        inside = (wanted > blur) & (wanted < size[axis] - 1 - blur)
        assert inside.sum() > 10
        assert np.abs(found[inside] - wanted[inside]).max() <= 1.01  # rounded to 8 bits, twice


def test_other_views_pass_it_on_or_do_not_know_it():
    from small_network import Linear

    view = VIEWS["cover"]
    pixels = in_pixels(Classifier(Linear().eval(), view, "linear"))
    assert pixels.view.region((200, 120)) == view.region((200, 120))
    assert FunctionView(lambda picture: None, (4, 4), (0.0,), (1.0,)).region((200, 120)) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"network": None}, "network must be a torch.nn.Module"),
        ({"view": None}, "view must prepare pictures"),
        ({"labels": 3}, "labels must be a list"),
        ({"labels": "cat"}, "labels must be a list"),
        ({"labels": torch.tensor(0.5)}, "labels must be a list"),
    ],
    ids=str,
)
def test_what_a_classifier_is_made_of(options, says):
    given = {"network": nn.Identity(), "view": CentreCrop(size=(4, 4)), "name": "tiny"} | options
    with pytest.raises(TypeError, match=says):
        Classifier(**given)

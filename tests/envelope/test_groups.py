"""Every form in which groups can be given, against the labels of all entries that it stands for."""

import math

import pytest
import torch
from oracles import soft_groups

import moreaugrad as mg
from moreaugrad.envelope.groups import label_groups
from moreaugrad.methods import base

N = 2
PICTURE, VIDEO, SOUND, TEXT, TABLE = (3, 4, 6), (1, 2, 4, 6), (1, 12), (5, 4), (6,)


def draw(*shape):
    """Labels in which every group has several entries and no two axes look alike."""
    return torch.randint(3, shape, generator=torch.Generator().manual_seed(math.prod(shape)))


FORMS = {  # the shape of an input, a label map, and its view as (images, ...)
    "picture, flat": (PICTURE, draw(72), (1, *PICTURE)),
    "picture (H, W)": (PICTURE, draw(4, 6), (1, 1, 4, 6)),
    "picture (1, H, W)": (PICTURE, draw(1, 4, 6), (1, 1, 4, 6)),
    "picture (C, H, W)": (PICTURE, draw(3, 4, 6), (1, *PICTURE)),
    "pictures (N, H, W)": (PICTURE, draw(N, 4, 6), (N, 1, 4, 6)),
    "pictures (N, 1, H, W)": (PICTURE, draw(N, 1, 4, 6), (N, 1, 4, 6)),
    "pictures (N, C, H, W)": (PICTURE, draw(N, *PICTURE), (N, *PICTURE)),
    "pictures, a list": (PICTURE, list(draw(N, 4, 6)), (N, 1, 4, 6)),
    "picture, an array": (PICTURE, draw(4, 6).numpy(), (1, 1, 4, 6)),
    "video (H, W)": (VIDEO, draw(4, 6), (1, 1, 1, 4, 6)),
    "video (C, T, H, W)": (VIDEO, draw(*VIDEO), (1, *VIDEO)),
    "videos (N, C, T, H, W)": (VIDEO, draw(N, *VIDEO), (N, *VIDEO)),
    "sound (T,)": (SOUND, draw(12), (1, *SOUND)),
    "sound (1, T)": (SOUND, draw(1, 12), (1, *SOUND)),
    "sounds (N, T)": (SOUND, draw(N, 12), (N, *SOUND)),
    "text (tokens,)": (TEXT, draw(5), (1, 5, 1)),
    "text (tokens, dim)": (TEXT, draw(*TEXT), (1, *TEXT)),
    "texts (N, tokens)": (TEXT, draw(N, 5), (N, 5, 1)),
    "texts (N, tokens, dim)": (TEXT, draw(N, *TEXT), (N, *TEXT)),
    "table (F,)": (TABLE, draw(6), (1, 6)),
    "tables (N, F)": (TABLE, draw(N, 6), (N, 6)),
}


def full(labels, view, shape):
    """The label of every entry of every image, flat."""
    given = torch.stack(labels) if isinstance(labels, list) else torch.as_tensor(labels)
    return given.reshape(view).expand(N, *shape).flatten(1)


def same_partition(found, wanted):
    """Whether two rows of labels name the same groups."""
    pairs = set(zip(found.tolist(), wanted.tolist(), strict=True))
    return len(pairs) == len(found.unique()) == len(wanted.unique())


@pytest.mark.parametrize("form", FORMS)
def test_a_label_map_is_spread_over_the_axes_that_it_leaves_out(form):
    shape, labels, view = FORMS[form]
    rows, counts = label_groups(labels, torch.zeros(N, *shape))
    wanted = full(labels, view, shape)
    assert counts == tuple(len(row.unique()) for row in wanted)[: len(rows)]
    for found, row in zip(rows.expand(N, -1), wanted, strict=True):
        assert same_partition(found, row)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [1, N])
def test_the_map_of_a_linear_score_is_its_gradient_thresholded_by_groups(form, block, monkeypatch):
    """Also where images are solved one by one, each with its own labels."""
    monkeypatch.setattr(base, "safe_block", lambda x: block)
    shape, labels, view = FORMS[form]
    random = torch.Generator().manual_seed(1)
    a, x = (torch.randn(rows, *shape, generator=random).double() for rows in (1, N))
    found = mg.GroupSparseMoreauGrad(
        lambda v: (a * v).flatten(1).sum(1), rho=0.3, eta=2.0, groups=labels, smoothing=None
    ).attribute(x)
    for row, own in zip(found, full(labels, view, shape), strict=True):
        torch.testing.assert_close(row.view(1, -1), soft_groups(a.view(1, -1), own, 2.0))


def test_each_input_has_groups_of_its_own():
    """Against flat labels of all entries; no group reaches from one input into another unless those say so."""
    picture, table = torch.zeros(N, *PICTURE), torch.zeros(N, *TABLE)
    plane, columns = draw(N, 4, 6), torch.tensor([0, 0, 1, 1, 2, 2])
    rows, counts = label_groups((plane, columns), (picture, table))
    wanted = torch.cat([full(plane, (N, 1, 4, 6), PICTURE), 3 + columns.expand(N, -1)], 1)
    assert counts == (6, 6)
    assert all(same_partition(*each) for each in zip(rows, wanted, strict=True))
    across = torch.cat([torch.zeros(72), torch.tensor([0, 0, 1, 1, 2, 2])]).long()
    assert label_groups(across, (picture, table))[1] == (3,)
    assert label_groups("channels", (picture, table))[1] == (3 + 6,)
    assert label_groups((2, "channels"), (picture, table))[1] == (4 + 6,)


def test_sparse_groups_of_two_inputs():
    random = torch.Generator().manual_seed(1)
    a, b = torch.randn(1, *PICTURE, generator=random), torch.randn(1, *TABLE, generator=random)
    plane, columns = draw(4, 6), torch.tensor([0, 0, 1, 1, 2, 2])
    method = mg.GroupSparseMoreauGrad(
        lambda v, w: (a * v).flatten(1).sum(1) + (b * w).sum(1), eta=2.0, groups=(plane, columns), smoothing=None
    )
    found = method.attribute((torch.zeros(N, *PICTURE), torch.zeros(N, *TABLE)))
    for part, slope, labels in zip(found, (a, b), (full(plane, (1, 1, 4, 6), PICTURE)[0], columns), strict=True):
        wanted = soft_groups(slope.flatten(1), labels, 2.0).expand(N, -1)
        torch.testing.assert_close(part.flatten(1), wanted, atol=1e-5, rtol=1e-5)


def test_a_number_of_cells_divides_the_last_axes():
    rows, counts = label_groups(4, torch.zeros(N, *SOUND))
    assert counts == (4,)
    assert rows[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    tubes, _ = label_groups(2, torch.zeros(N, *VIDEO))
    assert torch.equal(tubes.view(2, 4, 6)[0], tubes.view(2, 4, 6)[1])  # through all frames
    assert torch.equal(tubes.view(2, 4, 6)[0], label_groups(2, torch.zeros(N, *PICTURE))[0].view(3, 4, 6)[0])


def test_a_map_that_fits_in_two_ways_is_one_for_each_image_and_says_so(caplog):
    x, labels = torch.zeros(3, *PICTURE), draw(3, 4, 6)
    rows, _ = label_groups(labels, x)
    assert all(
        same_partition(row.view(PICTURE)[1].flatten(), own.flatten()) for row, own in zip(rows, labels, strict=True)
    )
    assert "write all axes" in caplog.text
    caplog.clear()
    assert len(label_groups(labels[None], x)[0]) == 1
    assert len(label_groups(labels[:, None], x)[0]) == 3
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("groups", "inputs", "words"),
    [
        (draw(4), (PICTURE,), r"cover the whole input.*got \(4,\)"),
        (draw(1), (PICTURE,), r"cover the whole input.*got \(1,\)"),
        (draw(3, 4, 6, 1), (PICTURE,), "cover the whole input"),
        (draw(N), (TABLE,), r"cover the whole input.*got \(2,\)"),
        (draw(71), (PICTURE, TABLE), "a tuple of 2"),
        ((draw(4, 6), draw(4)), (PICTURE, TABLE), r"got \(4,\)"),
        (4, (PICTURE, TABLE), r"label map of shape \(6,\)"),
        ("superpixels", (PICTURE, TABLE), "superpixels.*needs images"),
    ],
)
def test_what_does_not_fit_is_refused(groups, inputs, words):
    with pytest.raises(ValueError, match=words):
        label_groups(groups, tuple(torch.zeros(N, *shape) for shape in inputs))

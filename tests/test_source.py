"""What was explained: inputs as pictures, in closed form, and the names of classes."""

import numpy as np
import pytest
import torch

from moreaugrad.source import InputSource, to_rgb

BOX = (torch.tensor([-1.0, 0.0, 2.0]).view(3, 1, 1), torch.tensor([1.0, 4.0, 3.0]).view(3, 1, 1))


@pytest.mark.parametrize("axes", [(4, 5), (2, 4, 5)], ids=["image", "film"])
def test_the_box_of_a_model_undoes_its_normalisation(axes):
    low, high = (each.view(3, *[1] * len(axes)) for each in BOX)
    shown = torch.rand(3, *axes, generator=torch.Generator().manual_seed(0))
    found = to_rgb(low + (high - low) * shown, BOX)
    np.testing.assert_allclose(found, shown.movedim(0, -1), atol=1e-6)
    assert to_rgb(high + shown, BOX).max() == 1  # beyond the box it is clipped


@pytest.mark.parametrize(
    ("channels", "wanted"),
    [(1, [0, 0, 0]), (2, [0.5, 0.5, 0.5]), (3, [0, 1, 2]), (4, [0, 1, 2]), (6, [2.5, 2.5, 2.5])],
)
def test_channels_that_are_no_colours_are_shown_by_their_mean(channels, wanted):
    x = torch.arange(float(channels)).view(-1, 1, 1).expand(channels, 2, 2) / 10
    np.testing.assert_allclose(to_rgb(x), np.broadcast_to(np.array(wanted) / 10, (2, 2, 3)), atol=1e-7)


def test_without_a_box_values_are_shown_as_they_are_or_scaled_to_their_range():
    x = torch.tensor([[[-3.0, 1.0], [5.0, 3.0]]])
    np.testing.assert_allclose(to_rgb(x)[..., 0], [[0, 0.5], [1, 0.75]])
    np.testing.assert_allclose(to_rgb(x / 10 + 0.4)[..., 0], [[0.1, 0.5], [0.9, 0.7]], atol=1e-7)
    assert not to_rgb(torch.full((3, 2, 2), 7.0)).any()
    np.testing.assert_allclose(to_rgb(torch.tensor([[[0, 51], [102, 255]]]).byte())[..., 2], [[0, 0.2], [0.4, 1]])


def test_a_box_of_other_channels_does_not_apply():
    x = 3 * torch.rand(5, 2, 2)
    np.testing.assert_array_equal(to_rgb(x, BOX), to_rgb(x))


@pytest.mark.parametrize("labels", [["a", "b", "c"], ("a", "b", "c"), {0: "a", 1: "b", 2: "c"}])
def test_classes_have_names_where_there_are_any(labels):
    source = InputSource(inputs=(torch.zeros(1, 2),), labels=labels)
    assert [source.label(target) for target in (0, 2, 3, None, (1, 2), "b")] == ["a", "c", None, None, None, None]


def test_a_model_tells_what_it_knows_and_anything_else_is_ignored():
    class Model:
        labels = torch.zeros(3)
        box = 5
        view = torch.zeros(3).view

    x = torch.zeros(1, 2, requires_grad=True)
    source = InputSource.of((x,), Model())
    assert (source.labels, source.box, source.view, source.photos) == (None, None, None, ())
    assert source.inputs[0].data_ptr() == x.data_ptr()
    assert not source.inputs[0].requires_grad

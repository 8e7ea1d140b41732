"""What job.json says of a view is enough to make it again."""

import pytest
from PIL import Image
from torch import nn

from moreaugrad.api import Explainer
from moreaugrad.identity import describe_explainer, read_view
from moreaugrad.models.classifier import CentreCrop, Classifier, FunctionView

VIEWS = [
    CentreCrop(),
    CentreCrop((8, 6), (9, 7), (0.1,), (0.3,), Image.Resampling.NEAREST, "contain"),
    CentreCrop(filter=Image.Resampling.BILINEAR, fit="squash"),
]


def describe(view):
    return describe_explainer(Explainer(Classifier(nn.Flatten(), view, "net"), "gradient"))["view"]


@pytest.mark.parametrize("view", VIEWS, ids=["default", "contain", "squash"])
def test_a_view_is_read_from_its_description(view):
    assert read_view(describe(view)) == view


def test_a_function_of_the_user_is_not():
    view = FunctionView(lambda picture: CentreCrop().apply(picture)[0], (224, 224), (0.0,) * 3, (1.0,) * 3)
    assert read_view(describe(view)) is None


@pytest.mark.parametrize("told", ["0a1b2c", "00", "12", "print('ran')", "CentreCrop", "CentreCrop[0](size=1)"])
def test_what_describes_no_view_gives_none(told):
    assert read_view(told) is None

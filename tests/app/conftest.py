"""A server for the tests of a module, and what it shows."""

import numpy as np
import pytest
from page_server import make_studio, running
from PIL import Image

import moreaugrad as mg


@pytest.fixture(scope="session", autouse=True)
def _no_cache_of_the_user(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def network():
    return mg.load_model("lipschitz_cifar10")


@pytest.fixture(scope="session")
def picture():
    """An image of noise over a slope, so that classes differ."""
    noise = np.random.default_rng(0).integers(0, 60, (48, 64, 3)) + np.linspace(0, 190, 64)[None, :, None]
    return Image.fromarray(noise.astype(np.uint8))


@pytest.fixture(scope="module")
def client(network, picture):
    with running(make_studio({"lipschitz_cifar10": network}, picture)) as found:
        yield found

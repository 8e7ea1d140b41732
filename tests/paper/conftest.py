from functools import partial

import pytest
from paper_data import make_settings


@pytest.fixture
def settings_for(tmp_path):
    """Settings for small data below a folder of its own; options may be given."""
    return partial(make_settings, tmp_path)

"""The examples of docs/page.md, against a real server: in Python as they are, and in a shell."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from page_server import encode

import moreaugrad as mg

PAGE = (Path(__file__).parents[2] / "docs" / "page.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:7860"


@pytest.fixture
def folder(tmp_path, monkeypatch, picture):
    """The current folder, with the photo that the examples send."""
    (tmp_path / "cat.jpg").write_bytes(encode(picture, "JPEG"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_example_explains_a_photo(client, folder, capsys):
    pytest.importorskip("httpx", reason="needs httpx")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert ADDRESS in block
    exec(block.replace(ADDRESS, f"127.0.0.1:{client.port}"), {})
    said = capsys.readouterr().out
    assert "event: done" in said
    assert "known to within" in said.splitlines()[-1]


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_the_shell_example_fetches_a_map(client, folder, network):
    (block,) = (each for each in re.findall(r"```shell\n(.*?)```", PAGE, flags=re.DOTALL) if "curl" in each)
    script = block.replace(ADDRESS, f"127.0.0.1:{client.port}")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=True)
    assert "event: done" in done.stdout
    found = mg.Explanation.load(folder / "map.npz")
    wanted = mg.explain(network, folder / "cat.jpg", budget="fast")
    np.testing.assert_array_equal(found.map.numpy(), wanted.map.numpy())

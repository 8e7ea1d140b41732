"""Where figures appear: once in each notebook cell, in windows that pyplot opens, in files that destroy no photo."""

import json
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_network import Linear

import moreaugrad as mg
from moreaugrad.plotting import pictures
from moreaugrad.plotting.display import TILES, to_png
from moreaugrad.results import Explanation

BACKEND = """
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

shown = []

class Manager(FigureManagerBase):
    @classmethod
    def pyplot_show(cls, *, block=None):
        from matplotlib._pylab_helpers import Gcf
        shown.extend(manager.canvas.figure for manager in Gcf.get_all_fig_managers())

class FigureCanvas(FigureCanvasAgg):
    manager_class = Manager
"""
MAKE = """
import sys, torch
from moreaugrad.results import Explanation
torch.manual_seed(0)
found = Explanation(map=torch.rand(30, 3, 8, 8), method="moreau")
"""


def run_script(text: str, folder: Path, **environment: str) -> None:
    search = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    given = {**os.environ, "MPLBACKEND": "agg"} | environment
    subprocess.run([sys.executable, "-W", "error", "-c", search + MAKE + text], check=True, cwd=folder, env=given)


def test_a_window_opens_with_the_next_plt_show(tmp_path):
    (tmp_path / "windows.py").write_text(BACKEND)
    script = """
import matplotlib.pyplot as plt, windows
figures = [found.show(index=i) for i in range(3)]
found.show("stored.png")
plt.show()
assert windows.shown == figures
"""
    run_script(script, tmp_path, MPLBACKEND="module://windows")


def test_without_windows_pyplot_keeps_no_figure(tmp_path):
    script = """
import matplotlib.pyplot as plt
before = dict(plt.rcParams)
for each in found: each.show()
assert plt.get_fignums() == [] and dict(plt.rcParams) == before
"""
    run_script(script, tmp_path)


@pytest.mark.skipif(bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")), reason="there is a screen")
def test_windows_that_cannot_open_are_no_error(tmp_path):
    pytest.importorskip("tkinter")
    script = """
import matplotlib, matplotlib.pyplot as plt
matplotlib.rcParams["backend"] = "tkagg"
assert found.show().axes
"""
    run_script(script, tmp_path)


def test_matplotlib_waits_for_the_first_picture_and_pyplot_never_comes(tmp_path):
    script = """
assert "matplotlib" not in sys.modules
found.show("a.png")
found.show()
assert "matplotlib.figure" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    run_script(script, tmp_path)
    with Image.open(tmp_path / "a.png") as stored:
        assert min(stored.size) > 100


@pytest.mark.parametrize("name", ["photo.png", "photo.jpg"])
def test_the_photo_is_never_overwritten(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (20, 20), "red").save(name)
    before = Path(name).read_bytes()
    found = mg.explain(Linear().eval(), name, "gradient")
    paths = [name, tmp_path / name, Path("..") / tmp_path.name / name]
    for path in [*paths, "photo"] if name == "photo.png" else paths:  # the ending is added
        with pytest.raises(ValueError, match=r"show\(image="):
            found.show(path)
    assert Path(name).read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [name]


CELLS = {  # code -> the outputs it must give
    "found": ["image/png"],
    "found[0]": ["image/png"],
    "found.show()": ["image/png"],
    "found.show();": ["image/png"],
    "for each in found: each.show()": ["image/png"] * 2,
    "figure = found.show(index=1)": ["image/png"],
    "figure": ["image/png"],
    "found.show('a.png');": [],
    "words.show(names=['a', 'b'])": ["text/html"],
    "import matplotlib.pyplot as plt\nfound.show()": ["image/png"],
    "for each in found: each.show(); plt.show()": ["image/png"] * 2,
    "found  # after pyplot": ["image/png"],
}


@pytest.mark.slow
def test_a_notebook_shows_each_picture_once(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient runs the notebook")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel is what the notebook runs in")
    make = "import torch\nfrom moreaugrad.results import Explanation\n"
    make += "found, words = Explanation(map=torch.rand(2, 3, 8, 8)), Explanation(map=torch.rand(1, 2, 5))"
    cells = [nbformat.v4.new_code_cell(code) for code in (make, *CELLS)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, wanted in zip(notebook.cells[1:], CELLS.values(), strict=True):
        found = [set(output.get("data", {})) - {"text/plain"} for output in cell.outputs]
        assert found == [{kind} for kind in wanted], cell.source


def test_a_title_with_dollar_signs_is_no_formula():
    figure = Explanation(map=torch.rand(1, 3, 8, 8), method="$x_{$ and $").show()
    figure.canvas.draw()
    assert "$x_{$ and $" in figure.get_suptitle()


def test_a_png_says_where_its_tiles_are():
    shown = np.zeros((8, 10, 3), dtype=np.uint8)
    shown[..., 0] = 255
    with Image.open(BytesIO(to_png(pictures.panel(shown, torch.randn(3, 8, 10), "a title")))) as stored:
        boxes = json.loads(stored.info[TILES])
        assert list(boxes) == ["input", "map", "overlay"]
        left, top, right, bottom = boxes["input"]
        tile = np.asarray(stored)[top + 1 : bottom - 1, left + 1 : right - 1]
        around = np.asarray(stored)[top - 2 : bottom + 2, left - 2 : right + 2]
    assert (tile == (255, 0, 0)).all()
    assert (around[[0, -1]] == 255).all()

"""The committed tables are what the committed rows give: none was left behind when the code or the rows changed."""

import shutil

import paper_path  # noqa: F401  (makes paper importable)
import pytest

from paper import curves, fair, noise, readme, robustness
from paper.settings import Settings

TABLES = {
    fair: ("fair.csv", "paired.csv"),
    noise: ("noise.csv",),
    robustness: ("robustness.csv", "ordering.csv", "floors.csv"),
}


@pytest.mark.parametrize("figure", TABLES, ids=lambda figure: figure.__name__.rpartition(".")[2])
def test_the_tables_are_those_of_the_rows(figure, tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "draw", lambda *args, **options: None)
    shutil.copytree(readme.RESULTS / "studies", tmp_path / "studies")
    shutil.copy(readme.RESULTS / "chance.csv", tmp_path)
    assert figure.make(Settings(tmp_path, tmp_path, device="cpu", redraw=True))
    for name in TABLES[figure]:
        assert (tmp_path / name).read_bytes() == (readme.RESULTS / name).read_bytes(), f"{name}: --redraw makes it anew"

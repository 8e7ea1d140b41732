"""The committed tables are what the committed rows give: none was left behind when the code or the rows changed."""

import shutil

import pytest

from paper.data import records
from paper.figures import accuracy, fair, noise, robustness, solutions, units
from paper.figures.row_runs import RowFile
from paper.report import curve_plot, dot_plot, readme, unit_plot
from paper.settings import Settings

STUDIES = {
    fair: ("fair.csv", "fair_floors.csv", "paired.csv", "way.csv"),
    noise: ("noise.csv",),
    robustness: ("robustness.csv", "robustness_all.csv", "ordering.csv", "floors.csv", "jumps.csv"),
    units: ("units.csv", "converted.csv"),
}
ROWS = {accuracy: ("accuracy.csv", "accuracy_paired.csv"), solutions: ("solutions.csv",)}


def name(figure):
    return figure.__name__.rpartition(".")[2]


def redraw(figure, out):
    with pytest.MonkeyPatch.context() as patch:
        for module, function in ((curve_plot, "draw"), (dot_plot, "draw"), (unit_plot, "draw"), (solutions, "draw")):
            patch.setattr(module, function, lambda *args, **options: None)
        for module in (curve_plot, solutions):
            patch.setattr(module, "save", lambda figure, path: None)
        assert figure.make(Settings(out, out, device="cpu", redraw=True))


@pytest.mark.parametrize("figure", STUDIES, ids=name)
def test_tables_of_photos_are_those_of_the_rows(figure, tmp_path):
    """Of the data set with the fewest images; the others are slow."""
    for folder in (readme.RESULTS / "studies").glob("*_imagenet_?"):
        if "tiny" not in folder.name:
            shutil.copytree(folder, tmp_path / "studies" / folder.name)
    shutil.copy(readme.RESULTS / "chance.csv", tmp_path)
    redraw(figure, tmp_path)
    for each in STUDIES[figure]:
        found, committed = (records.read(folder / each) for folder in (tmp_path, readme.RESULTS))
        assert found == [line for line in committed if line["dataset"] == "imagenet"], f"{each}: use --redraw"


@pytest.mark.slow
@pytest.mark.parametrize("figure", STUDIES, ids=name)
def test_all_tables_are_those_of_the_rows(figure, tmp_path):
    shutil.copytree(readme.RESULTS / "studies", tmp_path / "studies")
    shutil.copy(readme.RESULTS / "chance.csv", tmp_path)
    redraw(figure, tmp_path)
    for each in STUDIES[figure]:
        assert (tmp_path / each).read_bytes() == (readme.RESULTS / each).read_bytes(), f"{each}: use --redraw"


@pytest.mark.parametrize("figure", ROWS, ids=name)
def test_tables_without_attacks_are_those_of_the_rows(figure, tmp_path):
    for each in (f"{name(figure)}_rows.csv", f"{name(figure)}.json"):
        shutil.copy(readme.RESULTS / each, tmp_path)
    redraw(figure, tmp_path)
    for each in ROWS[figure]:
        assert (tmp_path / each).read_bytes() == (readme.RESULTS / each).read_bytes(), f"{each}: use --redraw"


@pytest.mark.parametrize("figure", ROWS, ids=name)
def test_the_rows_are_whole_and_of_the_data_sets_that_are_described(figure):
    """As many as there are images, for each method and data set: none was cut off, none is there twice."""
    file = RowFile(readme.RESULTS, name(figure), figure.COLUMNS)
    images = {dataset: each["images"] for dataset, each in file.settings().items()}
    found: dict[tuple[str, str], list[str]] = {}
    for row in file.read():
        found.setdefault((row["dataset"], row["method"]), []).append(row["key"])
    assert set(found) == {(dataset, method) for dataset in images for method in figure.METHODS}
    for (dataset, _), keys in found.items():
        assert len(keys) == len(set(keys)) == images[dataset]
    assert len(file.read()) == len(records.read(file.file.path))
    assert all(each["runs"] for each in file.settings().values())

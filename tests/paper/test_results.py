"""The committed tables are what the committed rows give: none was left behind when the code or the rows changed."""

import shutil

import paper_path  # noqa: F401  (makes paper importable)
import pytest

from paper import accuracy, curves, dots, fair, noise, readme, records, robustness, solutions
from paper.settings import Settings

TABLES = {
    fair: ("fair.csv", "fair_floors.csv", "paired.csv", "way.csv"),
    noise: ("noise.csv",),
    robustness: ("robustness.csv", "robustness_all.csv", "ordering.csv", "floors.csv", "jumps.csv"),
    accuracy: ("accuracy.csv", "accuracy_paired.csv"),
    solutions: ("solutions.csv",),
}
GIVEN = {accuracy: ("accuracy_rows.csv", "accuracy.json"), solutions: ("solutions_rows.csv", "solutions.json")}


def name(figure):
    return figure.__name__.rpartition(".")[2]


@pytest.mark.parametrize("figure", TABLES, ids=name)
def test_the_tables_are_those_of_the_rows(figure, tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "draw", lambda *args, **options: None)
    monkeypatch.setattr(dots, "draw", lambda *args, **options: None)
    monkeypatch.setattr(solutions, "draw", lambda *args, **options: None)
    if figure in GIVEN:
        for each in GIVEN[figure]:
            shutil.copy(readme.RESULTS / each, tmp_path)
    else:
        shutil.copytree(readme.RESULTS / "studies", tmp_path / "studies")
        shutil.copy(readme.RESULTS / "chance.csv", tmp_path)
    assert figure.make(Settings(tmp_path, tmp_path, device="cpu", redraw=True))
    for each in TABLES[figure]:
        assert (tmp_path / each).read_bytes() == (readme.RESULTS / each).read_bytes(), f"{each}: --redraw makes it anew"


@pytest.mark.parametrize("figure", GIVEN, ids=name)
def test_the_rows_are_whole_and_of_the_data_sets_that_are_described(figure):
    """As many as there are images, for each method and data set: none was cut off, none is there twice."""
    rows, told = (readme.RESULTS / each for each in GIVEN[figure])
    ledger = figure.Ledger(rows, told, figure.COLUMNS)
    images = {dataset: each["images"] for dataset, each in ledger.told().items()}
    found: dict[tuple[str, str], list[str]] = {}
    for row in ledger.read():
        found.setdefault((row["dataset"], row["method"]), []).append(row["key"])
    methods = set(accuracy.METHODS) if figure is accuracy else {f"moreau_{rho:g}" for rho in solutions.RHOS}
    assert set(found) == {(dataset, method) for dataset in images for method in methods}
    for (dataset, _), keys in found.items():
        assert len(keys) == len(set(keys)) == images[dataset]
    assert len(ledger.read()) == len(records.read(rows))
    assert all(each["runs"] for each in ledger.told().values())

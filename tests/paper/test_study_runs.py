"""The studies behind the curves: shards, budgets, resumption, and what is left in the folder."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from paper_network import SIZE, Small

from moreaugrad.studies import run as writing
from paper.data import records
from paper.figures import chance_level, fair, noise, robustness, study_runs
from paper.settings import Settings

FIGURES = {"fair": fair, "noise": noise, "robustness": robustness}


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Quick settings on a small network; the studies' own curves are not drawn."""
    network = Small().eval().requires_grad_(False)

    def sample(name, asked, count, change=None):
        x = torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(len(name)))
        return SimpleNamespace(classifier=network, x=x, keys=[f"{name}{place}" for place in range(count)])

    for module in (study_runs, chance_level):
        monkeypatch.setattr(module, "sample", sample)
    monkeypatch.setattr(writing, "curves", lambda *args, **options: None)
    monkeypatch.setattr(writing.pictures, "write", lambda figure, path: path.touch())
    return Settings(tmp_path, tmp_path / "out", quick=True, device="cpu", datasets=("cifar10",))


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_leaves_its_picture_its_table_and_its_rows(settings, name):
    assert FIGURES[name].make(settings)
    assert (settings.out / f"{name}.png").stat().st_size > 10_000
    lines = records.read(settings.out / f"{name}.csv")
    assert {line["dataset"] for line in lines} == {"cifar10"}
    assert {line["method"] for line in lines} >= {"gradient", "smoothgrad", "moreau", "sparse_moreau"}
    assert {"floor", "strongest"} <= {line["mode"] for line in lines}
    assert {int(line["n"]) for line in lines} == {2}
    rows = [
        row for part in FIGURES[name].make_parts(settings) for row in records.read(part.folder(settings) / "rows.csv")
    ]
    assert {row["key"] for row in rows} == {"cifar100", "cifar101"}
    if name == "fair":  # tries all derivatives, and the points found against other methods
        modes = {line["mode"].partition(":")[0] for line in lines if line["method"] == "sparse_moreau"}
        shared = {"floor", "chance", "transfer", "sign", "square", "first", "strongest"}
        assert modes == shared | {"frozen", "unrolled", "implicit"}
        assert {line["mode"] for line in lines if line["method"] == "smoothgrad"} == shared | {"exact"}
        assert {line["method"] for line in records.read(settings.out / "paired.csv")} >= {"moreau", "sparse_moreau"}


def test_a_second_data_set_leaves_the_lines_of_the_first(settings):
    noise.make(settings)
    noise.make(replace(settings, datasets=("imagenet",)))
    assert {line["dataset"] for line in records.read(settings.out / "noise.csv")} == {"cifar10", "imagenet"}


def test_time_that_is_up_stops_a_study_and_the_same_command_goes_on(settings):
    results = [noise.make(replace(settings, minutes=1e-9)) for _ in range(2)]
    assert results == [False, False]
    assert noise.make(settings)
    before = records.read(settings.out / "noise.csv")
    (folder,) = (part.folder(settings) for part in noise.make_parts(settings))
    kept = (folder / "rows.csv").read_bytes()
    assert noise.make(settings)
    assert (folder / "rows.csv").read_bytes() == kept
    assert records.read(settings.out / "noise.csv") == before


def test_restart_measures_again_and_redraw_computes_nothing(settings, monkeypatch):
    noise.make(settings)
    (folder,) = (part.folder(settings) for part in noise.make_parts(settings))
    first = (folder / "rows.csv").stat().st_mtime_ns
    noise.make(replace(settings, restart=True))
    assert (folder / "rows.csv").stat().st_mtime_ns > first
    monkeypatch.setattr(study_runs.mg, "run_study", None)
    (settings.out / "noise.csv").unlink()
    assert noise.make(replace(settings, redraw=True))
    assert (settings.out / "noise.csv").is_file()


def test_shards_hold_every_image_once_and_can_be_run_by_number(settings):
    parts = study_runs.split_shards("a", settings, {"cifar10": 150}, lambda dataset: None)
    assert [list(part.images) for part in parts] == [list(range(64)), list(range(64, 128)), list(range(128, 150))]
    assert [part.number for part in parts] == [1, 2, 3]
    assert len({part.folder(settings) for part in parts}) == 3
    assert noise.make(replace(settings, shard=2))  # there is no second one: nothing to do
    assert not (settings.out / "studies").exists()


def test_full_terms_are_those_of_the_page(settings):
    full = replace(settings, quick=False, datasets=("cifar10", "tiny_imagenet", "imagenet"))
    images = {}
    for part in fair.make_parts(full):
        images[part.dataset] = images.get(part.dataset, 0) + len(part.images)
        assert (part.study.budget, part.study.attack_budget) == (1600, 64)
        assert part.study.common_noise
        assert {mode.partition(":")[0] for mode in part.study.modes} == {"frozen", "unrolled", "implicit", "transfer"}
    assert images["cifar10"] >= 200
    assert images["tiny_imagenet"] >= 100
    assert images["imagenet"] >= 48
    judged = {part.name: part.study for part in robustness.make_parts(full)}
    assert judged["published_smoothgrad"].budget == 8192
    assert judged["published_sparse_moreau"].budget == 19200
    assert all(study.modes == ("frozen",) and not study.common_noise for study in judged.values())

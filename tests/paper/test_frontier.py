"""The frontier: rows that can be resumed, ratios in closed form, and the tables as the committed rows give."""

import math
from dataclasses import replace

import pytest
import torch

from paper.data import records
from paper.figures import frontier
from paper.figures.frontier_rows import SLOPES, Setting, Terms, threshold
from paper.report import frontier_plot, frontier_tables, readme
from paper.settings import DATASETS, Settings

TINY = Terms(
    counts=dict.fromkeys(DATASETS, 4),
    clean=dict.fromkeys(DATASETS, 2),
    rhos={"cifar10": 2},
    grid=((0.1, 0.3),),
    settings=(Setting(0.1, 0.0), Setting(0.2, 1.0), *frontier.PUBLISHED),
    epsilons=dict.fromkeys(DATASETS, (0.5, 2.0)),
    slopes=((0.1, "mean"), (0.2, "mean"), (0.1, "square"), (0.1, "relaxed")),
    budget=16,
    attack_budget=4,
    steps=1,
    points=5,
    block=dict.fromkeys(DATASETS, 2),
)


def make(settings, monkeypatch, terms=TINY):
    monkeypatch.setattr(frontier, "QUICK", terms)
    return frontier.make(settings)


def made_up(key, image, moved, other=1.0, method="statistics", statistic="rms", epsilon=1.0, **more):
    row = {"dataset": "cifar10", "key": key, "image": image, "method": method, "noise": 0.1, "rho": 0.0}
    row |= {"statistic": statistic, "share": 0.1, "epsilon": epsilon, "other": other, "insertion": 0.5, "deletion": 0.2}
    return row | dict.fromkeys(f"moved_{slope}" for slope in SLOPES) | {"moved_mean": moved} | more


def test_a_run_that_was_stopped_goes_on_where_it_was(settings_for, monkeypatch):
    settings = settings_for(datasets=("cifar10",))
    whole = replace(settings, out=settings.out / "whole")
    assert make(whole, monkeypatch)
    parts = replace(settings, out=settings.out / "parts", minutes=1e-9)
    assert not make(parts, monkeypatch)  # one block of each run
    while not make(parts, monkeypatch):
        pass
    for folder in ("frontier_cifar10_1", "frontier_clean_cifar10_1"):
        one, two = (each.out / "studies" / folder / "rows.csv" for each in (whole, parts))
        assert one.read_bytes() == two.read_bytes()
    assert {path.name for path in whole.out.iterdir()} >= {"frontier.csv", "frontier_goal.csv", "frontier.png"}
    with pytest.raises(ValueError, match="budget"):
        make(parts, monkeypatch, replace(TINY, budget=20))


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_a_threshold_leaves_the_share_and_shrinks_all_alike(share):
    dense = torch.randn(3, 2, 10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = threshold(dense, share)
    kept = found != 0
    assert (kept.flatten(1).sum(1) == round(share * 200)).all()
    for before, after, some in zip(dense, found, kept, strict=True):
        taken = before[some].abs() - after[some].abs()
        torch.testing.assert_close(taken, taken[:1].expand_as(taken))
        assert before[~some].abs().max() <= taken[0] + 1e-12


def test_the_strongest_attack_counts_and_chance_divides():
    rows = [
        made_up("a", 0, 0.2, other=0.5, moved_square=0.3),
        made_up("b", 1, 0.4, other=0.7, moved_square=0.1),
    ]
    (line,) = frontier_tables.summarise(rows)
    assert math.isclose(line["moved"], (0.3 + 0.4) / 2 / 0.6)
    (attacks,) = frontier_tables.rank_attacks(rows)
    assert (attacks["won_mean"], attacks["won_square"]) == (0.5, 0.5)
    assert math.isclose(attacks["reached_square"], 0.2 / 0.6)
    assert "won_relaxed" not in attacks


def test_ratios_and_differences_are_those_of_the_same_images():
    mine = [
        made_up(key, place, far, insertion=0.6)
        for place, (key, far) in enumerate(zip("abcd", (1, 2, 3, 4), strict=True))
    ]
    theirs = [
        made_up(row["key"], row["image"], 2.0 * row["moved_mean"], method="sparse_moreau", statistic="mean")
        for row in mine
    ]
    lines = frontier_tables.compare([*mine, *theirs])
    found = {(line["over"], line["measure"]): line for line in lines}
    assert {over for over, _ in found} == {"all", "chosen on", "confirmed on"}
    for over, count in (("all", 4), ("chosen on", 2), ("confirmed on", 2)):
        ratio, insertion = found[over, "ratio"], found[over, "insertion"]
        assert ratio["n"] == insertion["n"] == count
        assert [round(ratio[name], 9) for name in ("mean", "mean_low", "mean_high")] == [0.5, 0.5, 0.5]
        assert math.isclose(insertion["mean"], 0.1)


def test_images_that_were_not_attacked_count_for_faithfulness_alone():
    attacked = [
        made_up(key, place, 1.0, method=method)
        for place, key in enumerate("ab")
        for method in ("statistics", "sparse_moreau")
    ]
    clean = [made_up("c", 2, None, method=method, epsilon=0.0) for method in ("statistics", "sparse_moreau")]
    lines = [line for line in frontier_tables.compare([*attacked, *clean]) if line["over"] == "all"]
    assert {line["measure"]: line["n"] for line in lines} == {"ratio": 2, "insertion": 3, "deletion": 3}


def test_the_picture_shows_every_data_set_and_curve():
    rows = [
        made_up(key, place, 0.1 * (place + 1), statistic=statistic, dataset=dataset)
        for dataset in DATASETS
        for statistic in frontier_plot.CURVES
        for place, key in enumerate("ab")
    ]
    figure = frontier_plot.draw(frontier_tables.summarise(rows))
    assert len(figure.axes) == 2 * len(DATASETS)
    assert {text.get_text() for text in figure.legends[0].get_texts()} >= {
        label for *_, label in frontier_plot.CURVES.values()
    }
    with pytest.raises(ValueError, match="tenth"):
        frontier_plot.draw([])


def test_committed_tables_are_those_of_the_rows(tmp_path):
    rows = frontier.read_rows(Settings(tmp_path, readme.RESULTS, device="cpu"))
    assert rows
    made = {
        "frontier.csv": (frontier_tables.summarise(rows), frontier_tables.COLUMNS),
        "frontier_goal.csv": (frontier_tables.compare(rows), frontier_tables.GOAL),
        "frontier_attacks.csv": (frontier_tables.rank_attacks(rows), frontier_tables.ATTACKS),
    }
    for name, (lines, columns) in made.items():
        records.write(tmp_path / name, lines, columns)
        assert (tmp_path / name).read_bytes() == (readme.RESULTS / name).read_bytes(), f"{name}: use --redraw"

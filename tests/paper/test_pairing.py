"""The stronger of two attacks, methods image by image, and the map of another image."""

import math
from itertools import product
from types import SimpleNamespace

import pytest
import torch

import moreaugrad as mg
from paper.data import records
from paper.figures import chance_level, fair
from paper.report import pairing, tables
from paper.report.markdown import Results
from paper.settings import Settings


def row(key, mode, distance, method="moreau", epsilon="3.0", winner="", valid="1"):
    figures = {"normalised_distance": str(distance), "topk_intersection": str(1 - distance), "ssim": "0.5"}
    return {"method": method, "epsilon": epsilon, "key": key, "mode": mode, "winner": winner, "valid": valid} | figures


def study(key, scouted, judged, mode="implicit:4x16", valid="1"):
    """An image that one mode won: the scout's row of it and the judge's."""
    return [row(key, mode, scouted, valid=valid), row(key, "strongest", judged, winner=mode, valid=valid)]


def strongest(rows):
    return {
        each["key"]: (float(each["normalised_distance"]), each["winner"])
        for each in rows
        if each["mode"] == "strongest"
    }


def test_the_scout_chooses_and_the_judge_tells():
    first = [*study("a", 0.5, 0.40), *study("b", 0.5, 0.40)]
    second = [*study("a", 0.6, 0.30), *study("b", 0.4, 0.90)]  # by the judge it would be the other way round
    found = strongest(pairing.merge_attacks(first, {"sign": second}))
    assert found == {"a": (0.30, "sign"), "b": (0.40, "implicit:4x16")}


def test_a_valid_attack_is_stronger_than_a_farther_one_that_failed():
    found = strongest(pairing.merge_attacks(study("a", 0.9, 0.9, valid="0"), {"sign": study("a", 0.2, 0.2)}))
    assert found == {"a": (0.2, "sign")}
    found = strongest(pairing.merge_attacks(study("a", 0.1, 0.1), {"sign": study("a", 0.9, 0.9, valid="0")}))
    assert found == {"a": (0.1, "implicit:4x16")}


def test_images_and_sizes_that_only_one_study_has_stay_as_they_are():
    first = [*study("a", 0.5, 0.4), *study("c", 0.3, 0.2)]
    found = pairing.merge_attacks(first, {"sign": [*study("a", 0.9, 0.8), *study("other", 0.9, 0.9)]})
    assert strongest(found) == {"a": (0.8, "sign"), "c": (0.2, "implicit:4x16")}
    assert pairing.merge_attacks(first, {"sign": []}) == first


def test_rows_of_the_second_attack_and_of_the_first_alone_have_modes_of_their_own():
    first = [*study("a", 0.5, 0.4), *study("c", 0.3, 0.2)]
    found = pairing.merge_attacks(first, {"sign": [*study("a", 0.9, 0.8), row("a", "transfer", 0.1)]})
    assert [each["mode"] for each in found[len(first) :]] == ["sign", "first"]
    assert found[-1] == study("a", 0.5, 0.4)[1] | {"mode": "first"}
    assert strongest(found)["a"] == (0.8, "sign")


def test_of_three_attacks_the_one_that_the_scout_saw_go_farthest_counts():
    first = [*study("a", 0.5, 0.4), *study("b", 0.5, 0.4), *study("c", 0.5, 0.4)]
    signs = [*study("a", 0.6, 0.3), *study("b", 0.7, 0.2)]
    square = [*study("a", 0.7, 0.1, mode="square"), *study("b", 0.6, 0.9, mode="square")]
    found = pairing.merge_attacks(first, {"sign": signs, "square": square})
    assert strongest(found) == {"a": (0.1, "square"), "b": (0.2, "sign"), "c": (0.4, "implicit:4x16")}
    others = [(each["mode"], each["key"]) for each in found[len(first) :]]
    assert others == [*product(["sign", "square"], "ab"), ("first", "a"), ("first", "b")]


def test_differences_are_taken_image_by_image():
    shift = [0.1, 0.2, 0.3]
    rows = [row(str(n), "strongest", n, method="smoothgrad") for n in range(3)]
    rows += [row(str(n), "strongest", n + shift[n]) for n in range(3)]
    rows += [row("3", "strongest", 9.0), row("2", "strongest", 9.0, valid="0", epsilon="5.0")]
    (line,) = [each for each in pairing.pair_methods(rows, "cifar10") if each["metric"] == "normalised_distance"]
    assert (line["method"], line["other"], line["n"], line["epsilon"]) == ("moreau", "smoothgrad", 3, 3.0)
    assert math.isclose(line["mean"], 0.2, rel_tol=1e-9)
    assert (
        0.1 - 1e-9 <= line["mean_low"] <= 0.2 <= line["mean_high"] <= 0.3 + 1e-9
    )  # though the values spread from 0 to 2


def test_the_table_marks_differences_that_leave_zero_out(tmp_path):
    shared = {"dataset": "cifar10", "epsilon": 3.0, "method": "moreau", "other": "smoothgrad", "n": 4}
    ends = {"normalised_distance": (0.1, 0.3), "topk_intersection": (-0.1, 0.1), "ssim": (-0.3, -0.1)}
    lines = [
        shared | {"metric": name, "mean": (low + high) / 2, "mean_low": low, "mean_high": high}
        for name, (low, high) in ends.items()
    ]
    records.write(tmp_path / "paired.csv", lines, pairing.PAIRED)
    found = tables.paired(Results(tmp_path), "moreau", "smoothgrad").splitlines()[-1]
    assert found == (
        "| CIFAR-10 | 3 | **+0.200 [+0.100, +0.300]** | +0.000 [-0.100, +0.100] | **-0.200 [-0.300, -0.100]** | 4 |"
    )


def level(method, mean, n, dataset="cifar10", metric="normalised_distance"):
    return {"dataset": dataset, "method": method, "metric": metric, "mean": str(mean), "n": str(n)}


def test_the_way_to_another_image_is_one_distance_over_the_other(tmp_path):
    """Over the images for which the other distance was measured, the first of all, and of those the valid ones."""
    rows = [row(key, "implicit:4x16", 9.0) for key in "abcd"]  # no strongest
    rows += [row(key, "strongest", value) for key, value in zip("abcd", (0.1, 0.5, 9.0, 9.0), strict=True)]
    rows += [row("b", "strongest", 0.6, epsilon="1.0"), row("a", "strongest", 9.0, valid="0", epsilon="1.0")]
    rows += [row("a", "strongest", 0.3, method="gradient")]  # its level is not known
    levels = [level("moreau", 1.2, 2), level("moreau", 0.1, 4, metric="ssim"), level("moreau", 0.1, 4, "imagenet")]
    found = pairing.measure_progress(rows, levels, "cifar10")
    assert [(line["dataset"], line["method"], line["epsilon"], line["n"]) for line in found] == [
        ("cifar10", "moreau", 1.0, 1),
        ("cifar10", "moreau", 3.0, 2),
    ]
    assert [line["mean"] for line in found] == pytest.approx([0.5, 0.3 / 1.2])
    assert [found[1][name] for name in ("mean_low", "mean_high")] == pytest.approx([0.1 / 1.2, 0.5 / 1.2])
    records.write(tmp_path / "way.csv", found, pairing.PROGRESS)
    assert tables.way(Results(tmp_path)).splitlines()[-2:] == [
        "| CIFAR-10 | 1 | 50 [50, 50] |",
        "| CIFAR-10 | 3 | 25 [8, 42] |",
    ]


@pytest.mark.parametrize(
    ("attack", "differs"), [("sign", {"attacks", "epsilons", "modes"}), ("square", {"methods", "epsilons", "modes"})]
)
def test_the_other_attacks_differ_by_their_steps_and_slopes_alone(attack, differs, tmp_path):
    settings = Settings(tmp_path, tmp_path, device="cpu")
    one, other = (fair.make_study("cifar10", settings, each).as_json() for each in ("", attack))
    assert {name for name in one if one[name] != other[name]} == differs
    assert other["methods"].items() <= one["methods"].items()


def test_another_image_of_the_same_class_has_the_same_map_where_the_score_is_linear(tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 12 * 12, 2, bias=False)).eval()
    x = torch.rand(4, 3, 12, 12)
    with torch.no_grad():
        model[1].weight.abs_()
        x[model(x).argmax(1) == 1] *= -1  # scores change their sign, and with it their order: all are of one class
    found = SimpleNamespace(x=x, classifier=model)
    monkeypatch.setattr(chance_level, "sample", lambda *_: found)
    settings = Settings(tmp_path, tmp_path, device="cpu")
    noise = mg.Smoothing(0.1)
    given = mg.Study(
        {"gradient": {}, "smoothgrad": {"smoothing": noise}}, {"topk": {}}, (1.0,), budget=8, attack_budget=4
    )
    chance_level.make(settings, "cifar10", given)
    lines = records.read(tmp_path / "chance.csv")
    assert {(line["method"], line["metric"]) for line in lines} == {
        (method, metric) for method in given.methods for metric in ("normalised_distance", "topk_intersection", "ssim")
    }
    for line in lines:
        wanted = 0.0 if line["metric"] == "normalised_distance" else 1.0
        assert abs(float(line["mean"]) - wanted) < 1e-5
        assert (line["mode"], line["n"]) == ("chance", "4")
    before = (tmp_path / "chance.csv").read_bytes()
    found.x = torch.rand(4, 3, 12, 12)
    chance_level.make(settings, "cifar10", given)  # what is there is kept
    assert (tmp_path / "chance.csv").read_bytes() == before
    chance_level.make(settings, "imagenet", given)  # beside it
    assert {line["dataset"] for line in records.read(tmp_path / "chance.csv")} == {"cifar10", "imagenet"}

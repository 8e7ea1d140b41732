"""Rows of studies -> lines, curves and orders: against closed forms, scipy, and the published values themselves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper import names
from paper.data import records
from paper.figures import robustness
from paper.report import bimodality, curve_plot, ordering, readme, summaries


def row(image, value, mode="strongest", valid="1", method="moreau", epsilon="3.0", winner="frozen", attack="topk"):
    identity = {"image": str(image), "method": method, "attack": attack, "epsilon": epsilon, "mode": mode}
    return identity | {"valid": valid, "winner": winner} | dict.fromkeys(names.COMPARED, str(value))


def only(lines, **where):
    (found,) = [line for line in lines if all(line[key] == value for key, value in where.items())]
    return found


def differing(order):
    return [pair for pair in order.pairs if pair["order"] == "differs"]


def middle(statistic, value, width):
    return {statistic: value, f"{statistic}_low": value - width, f"{statistic}_high": value + width}


def published_lines(shift=0.0, width=0.01, datasets=names.DATASETS):
    """Lines that say what was published, moved by a shift and with intervals of a width; medians lie a little lower."""
    return [
        {"dataset": p["dataset"], "protocol": "published", "method": p["method"], "attack": "topk"}
        | {"epsilon": p["epsilon"], "mode": "strongest", "metric": p["metric"], "n": 9, "valid_share": 1.0}
        | middle("mean", p["value"] + shift, width)
        | middle("median", p["value"] + shift - 0.03, width)
        for p in summaries.read_published()
        if p["dataset"] in datasets
    ]


def test_a_line_counts_valid_attacks_and_says_what_it_left_out():
    rows = [row(0, 0.2), row(1, 0.4), row(2, 0.9), row(3, 7.0, valid="0"), row(4, "nan")]
    line = only(summaries.summarise(rows, "cifar10", "fair"), metric="ssim")
    assert (line["n"], line["valid_share"], line["counted"], line["undefined"]) == (5, 0.8, 3, 1)
    assert line["mean"] == pytest.approx(0.5)
    assert line["median"] == 0.4
    assert 0.2 <= line["mean_low"] < 0.5 < line["mean_high"] <= 0.9
    assert (line["dataset"], line["protocol"], line["method"], line["epsilon"]) == ("cifar10", "fair", "moreau", 3.0)


def test_a_group_without_a_valid_attack_has_no_figures():
    line = only(summaries.summarise([row(0, 0.3, valid="False")], "cifar10", "fair"), metric="ssim")
    assert line["valid_share"] == line["counted"] == 0
    assert math.isnan(line["mean"])
    assert math.isnan(line["mean_low"])


def test_winners_are_shared_out_over_valid_images_and_modes_that_were_tried():
    tried = [row(0, 0.1, mode) for mode in ("frozen", "unrolled:4x16", "implicit:5x16")]
    winners = ["implicit:5x16", "implicit:5x16", "frozen", "unrolled:4x16"]
    best = [row(image, 0.5, winner=winner) for image, winner in enumerate(winners)]
    lines = summaries.summarise([*tried, *best, row(9, 0.5, winner="frozen", valid="0")], "cifar10", "fair")
    line = only(lines, mode="strongest", metric="ssim")
    assert [line[f"won_{mode}"] for mode in ("frozen", "unrolled", "implicit")] == [0.25, 0.25, 0.5]
    assert "won_transfer" not in line
    assert "won_frozen" not in only(lines, mode="frozen", metric="ssim")


def test_the_interval_of_the_mean_is_that_of_the_central_limit_theorem():
    values = np.random.default_rng(3).normal(5, 2, 800)
    found = summaries.statistics(values.tolist())
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert found["mean_low"] == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found["mean_high"] == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert summaries.statistics(values.tolist()) == found  # by a seed
    moved = summaries.statistics((values + 10).tolist())
    assert moved["mean_low"] == pytest.approx(found["mean_low"] + 10, rel=1e-12)
    assert len({summaries.statistics([0.25] * 9)[name] for name in summaries.STATISTICS}) == 1


def test_the_published_figure_is_whole():
    points = summaries.read_published()
    keys = {(p["dataset"], p["metric"], p["method"], p["epsilon"]) for p in points}
    assert len(points) == len(keys) == 3 * 3 * 6 * 4
    assert {p["method"] for p in points} <= set(names.METHODS)
    assert {p["metric"] for p in points} == set(names.COMPARED)
    assert all(0 <= p["value"] <= math.sqrt(2) for p in points)


def kept(values, metric="ssim"):
    """Rows by the keys of their images; None: not defined."""
    return {key: {metric: "" if value is None else repr(float(value))} for key, value in values.items()}


def test_a_difference_is_that_of_the_images_of_both_and_so_is_its_interval():
    generator = np.random.default_rng(1)
    shared, moved = generator.normal(0, 5, 300), generator.normal(0.3, 1, 300)  # images differ more than methods
    one, two = (dict(zip(map(str, range(300)), values, strict=True)) for values in (shared + moved, shared))
    found = summaries.difference(kept(one | {"here": -100.0}), kept(two | {"there": 100.0}), "ssim")
    half = 1.96 * moved.std() / math.sqrt(len(moved))
    assert found["n"] == 300
    assert found["positive"] == pytest.approx((moved > 0).mean(), abs=1e-12)
    assert found["mean"] == pytest.approx(moved.mean(), rel=1e-12)
    assert found["mean_low"] == pytest.approx(moved.mean() - half, abs=0.1 * half)
    assert found["mean_high"] == pytest.approx(moved.mean() + half, abs=0.1 * half)
    back = summaries.difference(kept(two), kept(one), "ssim")  # by the same draws
    assert back["positive"] == pytest.approx(1 - found["positive"], abs=1e-12)
    turned = [-found[name] for name in ("mean", "mean_high", "mean_low")]
    assert [back[name] for name in ("mean", "mean_low", "mean_high")] == pytest.approx(turned, rel=1e-9)


@pytest.mark.parametrize("spoiled", ["one", "two"])
def test_a_difference_leaves_out_images_on_which_either_is_not_defined(spoiled):
    given = {"one": {"a": 0.5, "b": 0.9, "c": 0.2}, "two": {"b": 0.1, "c": 0.1, "a": 0.2}}
    whole = summaries.difference(*map(kept, given.values()), "ssim")
    assert (whole["n"], whole["mean"]) == (3, pytest.approx((0.3 + 0.8 + 0.1) / 3))
    given[spoiled]["b"] = None
    found = summaries.difference(*map(kept, given.values()), "ssim")
    assert (found["n"], found["mean"]) == (2, pytest.approx((0.3 + 0.1) / 2))
    assert found["positive"] == 1
    tied = summaries.difference(kept({"a": 0.5, "b": 1.0}), kept({"a": 0.5, "b": 0.5}), "ssim")
    assert tied["positive"] == 0.5  # no difference is none above zero
    none = summaries.difference(kept({"a": None}), kept({"a": 1.0}), "ssim")
    assert none["n"] == 0
    assert math.isnan(none["mean"])


def test_maps_that_are_farther_apart_than_noise_are_those_beyond_twice_the_median():
    found = bimodality.spread([0.1, 0.1, 0.2, 0.1, 1.0])  # twice the median itself is noise
    wanted = {"n": 5, "median": 0.1, "mean": pytest.approx(0.3), "largest": 1.0, "far": 1, "far_share": 0.2}
    assert found == wanted
    assert tuple(found) == bimodality.SPREAD


@given(st.lists(st.floats(0.01, 2), min_size=1, max_size=30))
def test_a_spread_has_no_unit_and_no_order_and_noise_alone_is_not_far(values):
    found = bimodality.spread(values)
    other = bimodality.spread([4 * value for value in reversed(values)])
    lengths = ("median", "mean", "largest")
    assert other == pytest.approx(found | {name: 4 * found[name] for name in lengths})
    assert 0 <= found["far_share"] == found["far"] / len(values) <= 0.5  # half of them are not above the median
    assert found["median"] <= found["largest"] == max(values)
    if max(values) <= 2 * min(values):
        assert found["far_share"] == 0


def seeds(distances, method="moreau"):
    """Floors of images by their places."""
    some = [row(place, value, "floor", method=method, epsilon="0.0") for place, value in enumerate(distances)]
    return [each | {"key": each["image"]} for each in some]


def hit(distances, method="moreau", epsilon="3.0", **more):
    some = [row(place, value, method=method, epsilon=epsilon, **more) for place, value in enumerate(distances)]
    return [each | {"key": each["image"]} for each in some]


def test_floors_are_told_of_methods_with_noise():
    rows = [*seeds([0.1, 0.1, 0.5]), *seeds([0, 0, 0], "gradient"), *hit([1, 1, 1]), *seeds([0.3], "smoothgrad")]
    found = bimodality.floors(rows, "cifar10")
    assert [(line["dataset"], line["method"], line["n"], line["far"]) for line in found] == [
        ("cifar10", "moreau", 3, 1),
        ("cifar10", "smoothgrad", 1, 0),
    ]


def test_images_whose_maps_jump_by_themselves_are_left_out_image_by_image():
    """Of four images the second jumps; the third was not hit, and sizes go by themselves."""
    rows = [*seeds([0.1, 0.9, 0.1, 0.2]), *seeds([0.1] * 4, "sparse_moreau")]
    near = hit([0.3, 1.2, 5.0, 0.5])
    near[2]["valid"] = "0"
    rows += [*near, *hit([0.4] * 4, epsilon="10.0"), *hit([1.0, 2.0, 3.0, 4.0], "sparse_moreau")]
    found = bimodality.without_jumps(rows, "cifar10", summaries.read_published())
    assert [(line["method"], line["epsilon"]) for line in found] == [
        ("moreau", 3.0),
        ("moreau", 10.0),
        ("sparse_moreau", 3.0),
    ]
    first, second, third = found
    assert (first["counted"], first["counted_without"]) == (3, 2)
    assert [first["mean"], first["mean_without"]] == pytest.approx([2.0 / 3, 0.4])
    assert (second["mean"], second["mean_without"]) == pytest.approx((0.4, 0.4))
    assert third["mean"] == third["mean_without"] == 2.5
    assert (first["published"], third["published"]) == (0.45, 0.48)


def test_an_image_without_a_valid_attack_moves_by_noise_alone():
    rows = [*seeds([0.1, 0.2]), *hit([0.5, 9.0]), *hit([0.6, 0.7], mode="frozen")]
    rows[3]["valid"] = rows[5]["valid"] = "0"
    found = robustness.count_failures(rows)
    assert [each for each in found if each["mode"] != "strongest"] == [*rows[:2], *rows[4:]]
    given = [(each["key"], float(each["ssim"]), each["epsilon"], each["attack"]) for each in found[2:4]]
    assert given == [("0", 0.5, "3.0", "topk"), ("1", 0.2, "3.0", "topk")]
    line = only(summaries.summarise(found, "cifar10", "with failures"), metric="ssim", mode="strongest")
    assert (line["n"], line["valid_share"], line["mean"]) == (2, 1.0, pytest.approx(0.35))
    assert rows[3]["ssim"] == "9.0"  # the rows themselves are left alone


def test_values_without_any_order_have_no_correlation():
    assert all(map(math.isnan, ordering.correlate(np.ones(3), np.arange(3.0))))


def test_the_published_values_have_their_own_order():
    lines, published = published_lines(shift=0.1), summaries.read_published()
    for dataset, metric, epsilon in {(line["dataset"], line["metric"], line["epsilon"]) for line in lines}:
        found = ordering.compare_order(lines, published, dataset, metric, epsilon)
        assert found.ours == found.published
        assert found.spearman == pytest.approx(1)
        assert found.kendall == pytest.approx(1)
        assert not differing(found)
        assert len(found.pairs) == 15


@pytest.mark.parametrize(("width", "sure"), [(0.01, True), (0.5, False)])
def test_a_pair_that_comes_the_other_way_round_is_named_with_how_sure_that_is(width, sure):
    """On CIFAR-10 at 3 the simple gradient (0.95) and MoreauGrad (0.45) change places."""
    lines = published_lines(width=width)
    swapped = {"gradient": 0.45, "moreau": 0.95}
    for line in lines:
        if (line["dataset"], line["metric"], line["epsilon"]) == ("cifar10", "normalised_distance", 3.0):
            value = swapped.get(line["method"], line["mean"])
            line.update(middle("mean", value, width))
    found = ordering.compare_order(lines, summaries.read_published(), "cifar10", "normalised_distance", 3.0)
    assert found.published[-1] == "gradient"
    assert found.ours[-1] == "moreau"
    pair = only(differing(found), method="gradient", other="moreau")
    assert pair["ours_apart"] is sure
    assert pair["published_apart"] is True
    # 0.39 of sparsified SmoothGrad is still first, 0.48 of Sparse MoreauGrad, 0.62 and 0.86 lie between the two
    assert found.ours == (
        *("sparsified_smoothgrad", "gradient", "sparse_moreau", "smoothgrad"),
        *("integrated_gradients", "moreau"),
    )
    assert len(differing(found)) == 1 + 2 * 3


def test_means_and_medians_are_ordered_each_by_themselves():
    """A few images with large distances turn the means round, as second solutions do, and leave the medians alone."""
    lines, published = published_lines(), summaries.read_published()
    for line in lines:
        if (line["metric"], line["method"]) == ("normalised_distance", "moreau"):
            line.update(middle("mean", 1.4, 0.01))
    given = {"dataset": "imagenet", "metric": "normalised_distance", "epsilon": 20.0}
    means, medians = (ordering.compare_order(lines, published, **given, statistic=each) for each in ("mean", "median"))
    assert means.ours[-1] == "moreau"
    assert medians.ours == medians.published
    assert medians.kendall == pytest.approx(1)
    assert not differing(medians)
    values = {each["method"]: each["value"] for each in published if given.items() <= each.items()}
    assert len(differing(means)) == sum(value > values["moreau"] for value in values.values()) > 0
    pair = only(medians.pairs, method="smoothgrad", other="moreau")
    assert pair["ours"] == only(lines, method="smoothgrad", **given)["median"]
    assert pair["ours_other"] == only(lines, method="moreau", **given)["median"]
    stored = ordering.compare_orders(lines, published)
    for statistic, order in (("mean", means), ("median", medians)):
        some = [line for line in stored if (given | {"statistic": statistic}).items() <= line.items()]
        assert [line["order"] for line in some] == [pair["order"] for pair in order.pairs]
        assert {line["kendall"] for line in some} == {order.kendall}
    every = [line | middle("mean", line["median"], 0.01) for line in lines]
    third = ordering.compare_orders(lines, published, every)
    assert [line for line in third if line["statistic"] != "all"] == stored
    failed = [line | {"statistic": "median"} for line in third if line["statistic"] == "all"]
    assert failed == [line for line in stored if line["statistic"] == "median"]


def test_how_sure_an_order_is_goes_by_the_intervals_of_that_statistic():
    lines = published_lines(width=0.001)
    for line in lines:
        line.update(middle("median", line["median"], 2.0))
    means, medians = (
        ordering.compare_order(lines, summaries.read_published(), "cifar10", "ssim", 10.0, statistic)
        for statistic in ("mean", "median")
    )
    assert all(pair["ours_apart"] for pair in means.pairs if pair["order"] != "tied")
    assert not any(pair["ours_apart"] for pair in medians.pairs)


def test_values_closer_than_the_reading_error_are_not_apart():
    lines, published = published_lines(), summaries.read_published()
    found = ordering.compare_order(lines, published, "cifar10", "normalised_distance", 1.0)  # 0.21, 0.22, 0.21
    assert only(found.pairs, method="moreau", other="sparse_moreau")["published_apart"] is False
    assert only(found.pairs, method="sparsified_smoothgrad", other="sparse_moreau")["order"] == "tied"


def test_orderings_leave_out_what_one_side_does_not_have():
    lines = [line for line in published_lines(datasets=["cifar10"]) if line["method"] != "smoothgrad"]
    lines += [line | {"epsilon": 30.0} for line in lines]
    found = ordering.compare_orders(lines, summaries.read_published())
    assert {line["epsilon"] for line in found} == {0.3, 1.0, 3.0, 10.0}
    assert len(found) == 3 * 4 * 10 * 2  # by means and by medians
    assert {line["methods"] for line in found} == {5}


def test_lines_as_published_take_signs_of_moreau_maps_only():
    every = (*names.COMPARED, *summaries.AS_PUBLISHED)
    lines = [
        {"method": method, "metric": metric, "mean": metric} for method in ("gradient", "moreau") for metric in every
    ]
    found = summaries.as_published(lines)
    assert only(found, method="moreau", metric="normalised_distance")["mean"] == "normalised_distance_signed"
    assert only(found, method="gradient", metric="normalised_distance")["mean"] == "normalised_distance"
    assert only(found, method="gradient", metric="ssim")["mean"] == "ssim_raw"
    assert len(found) == 6


def test_a_picture_has_a_row_for_each_data_set_and_the_published_values_dashed():
    lines = published_lines(shift=0.05, datasets=["cifar10", "imagenet"])
    lines[0] |= {"valid_share": 0.5}
    lines.append(lines[0] | {"mode": "floor", "attack": "none", "epsilon": 0.0, "mean": 0.123})
    figure = curve_plot.draw(lines, summaries.read_published(), "title", "note")
    assert len(figure.axes) == 6
    first = figure.axes[0]
    dashed = [line for line in first.lines if line.get_linestyle() == "--"]
    wanted = [
        [p["value"] for p in summaries.read_published() if _key(p) == ("cifar10", "normalised_distance", method)]
        for method in names.PUBLISHED_METHODS.values()
    ]
    assert sorted(line.get_ydata().tolist() for line in dashed) == sorted(sorted(each) for each in wanted)
    assert [line.get_ydata()[0] for line in first.lines if line.get_linestyle() == ":"] == [0.123]
    hollow = [line for line in first.lines if line.get_markerfacecolor() == "white"]
    assert len(hollow) == 1
    assert hollow[0].get_ydata()[0] == lines[0]["mean"]


def _key(point):
    return point["dataset"], point["metric"], point["method"]


def test_lines_of_two_attacks_are_refused():
    lines = published_lines()
    both = [*lines, *(line | {"attack": "noise"} for line in lines)]
    with pytest.raises(ValueError, match="one protocol and attack"):
        curve_plot.draw(both)
    with pytest.raises(ValueError, match="run a study"):
        curve_plot.draw([])


def test_medians_of_a_stored_study_are_those_of_its_own_table():
    folder = readme.HERE.parent / "benchmarks" / "results" / "modes_cifar10"
    lines = summaries.summarise(records.read(folder / "rows.csv"), "cifar10", "modes")
    given = [line for line in records.read(folder / "table.csv") if line["over"] == "valid"]
    assert len(lines) == len(given)
    for line in given:
        same = {name: line[name] for name in ("method", "attack", "mode", "metric")}
        found = only(lines, epsilon=float(line["epsilon"]), **same)
        for ours, theirs in {"median": "median", "median_low": "low", "median_high": "high", "mean": "mean"}.items():
            assert found[ours] == pytest.approx(float(line[theirs]), rel=1e-12)
        if line["won_share"]:
            best = only(lines, epsilon=float(line["epsilon"]), **same | {"mode": "strongest"})
            assert best[f"won_{line['mode']}"] == pytest.approx(float(line["won_share"]))  # all are valid there

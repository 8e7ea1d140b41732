"""What paper/README.md claims in words, as conditions on the committed tables.

The wording is free: where one of these fails, the results have changed, and the page must say something else.
"""

import pytest

from paper import names
from paper.report import readme
from paper.report.markdown import Results
from paper.report.summaries import DISTANCE, read_published

DATASETS = tuple(names.DATASETS)
AVERAGED = ("smoothgrad", "sparsified_smoothgrad", "moreau", "sparse_moreau")
PLAIN = ("gradient", "integrated_gradients")
DELETION = ("deletion", "deletion_blur")
CURVES = ("insertion", *DELETION)
SIGN = {metric: -1 if names.is_lower_better(metric) else 1 for metric in (*names.COMPARED, *CURVES, "energy_in_box")}
RESULTS = Results(readme.RESULTS)
NORMS = {"cifar10": (0.3, 1, 3, 10), "tiny_imagenet": (1, 3, 10, 20), "imagenet": (1, 3, 10, 20)}
EVERYWHERE = [(dataset, norm) for dataset in DATASETS for norm in NORMS[dataset]]
SMALLEST = [(dataset, norms[0]) for dataset, norms in NORMS.items()]


def interval(dataset, method, norm, metric=DISTANCE, *, mode="strongest", file="fair.csv", column="mean"):
    """The middle, the low and the high end of a line."""
    given = {"dataset": dataset, "method": method, "metric": metric, "epsilon": str(norm)}
    (line,) = [line for line in RESULTS.select(file, given) if line["mode"].partition(":")[0] == mode]
    return tuple(float(line[name]) for name in (column, f"{column}_low", f"{column}_high"))


def mean(*given, **more):
    return interval(*given, **more)[0]


def lead(file, metric, **where):
    """A method minus another, image by image: mean, low and high end, turned so that above zero is better."""
    line = RESULTS.one(file, {"metric": metric, **where})
    middle, *ends = (SIGN[metric] * float(line[name]) for name in ("mean", "mean_low", "mean_high"))
    return middle, *sorted(ends)


def over_smoothgrad(dataset, norm, metric):
    """The lead of MoreauGrad over SmoothGrad under attack."""
    where = {"dataset": dataset, "epsilon": str(norm), "method": "moreau", "other": "smoothgrad"}
    return lead("paired.csv", metric, **where)


def merit(dataset, method, metric):
    """The lead of a method over SmoothGrad in accuracy."""
    return lead("accuracy_paired.csv", metric, dataset=dataset, method=method, over="all")


def published(dataset, metric=DISTANCE):
    """By method and norm."""
    points = [point for point in read_published() if (point["dataset"], point["metric"]) == (dataset, metric)]
    return {(point["method"], point["epsilon"]): point["value"] for point in points}


# the fair test


@pytest.mark.parametrize(("dataset", "norm"), EVERYWHERE)
@pytest.mark.parametrize("metric", names.COMPARED)
def test_sparsified_smoothgrad_is_moved_least_unless_nothing_is_left_of_any_map(dataset, norm, metric):
    means = {method: SIGN[metric] * mean(dataset, method, norm, metric) for method in (*AVERAGED, *PLAIN)}
    spent = (dataset, metric, norm) == ("cifar10", DISTANCE, 10)
    assert (max(means, key=means.get) == "sparsified_smoothgrad") is not spent
    if spent:
        assert all(-means[method] > 0.98 * mean(dataset, method, 0, mode="chance") for method in means)


@pytest.mark.parametrize(("dataset", "norm"), EVERYWHERE)
def test_the_slope_of_the_votes_is_hidden_at_norm_one_on_the_larger_data_sets_alone(dataset, norm):
    own, others = (mean(dataset, "sparsified_smoothgrad", norm, mode=mode) for mode in ("exact", "transfer"))
    if dataset == "cifar10" or norm in NORMS[dataset][2:]:
        assert own > others
    elif norm == 1:
        assert others >= own


@pytest.mark.parametrize(("dataset", "norm"), SMALLEST)
def test_few_images_make_half_of_the_gap_but_most_are_moved_farther(dataset, norm):
    gaps = [
        mean(dataset, "moreau", norm, column=name) - mean(dataset, "smoothgrad", norm, column=name)
        for name in ("median", "mean")
    ]
    assert 0.4 < gaps[0] / gaps[1] < 0.6
    where = {"dataset": dataset, "epsilon": str(norm), "metric": DISTANCE, "method": "moreau", "other": "smoothgrad"}
    assert float(RESULTS.one("paired.csv", where)["positive"]) > 0.6


@pytest.mark.parametrize(("dataset", "norm"), SMALLEST)
def test_averaged_maps_are_far_ahead_where_an_attack_is_small(dataset, norm):
    assert 2 * max(mean(dataset, m, norm) for m in AVERAGED) < min(mean(dataset, m, norm) for m in PLAIN)


@pytest.mark.parametrize(("dataset", "norm"), EVERYWHERE)
def test_smoothgrad_is_ahead_under_small_attacks_and_on_photos(dataset, norm):
    for metric in names.COMPARED:
        if norm in NORMS[dataset][:2] or (dataset == "imagenet" and metric != "ssim"):
            assert over_smoothgrad(dataset, norm, metric)[2] < 0


def test_moreaugrad_is_ahead_or_level_under_the_largest():
    assert over_smoothgrad("cifar10", 3, DISTANCE)[2] < 0 < over_smoothgrad("cifar10", 3, "topk_intersection")[1]
    assert all(over_smoothgrad("cifar10", 10, metric)[1] > 0 for metric in names.COMPARED)
    for norm in NORMS["tiny_imagenet"][2:]:
        _, low, high = over_smoothgrad("tiny_imagenet", norm, DISTANCE)
        assert -0.07 < low < high < 0
        for metric in ("topk_intersection", "ssim"):
            _, low, high = over_smoothgrad("tiny_imagenet", norm, metric)
            assert low < 0 < high


@pytest.mark.parametrize(("dataset", "norm"), EVERYWHERE)
def test_sparse_maps_are_moved_more_by_distance_and_top_k_and_no_more_by_ssim(dataset, norm):
    assert mean(dataset, "sparse_moreau", norm) > mean(dataset, "moreau", norm)
    top = [mean(dataset, method, norm, "topk_intersection") for method in ("sparse_moreau", "moreau")]
    assert top[0] < top[1]
    assert interval(dataset, "sparse_moreau", norm, "ssim")[2] >= interval(dataset, "moreau", norm, "ssim")[1]


@pytest.mark.parametrize(
    ("dataset", "norm"), [(dataset, norm) for dataset, norms in NORMS.items() for norm in norms[1:3]]
)
def test_the_frozen_derivative_hides_how_far_moreaugrad_is_moved(dataset, norm):
    frozen = interval(dataset, "moreau", norm, mode="frozen")
    assert frozen[2] < interval(dataset, "smoothgrad", norm, mode="exact")[1]
    assert mean(dataset, "moreau", norm, mode="implicit") > frozen[2]
    assert mean(dataset, "moreau", norm) > mean(dataset, "smoothgrad", norm)


def test_how_strong_the_attacks_are():
    first = interval("cifar10", "sparsified_smoothgrad", 10, mode="first")
    alone, both = (interval("cifar10", "sparsified_smoothgrad", 10, file=f) for f in ("robustness.csv", "fair.csv"))
    assert first[2] < both[1]
    assert both[2] > alone[1]
    assert alone[2] > both[1]
    for method in (*PLAIN, *AVERAGED):
        theirs, ours = (mean("cifar10", method, 3, file=file) for file in ("robustness.csv", "fair.csv"))
        if method in (*PLAIN, "sparsified_smoothgrad"):
            assert abs(theirs - ours) < 0.03
        elif method != "smoothgrad":  # it has another noise there
            assert 1.4 < ours / theirs < 1.6


@pytest.mark.parametrize(("dataset", "norm"), EVERYWHERE)
def test_on_the_way_to_another_image(dataset, norm):
    lines = RESULTS.select("way.csv", {"dataset": dataset, "epsilon": str(norm)})
    share = {line["method"]: float(line["mean"]) for line in lines if line["method"] in AVERAGED}
    if norm != NORMS[dataset][-1] or dataset == "imagenet":
        assert min(share, key=share.get) == "sparsified_smoothgrad"
    else:
        assert min(share.values()) > (0.95 if dataset == "cifar10" else 0.85)
        assert (share["sparsified_smoothgrad"] > 1.1) is (dataset == "cifar10")
    assert abs(share["sparse_moreau"] - share["moreau"]) < 0.1


@pytest.mark.parametrize(("dataset", "norm"), EVERYWHERE)
def test_the_order_is_the_same_under_random_noise(dataset, norm):
    order = ("sparsified_smoothgrad", "smoothgrad", "moreau", "integrated_gradients", "gradient")
    means = [mean(dataset, method, norm, file="noise.csv") for method in order]
    assert means == sorted(means)
    assert means[2] < means[1] + 0.1
    sparse = mean(dataset, "sparse_moreau", norm, file="noise.csv")
    assert (means[2] < sparse < means[3]) is ((dataset, norm) != ("imagenet", 1))


# the published protocol


@pytest.mark.parametrize(("dataset", "norm", "left"), [("cifar10", 10, 0), ("imagenet", 20, 0.1)])
def test_ssim_of_raw_maps_is_high_for_smoothgrad_too(dataset, norm, left):
    raw, pictures = (
        [mean(dataset, m, norm, metric, file="robustness.csv") for m in ("moreau", "smoothgrad")]
        for metric in ("ssim_raw", "ssim")
    )
    assert raw[1] > raw[0] > max(pictures)
    assert pictures[0] - pictures[1] < left


def test_some_hundreds_of_samples_explain_where_smoothgrad_starts():
    few = [
        interval(of, "smoothgrad_400", norm, file="robustness.csv") for of, norm in (("cifar10", 0.3), ("imagenet", 1))
    ]
    assert abs(few[0][0] - published("cifar10")["smoothgrad", 0.3]) < 0.03
    assert few[1][2] < published("imagenet")["smoothgrad", 1]


def test_other_settings_explain_the_published_curve_of_smoothgrad():
    printed = published("cifar10")
    floor = mean("cifar10", "smoothgrad_quiet", 0, mode="floor", file="robustness.csv")
    assert abs(floor - printed["smoothgrad", 0.3]) < 0.03
    for norm in (3, 10):
        quiet, program = (
            mean("cifar10", m, norm, file="robustness.csv") - printed["smoothgrad", norm]
            for m in ("smoothgrad_quiet", "smoothgrad")
        )
        assert abs(quiet) < min(0.06, abs(program) / 2)
    low = interval("cifar10", "smoothgrad_quiet", 3, file="robustness.csv")[1]
    assert all(interval("cifar10", m, 3, file="robustness.csv")[2] < low for m in ("moreau", "sparse_moreau"))
    values = {method: value for (method, norm), value in printed.items() if norm == 3}
    order = [name.replace("smoothgrad", "smoothgrad_quiet") if name == "smoothgrad" else name for name in values]
    means = {name: mean("cifar10", name, 3, file="robustness.csv") for name in order}
    assert [name.removesuffix("_quiet") for name in sorted(means, key=means.get)] == sorted(values, key=values.get)


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("file", ["floors.csv", "fair_floors.csv"])
def test_maps_of_moreaugrad_jump_and_those_of_smoothgrad_do_not(dataset, file):
    far = {line["method"]: int(line["far"]) for line in RESULTS.select(file, {"dataset": dataset})}
    assert far["smoothgrad"] == far["sparsified_smoothgrad"] == 0
    assert (far["moreau"] > 0) is ((dataset, file) != ("cifar10", "floors.csv"))


@pytest.mark.parametrize("dataset", ["tiny_imagenet", "imagenet"])
def test_jumps_explain_little_of_the_distance_under_attack(dataset):
    for line in RESULTS.select("jumps.csv", {"dataset": dataset, "method": "moreau"}):
        every, rest, printed = (float(line[name]) for name in ("mean", "mean_without", "published"))
        assert (every - rest) / (every - printed) < 0.3
        assert 1.8 < every / printed < 4.4  # two to four times as far as published


def in_units(step, dataset, method="moreau", norm=10, side=None):
    """Mean, low and high end of a step of the published protocol, at the authors' budget."""
    where = {"dataset": dataset, "method": method, "protocol": step, "epsilon": str(norm), "mode": "strongest"}
    where |= {"metric": "normalised_distance_full"} | ({} if side is None else {"side": str(side)})
    line = RESULTS.one("units.csv", where)
    return tuple(float(line[name]) for name in ("mean", "mean_low", "mean_high"))


def test_the_paper_s_units_halve_how_far_the_same_attack_gets():
    ours, theirs = (in_units(step, "imagenet", side=128) for step in ("ours", "paper"))
    assert theirs[2] < ours[1]
    assert 1.7 < ours[0] / theirs[0] < 3


def test_on_whole_photos_in_the_paper_s_units_maps_move_about_as_far_as_published():
    printed = {norm: published("imagenet")["moreau", norm] for norm in (1, 3, 10, 20)}
    for norm in (1, 3):
        _, low, high = in_units("curve", "imagenet", norm=norm)
        assert low < printed[norm] < high
    for norm in (10, 20):
        assert printed[norm] - 0.07 < in_units("curve", "imagenet", norm=norm)[0] < printed[norm]


def test_on_tiny_imagenet_the_curves_begin_together_and_ours_rises_faster():
    for method, norms in (("moreau", (3, 10, 20)), ("sparse_moreau", (3,))):
        printed = published("tiny_imagenet")
        _, low, high = in_units("curve", "tiny_imagenet", method, 1)
        assert low < printed[method, 1] < high
        assert all(in_units("curve", "tiny_imagenet", method, norm)[1] > printed[method, norm] for norm in norms)
    gap = in_units("curve", "tiny_imagenet")[0] - printed["moreau", 10]
    full = interval("tiny_imagenet", "moreau", 10, "normalised_distance_signed", file="robustness.csv")[0]
    assert gap < 0.2 * (full - printed["moreau", 10])


def test_with_converted_norms_the_full_protocol_meets_the_published_curve_on_photos():
    """Norm 10 in the network's units is a little more than 20 in the paper's; maps that jump aside."""
    line = RESULTS.one("converted.csv", {"dataset": "imagenet", "method": "moreau", "epsilon": "10"})
    assert 20 < float(line["norm"]) < 23
    assert float(line["mean_low"]) < published("imagenet")["moreau", 20] < float(line["mean_high"])


def test_converted_norms_are_not_all_for_sparse_maps_and_tiny_imagenet():
    for dataset, method in (
        ("imagenet", "sparse_moreau"),
        ("tiny_imagenet", "moreau"),
        ("tiny_imagenet", "sparse_moreau"),
    ):
        line = RESULTS.one("converted.csv", {"dataset": dataset, "method": method, "epsilon": "10"})
        assert float(line["mean_low"]) > published(dataset)[method, 20]


@pytest.mark.parametrize("dataset", ["tiny_imagenet", "imagenet"])
def test_small_attacks_move_the_gradient_farther_in_the_units_of_the_network(dataset):
    assert interval(dataset, "gradient", 1, file="robustness_all.csv")[1] > published(dataset)["gradient", 1]


def differing(norm, statistic):
    where = {"dataset": "cifar10", "metric": DISTANCE, "epsilon": norm, "order": "differs", "statistic": statistic}
    return [(pair["method"], pair["other"]) for pair in RESULTS.select("ordering.csv", where)]


def test_the_order_on_cifar10_is_the_published_one_but_for_smoothgrad_and_by_medians_one_more():
    assert all("smoothgrad" in pair for norm in ("3", "10") for pair in differing(norm, "mean"))
    for statistic in ("median", "all"):
        assert any("sparsified_smoothgrad" in pair for pair in differing("10", statistic))


# accuracy


@pytest.mark.parametrize("dataset", DATASETS)
def test_moreaugrad_explains_as_well_as_smoothgrad_and_sparse_maps_cost_little_more(dataset):
    assert all(merit(dataset, "moreau", metric)[0] > 0 for metric in DELETION)
    assert (merit(dataset, "moreau", "deletion")[1] > 0) is (dataset != "cifar10")
    assert -0.02 < merit(dataset, "moreau", "insertion")[0] < 0
    assert all(merit(dataset, "sparse_moreau", metric)[0] > -0.025 for metric in CURVES)


def test_sparse_maps_lie_on_the_object():
    sparse = ("sparse_moreau", "group_sparse_moreau")
    assert all(merit("tiny_imagenet", method, "energy_in_box")[1] > 0 for method in sparse)
    where = {"dataset": "tiny_imagenet", "metric": "energy_in_box", "over": "all"}
    energy = {line["method"]: float(line["mean"]) for line in RESULTS.select("accuracy.csv", where)}
    assert set(sorted(energy, key=energy.get)[-2:]) == set(sparse)
    assert abs(energy[sparse[0]] - energy[sparse[1]]) < 0.01


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_most_robust_method_is_less_faithful(dataset):
    for method in ("sparsified_smoothgrad", "gradcam"):
        assert all(merit(dataset, method, metric)[2] < 0 for metric in DELETION)
        assert merit(dataset, method, "insertion")[2] > 0
        assert (merit(dataset, method, "insertion")[1] > 0) is (dataset == "cifar10")
    for method in PLAIN:
        assert all(merit(dataset, method, metric)[2] < 0 for metric in CURVES)
    if dataset == "tiny_imagenet":
        assert merit(dataset, "sparsified_smoothgrad", "energy_in_box")[1] > 0


def test_deletion_to_the_mean_colour_says_little_on_cifar10():
    _, low, high = merit("cifar10", "random", "deletion")
    assert low < 0 < high


def test_one_map_jumps_in_the_sweep_of_rho():
    far = dict.fromkeys((0.1, 0.3, 1.0), 0)
    for line in RESULTS.lines("solutions.csv"):
        far[float(line["rho"])] += int(line["far"])
    assert far == {0.1: 0, 0.3: 0, 1.0: 1}


# sparse and robust

_NORMS = ("1.71429", "5.71429")  # 3 and 10 for images of 224 pixels, at 128
FRONTIER = {"cifar10": ("1", "3"), "tiny_imagenet": _NORMS, "imagenet": _NORMS}  # data set -> the two norms


def moved(dataset, norm, statistic, noise, rho="0", method="statistics"):
    where = {"dataset": dataset, "epsilon": norm, "statistic": statistic, "noise": noise, "rho": rho, "share": "0.1"}
    return float(RESULTS.one("frontier.csv", where | {"method": method})["moved"])


def robust_preset(dataset, measure, norm="", other="sparse_moreau"):
    where = {"dataset": dataset, "statistic": "rms", "noise": "0.2", "rho": "0", "over": "all", "other": other}
    line = RESULTS.one("frontier_goal.csv", where | {"method": "statistics", "measure": measure, "epsilon": norm})
    return tuple(float(line[name]) for name in ("mean", "mean_low", "mean_high"))


@pytest.mark.parametrize("dataset", FRONTIER)
def test_noise_is_the_strongest_lever_then_the_statistic(dataset):
    small, large = FRONTIER[dataset]
    quiet, loud = (moved(dataset, large, "mean", noise) for noise in ("0.1", "0.2"))
    rms = moved(dataset, large, "rms", "0.2")
    assert quiet - loud > loud - rms > 0
    assert (moved(dataset, large, "rms", "0.1") < 0.95 * quiet) is (dataset == "imagenet")
    if dataset == "cifar10":
        where = {
            "dataset": dataset,
            "statistic": "rms",
            "method": "statistics",
            "rho": "0",
            "share": "0.1",
            "epsilon": large,
        }
        levels = {noise: RESULTS.one("frontier.csv", where | {"noise": noise}) for noise in ("0.2", "0.3", "0.4")}
        for name in ("moved", "insertion"):
            values = [float(line[name]) for line in levels.values()]
            assert values == sorted(values, reverse=True)
        return
    for norm in (small, large):
        assert moved(dataset, norm, "mean", "0.1", "1") > 1.1 * moved(dataset, norm, "mean", "0.1")


@pytest.mark.parametrize("dataset", FRONTIER)
def test_the_robust_preset_is_moved_less_far_inserts_no_worse_and_deletes_worse(dataset):
    for norm in FRONTIER[dataset]:
        assert robust_preset(dataset, "ratio", norm)[0] < (0.7 if dataset == "imagenet" else 0.6)
        over_sparsified = robust_preset(dataset, "ratio", norm, "sparsified_smoothgrad")
        assert over_sparsified[0] < 1 or (dataset, norm) == ("imagenet", "1.71429")
        assert over_sparsified[1] < 1
    _, low, high = robust_preset(dataset, "insertion")
    assert high > 0
    assert (low > 0) is (dataset != "cifar10")
    worse, low, _ = robust_preset(dataset, "deletion")
    assert worse > 0
    assert (low > 0) is (dataset == "imagenet")


def test_the_slope_of_the_mean_square_is_better_but_for_the_largest_norm_on_cifar10():
    for dataset, norms in (FRONTIER | {"cifar10": ("0.3", "1", "3")}).items():
        for norm in norms:
            where = {"dataset": dataset, "epsilon": norm, "method": "sparsified_smoothgrad", "share": "0.1"}
            line = RESULTS.one("frontier_attacks.csv", where)
            gain = float(line["reached_square"]) / float(line["reached_relaxed"])
            assert (gain > 1.05) is ((dataset, norm) != ("cifar10", "3"))

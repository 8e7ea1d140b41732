"""What paper/README.md says in words, held against the committed tables: words do not change when a number does."""

import paper_path
import pytest

from paper import readme
from paper.tables import Results

FOLDER = readme.RESULTS
DATASETS = ("cifar10", "tiny_imagenet", "imagenet")
AVERAGED = ("smoothgrad", "sparsified_smoothgrad", "moreau", "sparse_moreau")
PLAIN = ("gradient", "integrated_gradients")
BETTER = {"normalised_distance": -1, "topk_intersection": 1, "ssim": 1}  # the sign of more robust

assert paper_path  # puts the repository on the path
pytestmark = pytest.mark.skipif(
    not (FOLDER / "fair.csv").is_file(), reason="paper/results/fair.csv is not there; `python -m paper --figure fair`"
)


@pytest.fixture(scope="module")
def told():
    results = Results(FOLDER)

    def value(dataset, method, norm, metric="normalised_distance", mode="strongest", file="fair.csv"):
        given = {"dataset": dataset, "method": method, "metric": metric}
        lines = [line for line in results.some(file, given) if line["mode"].partition(":")[0] == mode]
        (line,) = [line for line in lines if float(line["epsilon"]) == norm]
        return tuple(float(line[name]) for name in ("mean", "mean_low", "mean_high"))

    return value


@pytest.fixture(scope="module")
def norms():
    lines = Results(FOLDER).some("fair.csv", {"mode": "strongest"})
    return {name: sorted({float(each["epsilon"]) for each in lines if each["dataset"] == name}) for name in DATASETS}


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("metric", BETTER)
def test_sparsified_smoothgrad_is_moved_least_everywhere(told, norms, dataset, metric):
    sign = BETTER[metric]
    for norm in norms[dataset]:
        means = {method: sign * told(dataset, method, norm, metric)[0] for method in (*AVERAGED, *PLAIN)}
        assert max(means, key=means.get) == "sparsified_smoothgrad", norm


@pytest.mark.parametrize("dataset", DATASETS)
def test_averaged_maps_are_far_ahead_where_an_attack_is_small(told, norms, dataset):
    small = norms[dataset][0]
    assert 2 * max(told(dataset, m, small)[0] for m in AVERAGED) < min(told(dataset, m, small)[0] for m in PLAIN)


def test_no_winner_between_moreaugrad_and_smoothgrad_at_the_larger_norms_of_cifar10(told, norms):
    for norm in norms["cifar10"][2:]:
        (_, low, high), (_, least, most) = (told("cifar10", method, norm) for method in ("moreau", "smoothgrad"))
        assert low <= most
        assert least <= high


def test_smoothgrad_is_ahead_of_moreaugrad_elsewhere(told, norms):
    for norm in norms["cifar10"][:2]:
        assert told("cifar10", "smoothgrad", norm)[2] < told("cifar10", "moreau", norm)[1]
    for dataset in DATASETS[1:]:
        for norm in norms[dataset]:
            assert told(dataset, "smoothgrad", norm)[0] < told(dataset, "moreau", norm)[0]


@pytest.mark.parametrize("dataset", DATASETS)
def test_zeros_have_their_price(told, norms, dataset):
    for norm in norms[dataset]:
        assert told(dataset, "sparse_moreau", norm)[0] > told(dataset, "moreau", norm)[0]
        top = [told(dataset, method, norm, "topk_intersection")[0] for method in ("sparse_moreau", "moreau")]
        assert top[0] < top[1]
        assert told(dataset, "sparse_moreau", norm, "ssim")[2] >= told(dataset, "moreau", norm, "ssim")[1]
    largest = norms[dataset][-1]
    assert told(dataset, "sparse_moreau", largest)[0] > 0.95 * told(dataset, "gradient", largest)[0]


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_lead_of_moreaugrad_is_the_frozen_derivative(told, norms, dataset):
    sizes = norms[dataset] if dataset == "cifar10" else norms[dataset][1:]
    for norm in sizes:
        frozen = told(dataset, "moreau", norm, mode="frozen")
        assert frozen[0] < told(dataset, "smoothgrad", norm)[0]
        assert frozen[0] < told(dataset, "moreau", norm)[0]


def test_ssim_of_maps_as_they_are_is_high_for_smoothgrad_too(told):
    for dataset, norm in (("cifar10", 10), ("imagenet", 20)):
        raw = [told(dataset, m, norm, "ssim_raw", file="robustness.csv")[0] for m in ("moreau", "smoothgrad")]
        pictures = [told(dataset, m, norm, "ssim", file="robustness.csv") for m in ("moreau", "smoothgrad")]
        assert raw[1] > raw[0] > max(mean for mean, _, _ in pictures)
    (_, low, high), (_, least, most) = pictures
    assert low <= most
    assert least <= high


def test_the_noise_of_two_seeds_is_above_the_published_curve_on_photos():
    line = Results(FOLDER).one("floors.csv", {"dataset": "imagenet", "method": "moreau"})
    assert float(line["floor"]) > float(line["published"])


def test_the_order_of_distances_on_cifar10_is_the_published_one_but_for_smoothgrad():
    for norm in ("3", "10"):
        where = {"dataset": "cifar10", "metric": "normalised_distance", "epsilon": norm, "order": "differs"}
        assert all(
            "smoothgrad" in (pair["method"], pair["other"]) for pair in Results(FOLDER).some("ordering.csv", where)
        )


def test_the_order_is_the_same_under_random_noise(told, norms):
    for norm in norms["cifar10"]:
        found = {method: told("cifar10", method, norm, file="noise.csv") for method in (*AVERAGED, *PLAIN)}
        assert min(found, key=lambda method: found[method][0]) == "sparsified_smoothgrad"
        assert max(found, key=lambda method: found[method][0]) == "gradient"
        assert found["moreau"][0] < found["sparse_moreau"][0] < found["integrated_gradients"][0]
        assert abs(found["moreau"][0] - found["smoothgrad"][0]) < 0.15 * found["smoothgrad"][0]

"""The numbers behind the corrections to the theory, by second derivations."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from paper.data import records
from paper.figures import theory
from paper.settings import Settings


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """theory.csv of images of known length, as name and case -> value."""
    out = tmp_path_factory.mktemp("theory")
    lengths = {"cifar10": 4.0, "imagenet": 25.0}

    def sample(name, settings, count):
        x = torch.zeros(count, 3, 2, 2)
        x[:, 0, 0, 0] = lengths[name]
        return SimpleNamespace(x=x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "sample", sample)
        assert theory.make(Settings(Path("data"), out, quick=True, device="cpu", datasets=tuple(lengths)))
    return {(line["name"], line["case"]): float(line["value"]) for line in records.read(out / "theory.csv")}


def test_the_sparse_map_moves_five_times_as_far_as_stated(numbers):
    """By hand: at (0, h) only the first entry is active, 2 d + 10 h + 5 - 1 = 0, so the map is 2 + 5 h."""
    assert numbers["counterexample_ratio", "sparse"] == pytest.approx(5, rel=1e-5)
    assert numbers["counterexample_map", "first-entry"] == pytest.approx(2, rel=1e-5)
    assert numbers["counterexample_map", "second-entry"] == 0
    h, active = theory.MOVE, -2 - 5 * theory.MOVE  # the inactive gradient stays within eta = 1 of zero
    assert abs(10 * (active + 10 * h) + 20) <= 1


def test_the_plain_map_keeps_the_stated_constant(numbers):
    """Its Jacobian is H (I + H)^-1 with H = v v', v = (1, 10)."""
    v = np.array([1.0, 10.0])
    jacobian = np.outer(v, v) @ np.linalg.inv(np.eye(2) + np.outer(v, v))
    assert numbers["counterexample_ratio", "plain"] == pytest.approx(np.linalg.norm(jacobian[:, 1]), rel=1e-5)
    assert numbers["counterexample_ratio", "plain"] <= numbers["lipschitz_stated", "counterexample"]


def test_sign_and_length_of_what_the_algorithm_returns(numbers):
    for case, rho in {"linear-rho-half": 0.5, "linear-rho-one": 1.0}.items():
        assert numbers["cosine_displacement", case] == pytest.approx(-1)
        assert numbers["cosine_map", case] == pytest.approx(1)
        assert numbers["length_displacement", case] == pytest.approx(rho)
        assert numbers["length_map", case] == pytest.approx(1)


def test_the_mean_length_of_the_noise_is_that_of_samples(numbers):
    lengths = np.linalg.norm(np.random.default_rng(0).normal(size=(2000, 3072)), axis=1) / math.sqrt(3072)
    error = lengths.std() / math.sqrt(len(lengths))
    assert numbers["mean_norm", "cifar10"] == pytest.approx(lengths.mean(), abs=4 * error)
    assert abs(numbers["mean_norm_published", "cifar10"] - lengths.mean()) > 100 * error
    assert numbers["mean_norm", "one"] == pytest.approx(numbers["mean_norm_published", "one"])


def test_the_sharp_constant_is_attained_by_a_kink(numbers):
    """The second derivative at 0 of E|x + z| is twice the normal density there."""
    step = 1e-3
    z = np.linspace(-12, 12, 2_000_001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    smooth = [np.trapezoid(np.abs(x + z) * density, z) for x in (-step, 0.0, step)]
    curvature = (smooth[0] - 2 * smooth[1] + smooth[2]) / step**2
    assert numbers["curvature_sharp", "any"] == pytest.approx(curvature, rel=1e-4)
    for case in ("cifar10", "imagenet"):
        assert numbers["curvature_loose_by", case] == pytest.approx(
            numbers["curvature_published", case] / numbers["curvature_sharp", "any"], rel=1e-5
        )


def test_the_rule_of_thumb_is_measured(numbers):
    assert numbers["rule_of_thumb", "cifar10"] == pytest.approx(0.5)
    assert numbers["rule_of_thumb", "imagenet"] == pytest.approx(0.2)

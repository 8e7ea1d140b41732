"""The published protocol in other units: what is converted, what few gradients say of many, and what is left behind."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from paper_network import SIZE, Small

import moreaugrad as mg
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.studies import run as writing
from paper.data import records
from paper.figures import study_runs, units
from paper.report import attenuation, tables
from paper.report.markdown import Results
from paper.settings import Settings


def distance(a, b):
    return float((a / a.norm() - b / b.norm()).norm())


@pytest.mark.parametrize("cosine", [1.0, 0.98, 0.6])
def test_few_samples_tell_what_many_would_give(cosine):
    """Means of known cosine under noise: extrapolated from few samples, and the same with a hundred times as many."""
    generator = torch.Generator().manual_seed(0)
    first, other, *noise = torch.randn(6, 400_000, generator=generator, dtype=torch.float64)
    second = cosine * first + math.sqrt(1 - cosine**2) * other
    few = [mean + 0.5 * each for mean, each in zip((first, first, second), noise, strict=False)]
    many = [mean + 0.05 * each for mean, each in zip((first, second), noise[::2], strict=False)]
    found = attenuation.extrapolate(distance(few[0], few[2]), distance(few[0], few[1]), 100)
    assert found == pytest.approx(distance(*many), abs=0.02)
    assert distance(few[0], few[2]) > 1.2 * found or cosine < 0.9
    assert attenuation.extrapolate(distance(few[0], few[2]), distance(few[0], few[1]), 1) == pytest.approx(
        distance(few[0], few[2]), abs=1e-6 if cosine < 1 else 0.01
    )


def test_without_noise_a_distance_stays():
    for ratio in (1, 7, 1e6):
        assert attenuation.extrapolate(0.3, 0.0, ratio) == pytest.approx(0.3)
    assert math.isnan(attenuation.extrapolate(1.4, 1.5, 10))


def test_rows_are_corrected_by_the_floor_of_their_own_image():
    floors = [{"method": "m", "key": key, "mode": "floor", attenuation.SIGNED: value} for key, value in ("a0", "b1")]
    hit = {"method": "m", "mode": "strongest", attenuation.SIGNED: "1"}
    found = attenuation.extrapolate_rows([*floors, hit | {"key": "a"}, hit | {"key": "b"}], 100)
    assert float(found[2][attenuation.SIGNED]) == pytest.approx(1)
    assert float(found[3][attenuation.SIGNED]) == pytest.approx(attenuation.extrapolate(1, 1, 100))


def settings(folder, **more):
    return Settings(folder, folder / "out", device="cpu", datasets=("tiny_imagenet", "imagenet"), **more)


def test_lengths_follow_the_size_of_the_images_and_the_network_s_kinks_stay(tmp_path):
    """A pixel of a smaller image changes as much: rho * gradient and eta / gradient must stay what they were."""
    plans = [*units.SHORT, *units.FULL]
    at = {(of.step, of.dataset, of.method, of.side): units.make_study(of, settings(tmp_path)) for of in plans}
    whole, part = at["curve", "imagenet", "moreau", 224], at["ours", "imagenet", "moreau", 128]
    shrunk = 128 / 224
    assert whole.epsilons == units.NORMS
    assert part.epsilons == (pytest.approx(10 * shrunk),)
    assert whole.methods["moreau"]["rho"] == 1
    assert part.methods["moreau"]["rho"] == pytest.approx(shrunk**2)
    sparse = at["curve", "imagenet", "sparse_moreau", 128].methods["sparse_moreau"]
    assert sparse["rho"] * sparse["eta"] == pytest.approx(0.005)
    steps = [at[step, "imagenet", "moreau", 128].methods["moreau"]["hessian_step"] for step in ("ours", "paper")]
    assert steps[1] / steps[0] == pytest.approx(0.502 / 0.226)  # the same change of the pixels
    assert "hessian_step" not in at["smooth", "imagenet", "moreau", 128].methods["moreau"]
    assert not any(each.common_noise for each in at.values())


def test_steps_add_one_thing_each():
    steps = [(each.units, each.smooth, each.noise_free) for each in units.STEPS.values()]
    assert [sum(step) for step in steps] == [0, 1, 2, 3]
    assert all(a <= b for one, two in pairwise(steps) for a, b in zip(one, two, strict=True))


def test_a_network_is_changed_as_its_description_says():
    classifier = Classifier(
        torch.nn.Sequential(torch.nn.ReLU6()), CentreCrop((8, 8), (8, 8), (0.5,) * 3, (0.5,) * 3), "a"
    )
    found = units.Network(16, units.STEPS["authors"])(classifier)
    assert found.size == (16, 16)
    assert found.view.std == (0.229, 0.224, 0.225)
    assert not mg.model.surgery.has_kinks(found)
    assert units.Network(None, units.STEPS["ours"])(classifier) is classifier
    assert str(units.Network(128, units.STEPS["smooth"])) == "128 pixels, the paper's units, softplus"


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Quick settings on a small network; the studies' own curves are not drawn."""
    view = CentreCrop((SIZE, SIZE), (SIZE, SIZE), (0.5,) * 3, (0.5,) * 3)
    network = Classifier(Small().eval().requires_grad_(False), view, "small")

    def sample(name, asked, count, change=None):
        x = torch.rand(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(len(name)))
        made = network if change is None else change(network)
        return SimpleNamespace(classifier=made, x=(x - made.mean) / made.std, keys=[f"{name}{n}" for n in range(count)])

    known = {(of.step, of.dataset, of.method, of.norms): of for of in units.SHORT}
    few = [("ours", "moreau", (10.0,)), ("authors", "moreau", (10.0,)), ("curve", "sparse_moreau", units.NORMS[2:])]
    few = [known[step, "imagenet", *more] for step, *more in [*few, ("curve", "gradient", units.SMALL)]]
    monkeypatch.setattr(units, "SHORT", few)
    monkeypatch.setattr(study_runs, "sample", sample)
    monkeypatch.setattr(writing, "curves", lambda *args, **options: None)
    monkeypatch.setattr(writing.pictures, "write", lambda figure, path: path.touch())
    return settings(tmp_path, quick=True)


def test_studies_leave_a_table_and_a_picture(quick):
    assert units.make(quick)
    lines = records.read(quick.out / "units.csv")
    assert (quick.out / "units.png").stat().st_size > 10_000
    assert {line["protocol"] for line in lines} == {"ours", "authors", "curve"}
    hits = [line for line in lines if (line["mode"], line["metric"]) == ("strongest", attenuation.FULL)]
    assert len(hits) == sum(len(of.norms) for of in units.SHORT)
    for line in hits:
        assert float(line["epsilon"]) in units.NORMS  # whatever the size of the images
        assert float(line["published"]) > 0
    text = tables.make(Results(quick.out), "units", {})
    assert len(text.splitlines()) == 2 + len(hits)
    assert units.make(quick)  # resumed: nothing is left to do


def test_a_few_studies_are_enough_for_a_picture(quick, monkeypatch):
    monkeypatch.setattr(units, "SHORT", units.SHORT[:1])
    assert units.make(quick)
    assert (quick.out / "units.png").is_file()

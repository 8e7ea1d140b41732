"""Presets: one word for several options, that any option given wins over, and that results and records name."""

import inspect
from dataclasses import replace

import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.methods import DEFAULT_PRESET, PRESETS, PUBLISHED
from moreaugrad.methods.options import describe_options, make_method, with_default_preset

FAMILY = [name for name, entry in mg.METHODS.items() if "preset" in entry.flags and entry.member is None]
OTHERS = [name for name, entry in mg.METHODS.items() if not {"preset", "trained"} & entry.flags]
X = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
BUDGET = {"budget": 48}
EVERY = pytest.mark.parametrize("name", FAMILY)
PRESET = pytest.mark.parametrize("preset", PRESETS)


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.Softplus(), nn.Flatten(), nn.Linear(216, 4)).eval()


NET = network()


def values(method):
    """The options that presets have, as the method has them."""
    return {"rho": method.rho, "noise_level": method.noise.noise_level, "statistic": method.statistic}


@pytest.fixture
def solving(monkeypatch):
    """A preset that takes the gradients at the input, whatever the presets of the package do."""
    preset = {"rho": 0.0, "noise_level": 0.3, "statistic": "votes"}
    monkeypatch.setattr(mg.MoreauGrad, "presets", {**PRESETS, "unsolved": preset})
    return "unsolved"


@EVERY
@PRESET
def test_a_preset_is_its_options_bit_for_bit(name, preset):
    word = mg.METHODS[name](NET, preset=preset, **BUDGET)
    long = mg.METHODS[name](NET, **PRESETS[preset], **BUDGET)
    assert values(word) == PRESETS[preset]
    assert torch.equal(word.attribute(X, 1), long.attribute(X, 1))
    assert {**word.options(), "preset": None} == long.options()


@EVERY
def test_the_classes_have_the_published_options(name):
    assert values(mg.METHODS[name](NET)) == PRESETS[PUBLISHED]
    assert mg.METHODS[name](NET).options()["preset"] is None


@PRESET
@pytest.mark.parametrize(
    ("given", "value"), [("rho", 0.7), ("noise_level", 0.33), ("statistic", "geometric"), ("budget", 64)]
)
def test_an_option_that_is_given_wins(preset, given, value):
    made = mg.SparseMoreauGrad(NET, preset=preset, **{given: value})
    wanted = {**PRESETS[preset], given: value}
    assert values(made) == {name: wanted[name] for name in PRESETS[preset]}
    assert made.preset == preset
    differs = given != "budget"
    assert made.options()["preset"] == (f"{preset} with {given}={value}" if differs else preset)


def test_an_option_by_its_place_wins_too():
    assert mg.MoreauGrad(NET, 0.7, preset=DEFAULT_PRESET).rho == 0.7


@PRESET
@pytest.mark.parametrize(
    "given",
    [{"smoothing": mg.Smoothing(sigma=0.4)}, {"sigma": 0.4}, {"noise_level": 0.4}, {"sigma": 0.4, "samples": 4}],
)
def test_noise_gives_way_to_noise_of_any_kind(preset, given):
    made = mg.MoreauGrad(NET, preset=preset, **given)
    assert 0.4 in (made.noise.sigma, made.noise.noise_level)
    assert (made.rho, made.statistic) == (PRESETS[preset]["rho"], PRESETS[preset]["statistic"])
    kind = "noise_level" if "noise_level" in given else "sigma"
    assert made.options()["preset"] == f"{preset} with {kind}=0.4"


@PRESET
def test_the_number_of_samples_leaves_the_noise_alone(preset):
    made = mg.MoreauGrad(NET, preset=preset, samples=4)
    assert made.noise == mg.Smoothing(noise_level=PRESETS[preset]["noise_level"], samples=4)
    assert mg.MoreauGrad(NET, preset=preset, noise_level=None, sigma=None).noise.noise_level == made.noise.noise_level


@EVERY
@PRESET
def test_copies_keep_the_preset_and_take_options(name, preset):
    made = mg.METHODS[name](NET, preset=preset, **BUDGET)
    assert replace(made).options() == made.options()
    other = replace(made, rho=0.7, seed=3)
    assert values(other) == {**PRESETS[preset], "rho": 0.7}
    assert (other.preset, other.options()["preset"]) == (preset, f"{preset} with rho=0.7")
    assert replace(other, seed=0).options() == replace(made, rho=0.7).options()
    assert made.with_statistic("votes").statistic == "votes"


@pytest.mark.parametrize("before", [None, PUBLISHED])
def test_a_copy_takes_no_other_preset(before):
    made = mg.SparseMoreauGrad(NET, preset=before)
    with pytest.raises(ValueError, match=r"preset must be given to a new method.*SparseMoreauGrad\(method"):
        replace(made, preset="robust")


@pytest.mark.parametrize(("given", "words"), [("robst", "Did you mean 'robust'"), (3, "got 3"), (["robust"], "robust")])
def test_an_unknown_preset_is_answered_with_the_nearest(given, words):
    with pytest.raises(ValueError, match=words):
        mg.SparseMoreauGrad(NET, preset=given)
    with pytest.raises(ValueError, match=words):
        mg.explain(NET, X, preset=given)


@pytest.mark.parametrize("name", OTHERS)
def test_a_method_without_presets_says_so(name):
    with pytest.raises((TypeError, ValueError), match="no presets"):
        mg.METHODS[name](NET, preset="robust")
    with pytest.raises(ValueError, match=f"{name} has no presets.*{', '.join(FAMILY)}"):
        make_method(name, NET, {"preset": "robust"})


def test_errors_say_what_a_preset_has_set(solving):
    with pytest.raises(ValueError, match=r"got solver='paper'.*rho=0.0 came from preset='unsolved'$"):
        mg.MoreauGrad(NET, preset=solving, solver="paper")
    with pytest.raises(ValueError, match=r"got smoothing=None.*statistic='votes' came from preset='unsolved'$"):
        mg.MoreauGrad(NET, preset=solving, noise_level=0)
    with pytest.raises(ValueError, match=r"positive rho$"):  # nobody but the user has set it
        mg.MoreauGrad(NET, 0.0, preset=solving, solver="paper")
    with pytest.raises(ValueError, match="sparsity=") as told:
        mg.SparseMoreauGrad(NET, preset=solving, eta=0.1, sparsity=0.1)
    assert "came from" not in str(told.value)


def test_a_positive_rho_and_a_solver_fit_an_unsolved_preset(solving):
    found = mg.MoreauGrad(NET, 0.2, preset=solving, solver=mg.DualAveraging(), **BUDGET).explain(X, 1)
    assert found.options["preset"] == "unsolved with rho=0.2"
    assert float(found.delta.abs().max()) > 0


@EVERY
@PRESET
def test_results_say_which_preset_and_which_options(name, preset, tmp_path):
    found = mg.METHODS[name](NET, preset=preset, **BUDGET).explain(X)
    loaded = mg.Explanation.load(found.save(tmp_path / "maps"))
    for each in (found, loaded, found[0], mg.Explanation.concat([found, found])):
        assert {**each.options, **PRESETS[preset]} == {**each.options, "noise_level": PRESETS[preset]["noise_level"]}
        assert each.options["preset"] == preset
        assert f"preset {preset}" in str(each).splitlines()[0]
        assert each.to_dict()["options"]["preset"] == preset
    assert mg.SmoothGrad(NET, samples=4).explain(X).options.get("preset", "none") == "none"
    assert "preset" not in str(mg.METHODS[name](NET, **BUDGET).explain(X))


@EVERY
@PRESET
def test_a_record_makes_the_method_again(name, preset):
    made = make_method(name, NET, {"preset": preset, "rho": 0.7, "samples": 4})
    record = describe_options(made)
    assert {name: record[name] for name in PRESETS[preset]} == {**PRESETS[preset], "rho": 0.7}
    again = make_method(name, NET, record)
    assert (again.options(), again.preset) == (made.options(), preset)


@EVERY
def test_signatures_show_presets(name):
    shown = inspect.signature(mg.METHODS[name].load()).parameters
    assert shown["preset"].default is None
    assert "preset:" in inspect.getdoc(mg.MoreauGrad)


@EVERY
def test_explain_takes_the_default_preset_and_any_other(name):
    for given in ({}, *({"preset": preset} for preset in PRESETS)):
        found = mg.explain(NET, X, name, target=1, **given, **BUDGET)
        preset = given.get("preset", DEFAULT_PRESET)
        assert found.options["preset"] == preset
        assert torch.equal(found.map, mg.METHODS[name](NET, preset=preset, **BUDGET).attribute(X, 1))
    plain = mg.explain(NET, X, name, target=1, preset=None, **BUDGET)
    assert torch.equal(plain.map, mg.METHODS[name](NET, **BUDGET).attribute(X, 1))


@pytest.mark.parametrize("given", [{"noise_level": 0}, {"sigma": 0}, {"smoothing": None}, {"solver": "dual_averaging"}])
def test_what_was_possible_without_presets_is_possible_with_the_default_one(given):
    found = mg.explain(NET, X, target=1, **given, **BUDGET)
    assert found.map.isfinite().all()
    made = with_default_preset("sparse_moreau", given)
    assert found.options["preset"].startswith(made["preset"])
    assert make_method("sparse_moreau", NET, made).options()["preset"] == found.options["preset"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_methods_get_no_preset(name):
    assert with_default_preset(name, {"seed": 1}) == {"seed": 1}


@pytest.mark.parametrize("statistic", ["rms", "votes"])
@pytest.mark.parametrize("rho", [0.05, 0.4])
def test_the_envelope_does_not_depend_on_the_statistic(statistic, rho):
    x = X.double()
    options = {"rho": rho, "sigma": 0.2, **BUDGET}
    mean, other = (mg.MoreauGrad(network().double(), **options, statistic=each) for each in ("mean", statistic))
    wanted, found = mean.explain(x, 1), other.explain(x, 1)
    torch.testing.assert_close(found.delta, wanted.delta, rtol=0, atol=0)
    torch.testing.assert_close(found.envelope, wanted.envelope, rtol=1e-12, atol=1e-12)


def test_the_envelope_at_rho_zero_is_the_smoothed_score():
    x, net = X.double(), network().double()
    found = mg.SparseMoreauGrad(net, 0, sigma=0.2, budget=4000, statistic="rms").explain(x, 1)
    noise = torch.randn(4000, *x.shape[1:], dtype=x.dtype, generator=torch.Generator().manual_seed(5))
    scores = torch.stack([net(each + 0.2 * noise)[:, 1] for each in x]).detach()
    error = scores.std(1) / 4000**0.5
    assert bool(((found.envelope - scores.mean(1)).abs() < 6 * error).all())
    assert not found.delta.any()

"""What holds for every metric in the table: figures per image, ranges, symmetry, maps against themselves, bad input."""

import copy
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import small_maps
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_maps import Net, maps, net

from moreaugrad.metrics import METRICS, Metric

BOXES = torch.tensor([[2, 3, 9, 8], [0, 0, 12, 4], [5, 5, 6, 6]])
X = maps(9)


def gradient(model, x, target=1):
    """The simplest explainer, written out."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(model(x)[:, target].sum(), x)[0]


def factory(model):
    return partial(gradient, model)


def pair(name, rows, **options):
    return METRICS[name](maps(0)[rows], maps(1)[rows], **options)


def single(name, rows, **options):
    return METRICS[name](maps(0)[rows], **options)


def boxed(name, rows):
    return METRICS[name](maps(0)[rows], BOXES[rows])


def judged(name, rows):
    return METRICS[name](maps(0)[rows], X[rows], net(), 2)


EXAMPLES = {
    **dict.fromkeys(
        ("normalised_distance", "topk_intersection", "ssim", "cosine", "spearman", "pearson", "centre_shift"), pair
    ),
    "kl_divergence": pair,
    **dict.fromkeys(("nonzero_share", "gini", "hoyer"), single),
    "active_groups": partial(single, groups=4),
    "pointing_game": boxed,
    "energy_in_box": boxed,
    "insertion": judged,
    "deletion": judged,
    "local_lipschitz": lambda name, rows: METRICS[name](factory(net()), X[rows]),
    "sanity_check": lambda name, rows: METRICS[name](factory, net(), X[rows]),
    "model_randomisation": lambda name, rows: METRICS[name](factory, net(), X[rows]).similarity,
}
EVERY = pytest.mark.parametrize("name", EXAMPLES)
OWN = {name for name in METRICS if METRICS[name].member is None}  # the others were registered by tests
PAIRS = [name for name in METRICS if name in OWN and METRICS[name].needs == "pair"]
ITSELF = {**dict.fromkeys(PAIRS, 1.0), "normalised_distance": 0.0, "centre_shift": 0.0, "kl_divergence": 0.0}
ASYMMETRIC = {"topk_intersection", "kl_divergence"}  # k, and the weights, are the first map's
SIGNED = ("normalised_distance", "cosine", "spearman", "pearson")
OPTIONS = {
    **{name: [{}, {"signed": True}] for name in SIGNED},
    "topk_intersection": [{}, {"k": 7}, {"k": 0.25}, {"k": 1.0}, {"k": 5, "per_pixel": True}],
    "ssim": [{}, {"raw": True}],
    "centre_shift": [{}],
    "kl_divergence": [{}],
}
COMPARED = pytest.mark.parametrize(
    ("name", "options"), [(name, each) for name in PAIRS for each in OPTIONS[name]], ids=str
)


def test_every_metric_has_an_example():
    assert set(EXAMPLES) == OWN
    assert set(OPTIONS) == set(PAIRS)


@EVERY
def test_entries_say_what_they_are(name):
    entry = METRICS[name]
    assert isinstance(entry, Metric)
    assert entry.summary
    assert entry.direction in ("lower", "higher", None)
    assert entry.needs in ("pair", "map", "box", "model", "explainer")
    assert entry.needs_explainer == (name in ("local_lipschitz", "sanity_check", "model_randomisation"))
    assert entry.range[0] < entry.range[1]
    assert entry.load().__name__ == name
    assert entry.load().__doc__


def test_listing_imports_no_torch():
    code = "import sys; from moreaugrad.metrics import METRICS; list(METRICS); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'ssim'"):
        METRICS["sssim"]


@EVERY
def test_one_number_per_image_in_the_range_and_the_same_alone(name):
    found = EXAMPLES[name](name, slice(None))
    assert found.shape[0] == 3
    assert found.ndim == (2 if name == "model_randomisation" else 1)
    assert found.dtype == torch.float64
    low, high = METRICS[name].range
    assert ((found >= low) & (found <= high)).all()
    alone = torch.cat([EXAMPLES[name](name, slice(i, i + 1)) for i in range(3)])
    torch.testing.assert_close(found, alone, rtol=1e-9, atol=1e-12)


@EVERY
def test_nothing_changes_but_the_answer(name):
    model, x, before = net(), X.clone(), torch.get_rng_state()
    weights, given_maps = copy.deepcopy(model.state_dict()), maps(0)
    calls = {
        "pair": (given_maps, x), "map": (given_maps,), "box": (given_maps, BOXES), "model": (given_maps, x, model, 1),
        "explainer": (factory, model, x) if name != "local_lipschitz" else (factory(model), x),
    }  # fmt: skip
    METRICS[name](*calls[METRICS[name].needs])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(x, X)
    assert not x.requires_grad
    assert torch.equal(given_maps, maps(0))
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module.training
    assert all(each.grad is None and each.requires_grad for each in model.parameters())


shapes = st.sampled_from([(1, 12, 13), (3, 11, 12), (12, 11)])
numbers = st.one_of(st.floats(-1e3, 1e3), st.sampled_from([0.0, 1.0, -1.0, 1e-12, 1e150, -1e-150]))


@st.composite
def drawn(draw):
    """Maps of many kinds: few values or many, sparse, constant, tiny, huge."""
    size = (2, *draw(shapes))
    values = torch.tensor(draw(st.lists(numbers, min_size=1, max_size=6)), dtype=torch.float64)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    return values[torch.randint(len(values), size, generator=generator)], generator


@COMPARED
@given(made=drawn(), kind=st.sampled_from(["shuffled", "noisy", "zero"]))
@settings(max_examples=30)
def test_ranges_symmetry_and_undefined_figures(name, options, made, kind):
    a, generator = made
    if options.get("raw"):  # not scaled, so its fourth powers must fit
        a = a.clamp(-1e3, 1e3)
    if kind == "zero":
        b = torch.zeros_like(a)
    elif kind == "shuffled":
        b = a.flatten()[torch.randperm(a.numel(), generator=generator)].view_as(a)
    else:
        b = a + torch.randn(a.shape, generator=generator, dtype=a.dtype)
    found = METRICS[name](a, b, **options)
    low, high = METRICS[name].range
    sizes = [each if options.get("signed") else each.abs() for each in (a, b)]
    flat = [each.flatten(1).amax(1) == each.flatten(1).amin(1) for each in sizes]
    void = [~each.flatten(1).any(1) for each in (a, b)]
    nan = {
        "cosine": void[0] ^ void[1], "kl_divergence": void[0] ^ void[1], "centre_shift": void[0] ^ void[1],
        "pearson": flat[0] ^ flat[1], "spearman": flat[0] ^ flat[1], "topk_intersection": void[0] ^ void[1],
    }.get(name, torch.zeros(2, dtype=torch.bool))  # fmt: skip
    assert torch.equal(found.isnan(), nan)
    assert ((found >= low) & (found <= high))[~nan].all()
    if name not in ASYMMETRIC:
        torch.testing.assert_close(METRICS[name](b, a, **options), found, equal_nan=True, rtol=1e-9, atol=1e-9)


@COMPARED
@given(made=drawn())
@settings(max_examples=30)
def test_every_map_is_like_itself(name, options, made):
    assert METRICS[name](made[0], made[0].clone(), **options).tolist() == [ITSELF[name]] * 2


@COMPARED
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.bool]
)
def test_every_real_dtype(name, options, dtype):
    a, b = (maps(0) * 20).to(dtype), (maps(1) * 20).to(dtype)
    found = METRICS[name](a, b, **options)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), METRICS[name](a.double(), b.double(), **options), rtol=1e-6, atol=1e-7)
    assert METRICS[name](a, a, **options).tolist() == [ITSELF[name]] * 3


@COMPARED
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_bad_entries_spoil_their_image_only(name, options, bad):
    a, b = maps(0), maps(1)
    clean = METRICS[name](a, b, **options)
    b[1, 0, 4, 4] = bad
    for pair in ((a, b), (b, a), (b, b)):
        assert METRICS[name](*pair, **options).isnan().tolist() == [False, True, False]
    assert torch.equal(METRICS[name](a, b, **options)[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("name", [n for n in EXAMPLES if METRICS[n].needs in ("map", "box", "model")])
def test_bad_entries_spoil_their_image_only_for_one_map(name):
    further = {"map": (), "box": (BOXES,), "model": (X, net(), 1)}[METRICS[name].needs]
    bad = maps(0)
    bad[1, 0, 4, 4] = torch.nan
    clean, found = METRICS[name](maps(0), *further), METRICS[name](bad, *further)
    assert found.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(found[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("name", PAIRS)
def test_bad_pairs_are_refused(name):
    a = maps(0)
    with pytest.raises(ValueError, match=r"one shape.*\(3, 2, 12, 14\) and \(3, 1, 12, 14\)"):
        METRICS[name](a, a[:, :1])
    with pytest.raises(ValueError, match=r"\(3, 2, 12, 14\) and \(2, 2, 12, 14\)"):
        METRICS[name](a, a[:2])
    with pytest.raises(TypeError, match=r"must be a tensor.*got ndarray; use torch.as_tensor"):
        METRICS[name](a, a.numpy())
    with pytest.raises(TypeError, match="must hold real numbers"):
        METRICS[name](a.to(torch.complex64), a)
    for shape in [(3,), (0, 2, 12, 14), ()]:
        with pytest.raises(ValueError, match="at least one map behind a batch axis"):
            METRICS[name](torch.zeros(shape), torch.zeros(shape))
    with pytest.raises(TypeError, match="got list"):
        METRICS[name]([a], a)


def test_an_explanation_is_answered_with_its_map():
    holder = type("Explanation", (), {"map": maps(0)})()
    with pytest.raises(TypeError, match=r"pass explanation\.map"):
        METRICS["gini"](holder)


def test_no_graph_is_kept():
    a = maps(0).requires_grad_()
    assert not METRICS["cosine"](a, maps(1)).requires_grad
    assert not METRICS["deletion"](a, X.clone().requires_grad_(), net(), 0).requires_grad


def test_models_in_training_mode_are_refused():
    for name, call in [("deletion", (maps(0), X, Net().double(), 0)), ("sanity_check", (factory, Net().double(), X))]:
        with pytest.raises(ValueError, match=r"model\.eval\(\)"):
            METRICS[name](*call)


@pytest.mark.gpu
@EVERY
def test_same_on_a_gpu(name, monkeypatch):
    wanted = EXAMPLES[name](name, slice(None))
    monkeypatch.setattr(sys.modules[__name__], "maps", lambda seed: small_maps.maps(seed).cuda())
    monkeypatch.setattr(sys.modules[__name__], "net", lambda: small_maps.net().cuda())
    monkeypatch.setattr(sys.modules[__name__], "X", X.cuda())
    found = EXAMPLES[name](name, slice(None))
    assert found.is_cuda
    assert np.allclose(found.cpu(), wanted, rtol=1e-6, atol=1e-8)

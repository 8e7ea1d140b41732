"""Wrong input is refused before any work, with what must hold, what came, and the way out."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.methods.mask_network.encoder import find_classifier
from moreaugrad.training.mask_networks import MaskRecipe, initial_mask_network

LINEAR = nn.Linear(6, 3).eval()
PICTURES = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)).eval()
X = torch.zeros(2, 6)


def broken(value):
    x = torch.zeros(3, 6)
    x[1, 2] = value
    return x


@pytest.mark.parametrize("name", mg.METHODS)
@pytest.mark.parametrize(
    ("x", "target", "kind", "says"),
    [
        (broken(float("nan")), 0, ValueError, r"finite.*row\(s\) \[1\]"),
        (broken(float("inf")), 0, ValueError, r"finite.*row\(s\) \[1\]"),
        (torch.zeros(6), 0, ValueError, r"batch axis.*\(6,\).*unsqueeze"),
        (torch.zeros(0, 6), 0, ValueError, "at least one image"),
        (torch.zeros(2, 6, dtype=torch.long), 0, TypeError, "floating point.*int64"),
        (np.zeros((2, 6), dtype=np.float32), 0, TypeError, "must be a tensor.*ndarray"),
        ((), 0, ValueError, "empty tuple"),
        ((torch.zeros(2, 3), torch.zeros(1, 3)), 0, ValueError, r"one batch size, got \[2, 1\]"),
        (X, 3, ValueError, r"target must be below 3.*got 3"),
        (X, -4, ValueError, "target must be below 3"),
        (X, [0, 5], ValueError, "target must be below 3.*got 5"),
        (X, [0, 1, 2], ValueError, "one entry per image, got 3 targets for 2 images"),
        (X, torch.tensor([0, 1, 2]), ValueError, "got 3 targets for 2 images"),
        (X, torch.zeros(2), TypeError, "class numbers"),
        (X, (0, 1), ValueError, r"1 index\(es\)|one class per image"),
        (X, "cat", TypeError, "got str"),
        (X, 1.5, TypeError, "got float"),
    ],
)
def test_inputs_and_targets(name, x, target, kind, says):
    options = {"groups": torch.arange(6)} if name.startswith("group") else {}
    model = LINEAR
    options |= {"tau": 0.5} if name == "sparsified_smoothgrad" else {}  # of six entries
    if {"layer", "trained"} & mg.METHODS[name].flags or name == "meaningful_perturbation":  # these want pictures
        model = PICTURES
        x = x.view(len(x), 1, 2, 3) if isinstance(x, torch.Tensor) and x.shape[1:] == (6,) else x
    if name == "mask_network":
        made, _ = initial_mask_network(MaskRecipe(width=8), find_classifier(model), torch.zeros(2, 1, 2, 3))
        options["network"] = made.eval()
    with pytest.raises(kind, match=says):
        mg.METHODS[name](model, **options).attribute(x, target=target)


def test_captums_rule_for_a_missing_target():
    with pytest.raises(ValueError, match=r"target must be given.*\.explain\(\)"):
        mg.MoreauGrad(LINEAR).attribute(X)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"rho": -1.0}, ValueError, "rho must be a finite number >= 0, got -1.0"),
        ({"rho": float("inf")}, ValueError, "rho must be a finite number >= 0"),
        ({"rho": float("nan")}, ValueError, "rho must be a finite number >= 0"),
        ({"rho": "1"}, TypeError, "rho must be a number, got '1'"),
        ({"eta": -0.1}, ValueError, "eta must be a finite number >= 0, got -0.1"),
        ({"eta": torch.tensor([0.1, -1.0])}, ValueError, "eta must be a finite number >= 0"),
        ({"eta": 0.1, "sparsity": 0.1}, ValueError, "eta and sparsity exclude each other"),
        ({"sparsity": 0.0}, ValueError, r"sparsity must be in \(0, 1\]"),
        ({"sparsity": 5}, ValueError, r"sparsity must be in \(0, 1\]"),
        ({"budget": 7}, ValueError, "budget must be at least samples, got budget=7 and samples=8"),
        ({"budget": "fastest"}, ValueError, "Did you mean 'fast'"),
        ({"budget": 1.5}, TypeError, "budget must be a whole number"),
        ({"score": "logits"}, ValueError, "Did you mean 'logit'"),
        ({"smoothing": 0.1}, TypeError, "smoothing must be a Smoothing or None"),
        ({"solver": "papr"}, ValueError, "Did you mean 'paper'"),
        ({"solver": 3}, TypeError, "solver must be None"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": 1.7}, TypeError, "seed must be a whole number"),
    ],
)
def test_options(options, kind, says):
    with pytest.raises(kind, match=says):
        mg.SparseMoreauGrad(LINEAR, **options)


def test_eta_of_another_length():
    with pytest.raises(ValueError, match="one per image, got 3 for 2 images"):
        mg.SparseMoreauGrad(LINEAR, eta=torch.tensor([0.1, 0.2, 0.3])).attribute(X, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"noise_level": 0.1, "sigma": 0.2}, "exclude each other"),
        ({"noise_level": -1.0}, "noise_level must be a positive"),
        ({"sigma": 0.0}, "sigma must be a positive"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
    ],
)
def test_smoothing(options, says):
    with pytest.raises(ValueError, match=says):
        mg.Smoothing(**options)


@pytest.mark.parametrize(
    ("groups", "kind", "says"),
    [
        (torch.zeros(3, 4, dtype=torch.long), ValueError, r"cover the whole input.*got \(3, 4\)"),
        (torch.zeros(5, dtype=torch.long), ValueError, r"cover the whole input.*got \(5,\)"),
        (torch.full((4, 4), -1), ValueError, "16 entries with a negative label"),
        (torch.zeros(4, 4), TypeError, "must hold integers"),
        ("superpixel", ValueError, "'superpixels'"),
        (0, ValueError, "groups must be at least 1"),
        (object(), TypeError, "got object"),
    ],
)
def test_groups(groups, kind, says):
    method = mg.GroupSparseMoreauGrad(lambda v: v.flatten(1).sum(1), groups=groups)
    with pytest.raises(kind, match=says):
        method.attribute(torch.zeros(2, 3, 4, 4))


def test_a_grid_needs_an_image():
    with pytest.raises(ValueError, match=r"label map of shape \(6,\)"):
        mg.GroupSparseMoreauGrad(LINEAR).attribute(X, 0)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(6), nn.Dropout(0.1), nn.RReLU()], ids=lambda m: type(m).__name__)
def test_a_model_in_training_mode(layer):
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        mg.Gradient(nn.Sequential(layer, nn.Linear(6, 3)).train()).attribute(X, 0)
    harmless = nn.Sequential(nn.Dropout(0.0), nn.ReLU(), nn.Linear(6, 3)).train()
    assert mg.Gradient(harmless).attribute(X, 0).shape == X.shape


def test_training_mode_behind_a_method_a_partial_and_a_closure():
    net = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)).train()
    before = net[0].running_mean.clone()
    for hidden in (net.forward, functools.partial(net), lambda v: 2 * net(v), Wrapper(net)):
        with pytest.raises(ValueError, match=r"model\.eval\(\)"):
            mg.MoreauGrad(hidden).attribute(torch.randn(2, 6), 0)
    assert torch.equal(net[0].running_mean, before)


class Wrapper:
    def __init__(self, net):
        self.net = net

    def __call__(self, v):
        return self.net(v)


def test_batch_statistics_are_refused_in_evaluation_too():
    net = nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)).eval()
    with pytest.raises(ValueError, match="track_running_stats"):
        mg.Gradient(net).attribute(X, 0)


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (lambda v: (v > 0).float(), "must be differentiable"),
        (lambda v: LINEAR(v.detach()), "gradient"),
        (lambda v: LINEAR(v.detach()).detach(), "must be differentiable"),
        (lambda v: LINEAR(v)[:1], "one row per input row"),
        (lambda v: LINEAR(v) * float("nan"), "score must be finite"),
        (lambda v: LINEAR(v) + v.abs().sqrt().sum(1, keepdim=True), "gradient must be finite"),
    ],
)
def test_a_model_that_cannot_be_explained(score, says):
    with pytest.raises(ValueError, match=says):
        mg.MoreauGrad(score, smoothing=None).attribute(X, 0, internal_batch_size=2)


def test_smoothgrad_without_noise():
    with pytest.raises(ValueError, match="use the method `gradient`"):
        mg.SmoothGrad(LINEAR, None)


def test_a_probability_needs_several_classes():
    with pytest.raises(ValueError, match="needs several class scores"):
        mg.Gradient(lambda v: LINEAR(v)[:, :1], score="prob").attribute(X, 0)


def test_a_model_that_returns_no_tensor():
    with pytest.raises(TypeError, match=r"must return a tensor or an object with \.logits, got tuple"):
        mg.Gradient(lambda v: (LINEAR(v),)).attribute(X, 0)


def test_unknown_names():
    with pytest.raises(ValueError, match="Did you mean 'moreau'"):
        mg.METHODS["morau"]
    with pytest.raises(KeyError):
        mg.METHODS["morau"]
    assert "morau" not in mg.METHODS
    with pytest.raises(ValueError, match="efficientnet_lite0"):
        mg.load_model("efficientnet_lite")


NESTED = torch.nested.nested_tensor([torch.zeros(6), torch.zeros(6)], layout=torch.jagged)
FORMS = {  # tensors whose entries cannot be read
    "sparse": X.to_sparse(),
    "sparse rows": torch.eye(6)[:2].to_sparse(),
    "meta": X.to("meta"),
    "nested": NESTED,
}


@pytest.mark.parametrize("form", FORMS)
def test_tensors_without_plain_values_are_refused_wherever_they_stand(form):
    odd = FORMS[form]
    target = torch.zeros(2, dtype=torch.long)
    places = {
        "inputs": lambda: mg.Gradient(LINEAR).attribute(odd, 0),
        "what the model returns": lambda: mg.Gradient(lambda v: odd).attribute(X, 0),
        "baselines": lambda: mg.IntegratedGradients(LINEAR).attribute(X, odd, 0),
        "eta": lambda: mg.SparseMoreauGrad(LINEAR, eta=odd),
        "a label map": lambda: mg.GroupSparseMoreauGrad(LINEAR, groups=odd).attribute(X, 0),
        "maps": lambda: mg.gini(odd),
        "target_map": lambda: mg.Manipulation(mg.Gradient(LINEAR), 0.1, target_map=odd),
    }
    for name, call in places.items():
        with pytest.raises(TypeError, match=f"{name}.* must be a dense tensor with values"):
            call()
    for given in (target.to("meta"), [target[:1].to("meta"), 0]):
        with pytest.raises(TypeError, match="target must be a dense tensor"):
            mg.Gradient(LINEAR).attribute(X, given)


@pytest.mark.parametrize("model", [None, 3, "resnet", nn.Linear, torch.zeros(3)])
def test_what_is_no_model_is_refused(model):
    x = torch.zeros(2, 1, 4, 4)
    calls = [
        lambda: mg.MoreauGrad(model).attribute(X, 0),
        lambda: mg.Gradient(mg.prepare(model)).explain(X),
        lambda: mg.Pgd(model, 0.1).perturb(X),
        lambda: mg.explain(3 if isinstance(model, str) else model, x, "gradient", top=1),  # a word would be loaded
        lambda: mg.Votes(model),
        lambda: mg.Odds(model, 0.0, 1.0),
        lambda: mg.deletion(x, x, lambda v: model, 0) if model is None else mg.Clipped(model, 0, 1),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="the model must"):
            call()


@pytest.mark.parametrize("network", [lambda v: LINEAR(v)[:, 0], lambda v: LINEAR(v)[:, :1], lambda v: LINEAR(v).long()])
def test_networks_that_are_bounded_return_logits_of_classes(network):
    for made in (mg.Votes(network), mg.Odds(network, 0.0, 1.0)):
        with pytest.raises(ValueError, match=r"must return logits \(N, classes\) of at least two classes"):
            made(X)


def test_a_model_must_return_real_numbers():
    for call in (
        lambda: mg.Gradient(lambda v: LINEAR(v).to(torch.complex64)).attribute(X, 0),
        lambda: mg.Pgd(lambda v: LINEAR(v).to(torch.complex64), 0.1).perturb(X),
    ):
        with pytest.raises(TypeError, match=r"must return real numbers, got torch\.complex64"):
            call()


def roots(v):
    return LINEAR(v) + (v * 0).sqrt().sum(1, keepdim=True)


@pytest.mark.parametrize("method", [mg.Gradient, functools.partial(mg.IntegratedGradients, steps=2)])
def test_a_map_that_is_not_finite_is_refused(method):
    """The score is finite here, so only the map can tell."""
    with pytest.raises(ValueError, match=r"the map must be finite, got NaN or infinity for image\(s\) \[0, 1\]"):
        method(roots).attribute(torch.ones(2, 6), target=0)


@pytest.mark.parametrize(
    ("target", "kind", "says"),
    [
        (2**63, ValueError, "a class of the model"),
        (-(10**30), ValueError, "a class of the model"),
        (np.uint64(2**64 - 1), ValueError, "2\\*\\*63"),
        (np.array(["a", "b"]), TypeError, "class numbers"),
        (np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), TypeError, "class numbers"),
        (torch.zeros(2, dtype=torch.complex64), TypeError, "class numbers"),
        ((slice(None),), TypeError, "got slice"),
        ((True,), TypeError, "got bool"),
        ([0, True], TypeError, "got bool"),
        ([0, (1,)], TypeError, "must hold ints or tuples"),
        ([], TypeError, "must hold ints or tuples"),
        ([[0], [1]], TypeError, "got list"),
        ([torch.tensor([0, 1]), 1], TypeError, "got Tensor"),
        (b"1", TypeError, "got bytes"),
        (np.bool_(True), TypeError, "class numbers"),
    ],
)
def test_targets_that_are_no_classes(target, kind, says):
    for call in (mg.Gradient(LINEAR).attribute, mg.Pgd(LINEAR, 0.1, steps=1).perturb):
        with pytest.raises(kind, match=says):
            call(X, target=target)


@pytest.mark.parametrize(
    "target",
    [
        [np.int64(0), np.uint8(2)],
        [torch.tensor(0), 2],
        np.array([0, 2], dtype=">i4"),
        torch.tensor([0, 2], dtype=torch.uint8),
        [(np.int16(0),), (2,)],
    ],
    ids=str,
)
def test_numbers_of_other_libraries_name_classes_too(target):
    x = torch.arange(12.0).view(2, 6)
    assert torch.equal(mg.Gradient(LINEAR).attribute(x, target), mg.Gradient(LINEAR).attribute(x, [0, 2]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seeds": 3}, "seeds must be a list"),
        ({"seeds": torch.tensor([1, 2])}, "seeds must be a list"),
        ({"statistics": "yes"}, "statistics must be True, False or None"),
        ({"show_progress": 2}, "show_progress must be True, False or None"),
        ({"callback": 1.5}, r"callback must be a function of \(step, total, info\)"),
    ],
)
def test_arguments_of_a_call(options, says):
    with pytest.raises(TypeError, match=says):
        mg.SmoothGrad(LINEAR, samples=2).explain(X, 0, **options)
    for name in ("create_graph", "return_convergence_delta"):
        with pytest.raises(TypeError, match=f"{name} must be True, False or None"):
            mg.MoreauGrad(LINEAR).attribute(X, 0, **{name: torch.ones(2)})


COMPARED = [[0.1], {"a": 1}, {1}, np.array([0.5, 0.25]), slice(None), 3, b"l2"]


@pytest.mark.parametrize("word", COMPARED, ids=repr)
def test_what_is_no_word_is_refused_like_an_unknown_one(word):
    calls = {
        "precision": lambda: mg.Gradient(LINEAR, precision=word),
        "norm": lambda: mg.Pgd(LINEAR, 0.1, norm=word),
        "aggregation": lambda: mg.NormGrad(PICTURES, aggregation=word),
        "statistic": lambda: mg.SmoothGrad(LINEAR, statistic=word),
        "score": lambda: mg.lipschitz_bounds(LINEAR, score=word),
        "engine": lambda: mg.RunOptions(engine=word),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name} must be one of"):
            call()


ODD_NUMBERS = [[1, 2], np.array([0.5, 0.25]), torch.tensor([0.5, 0.25]), "1", 1j, float("nan"), -1]


@pytest.mark.parametrize("odd", ODD_NUMBERS, ids=repr)
def test_numbers_of_noise_solvers_and_derivatives(odd):
    calls = {
        **{
            name: functools.partial(mg.DualAveraging, **{name: odd})
            for name in ("power", "late", "burn", "few", "budget")
        },
        "tol": lambda: mg.ProximalGradient(tol=odd),
        "tol ": lambda: mg.Covariance(tol=odd),
        "noise_level": lambda: mg.SmoothGrad(LINEAR, noise_level=odd),
        "sigma": lambda: mg.MoreauGrad(LINEAR, sigma=odd),
    }
    for name, call in calls.items():
        with pytest.raises((TypeError, ValueError), match=f"{name.strip()} must be"):
            call()


@pytest.mark.parametrize("flag", [0, "yes", None, torch.zeros(2)])
def test_flags_of_noise_and_runs(flag):
    calls = {
        "fixed": lambda: mg.Smoothing(fixed=flag),
        "resume": lambda: mg.RunOptions(resume=flag),
        "per_pixel": lambda: mg.TopK(mg.Gradient(LINEAR), 0.1, per_pixel=flag),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=f"{name} must be True or False"):
            call()
    if flag is not None:
        with pytest.raises(TypeError, match="compile must be True, False or None"):
            mg.Prepared(LINEAR, compile=flag)


@pytest.mark.parametrize("shard", [3, (1,), "ab", (0, 2), (1, 1.5)])
def test_shards(shard):
    with pytest.raises((TypeError, ValueError), match="shard must be"):
        mg.RunOptions(shard=shard)


@pytest.mark.parametrize(
    "as_numpy", [np.uint8, np.int8, np.int64, np.float32, np.float64], ids=lambda each: each.__name__
)
def test_numbers_of_numpy_are_the_numbers_that_they_are(as_numpy):
    """Small integers of NumPy overflow in sums with others, so they must not get there."""
    net = PICTURES
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    whole = {"samples": 4, "budget": 24, "seed": 100} if issubclass(as_numpy, np.integer) else {}
    real = {"rho": 1, "noise_level": 1, "sparsity": 1}
    for given in (whole, real):
        spelled = {name: as_numpy(value) for name, value in given.items()}
        wanted = mg.SparseMoreauGrad(net, **{"budget": 24, "samples": 4} | given).explain(x, 1)
        found = mg.SparseMoreauGrad(net, **{"budget": 24, "samples": 4} | spelled).explain(x, 1)
        assert torch.equal(found.map, wanted.map)
        assert {key: float(found.options[key]) for key in given if key in ("rho", "budget")} == {
            key: value for key, value in given.items() if key in ("rho", "budget")
        }
    if issubclass(as_numpy, np.integer):
        options = {"budget": as_numpy(4), "scale": as_numpy(4), "jitter": as_numpy(1)}
        found = mg.MeaningfulPerturbation(net, **options).attribute(x, 1)
        wanted = mg.MeaningfulPerturbation(net, **{key: int(value) for key, value in options.items()}).attribute(x, 1)
        assert torch.equal(found, wanted)
        solver = mg.DualAveraging(few=as_numpy(2), budget=as_numpy(100))
        assert solver == mg.DualAveraging(few=2, budget=100)
        assert mg.Smoothing(samples=as_numpy(100)) == mg.Smoothing(samples=100)


@pytest.mark.parametrize("large", [10**400, 1e300, 3.5e38], ids=["whole", "float64", "float32"])
def test_numbers_that_float32_cannot_hold_are_no_finite_ones(large):
    calls = (
        lambda: mg.MoreauGrad(LINEAR, rho=large),
        lambda: mg.Smoothing(sigma=large),
        lambda: mg.Manipulation(mg.Gradient(LINEAR), 0.1, target_map=torch.eye(6), step_size=large),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"finite number.*float32 ends at"):
            call()


def test_a_whole_number_beyond_64_bits_is_the_number_that_it_is():
    assert mg.ProximalGradient(tol=10**30).tol == 10**30
    method = mg.MoreauGrad(LINEAR, smoothing=None, solver=mg.ProximalGradient(tol=10**30))
    assert method.attribute(X, 0).shape == X.shape


@pytest.mark.parametrize("baseline", [10**400, 1e300, float("nan"), -float("inf")])
def test_baselines_fit_the_dtype_of_the_inputs(baseline):
    with pytest.raises(ValueError, match=r"baselines must be finite numbers of torch\.float32"):
        mg.IntegratedGradients(LINEAR).attribute(X, baseline, 0)


def test_several_inputs_where_one_is_meant():
    x = torch.rand(2, 1, 4, 4)
    pair = (x, x)
    calls = [
        lambda: mg.deletion(x, pair, PICTURES, 0),
        lambda: mg.local_lipschitz(lambda v: v, pair),
        lambda: mg.sanity_check(lambda model: lambda v: v, PICTURES, pair),
        lambda: mg.Pgd(PICTURES, 0.1).perturb(pair),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="inputs must be one tensor"):
            call()


def test_a_network_to_be_smoothed_is_a_module():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        mg.with_softplus(lambda v: v)


@pytest.mark.parametrize("centre", [None, "0", len, float("nan"), float("inf")], ids=repr)
def test_odds_are_centred_at_a_number(centre):
    with pytest.raises((TypeError, ValueError), match="centre must be a"):
        mg.Odds(LINEAR, centre, 1.0)


class Writing(nn.Module):
    """A model that doubles the rows it gets where they are; written without that, it is `Doubling`."""

    def forward(self, v):
        with torch.no_grad():
            v.mul_(2)
        return PICTURES(v.tanh())


class Doubling(nn.Module):
    def forward(self, v):
        return PICTURES((v + v.detach()).tanh())


@pytest.mark.parametrize("name", ["gradient", "smoothgrad", "moreau", "integrated_gradients", "relex"])
def test_a_model_that_writes_to_its_rows_writes_to_nobody_elses(name):
    x = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    before, options = x.clone(), {"budget": 80} if name in ("moreau", "relex") else {}
    found, wanted = (mg.METHODS[name](kind().eval(), **options).explain(x) for kind in (Writing, Doubling))
    assert torch.equal(found.target, wanted.target)
    torch.testing.assert_close(found.map, wanted.map)
    assert torch.equal(x, before)


def test_metrics_attacks_and_certificates_keep_the_inputs_from_a_model_that_writes():
    x = torch.rand(2, 1, 8, 8)
    before, net = x.clone(), Writing().eval()
    mg.insertion(x, x, net)
    mg.Pgd(net, 0.1, steps=2).perturb(x)
    mg.sanity_check(lambda model: lambda v: v.clone(), nn.Sequential(nn.Conv2d(1, 1, 1), net).eval(), x)
    votes = mg.SmoothGrad(net, mg.Smoothing(sigma=0.5, samples=4), statistic="votes")
    mg.certify(votes, x, epsilon=0.01, noise=mg.FreshNoise(samples=64, seed=1))
    assert torch.equal(x, before)

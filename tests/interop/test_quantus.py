"""The metrics of Quantus on our maps: closed forms on a linear network, second derivations on any."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import moreaugrad as mg

SIZE = 8
X = torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0)).numpy()
X[:, 0, 0, 0] = 0  # the smallest entry, by which Quantus replaces what it removes
Y = np.array([1, 0, 1])


class Linear(nn.Module):
    """Two classes; every map of it is known."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(3 * SIZE * SIZE, 2, bias=False)
        self.dense.weight.data.normal_(generator=torch.Generator().manual_seed(1))

    def forward(self, x):
        return self.dense(x.flatten(1))

    def gradient(self, targets):
        return self.dense.weight.detach().numpy()[targets].reshape(len(targets), 3, SIZE, SIZE)


@pytest.fixture
def net():
    return Linear().eval()


def input_times_gradient(model, x, target):
    return x * model.dense.weight.detach()[target].view_as(x)


def test_maps_are_arrays_summed_over_the_channels(net):
    found = mg.quantus_explain("gradient")(model=net, inputs=X, targets=Y)
    np.testing.assert_allclose(found, np.abs(net.gradient(Y)).sum(1, keepdims=True), rtol=1e-6)
    signed = mg.quantus_explain(mg.Gradient, signed=True)(model=net, inputs=X.astype(np.float64), targets=Y)
    np.testing.assert_allclose(signed, net.gradient(Y), rtol=1e-6)
    assert (found.dtype, signed.dtype) == (np.float32, np.float32)


def test_options_of_the_call_come_first_and_those_of_the_metric_are_ignored(net):
    explain_func = mg.quantus_explain("sparse_moreau", sparsity=0.5, budget=32)
    call = {"model": net, "inputs": X, "targets": Y}
    half = explain_func(**call, device="cpu", abs=True, normalise=True)
    less = explain_func(**call, sparsity=0.1)
    assert np.count_nonzero(less) < np.count_nonzero(half)
    np.testing.assert_array_equal(explain_func(**call), half)  # and not those of the last call
    with pytest.raises(KeyError, match="sparsty"):
        explain_func(**call, sparsty=0.1)


def test_a_model_that_changes_gets_maps_of_its_own(net):
    explain_func = mg.quantus_explain("gradient", signed=True)
    before = explain_func(model=net, inputs=X, targets=Y)
    with torch.no_grad():
        net.dense.weight *= 2  # as the randomisation of Quantus does it, in place
    np.testing.assert_allclose(explain_func(model=net, inputs=X, targets=Y), 2 * before, rtol=1e-6)


def test_maps_that_quantus_refuses_are_changed_as_little_as_it_asks_for(net):
    zero = mg.from_function(lambda model, x, target: x * (x > x.mean()) * (target == 1).view(-1, 1, 1, 1))
    with pytest.warns(UserWarning, match="1 of 3 maps are all zero"):
        found = mg.quantus_explain(zero)(model=net, inputs=X, targets=Y)
    assert 0 < np.abs(found[1]).max() <= 1e-12
    with pytest.warns(UserWarning, match="every entry of the batch is negative"):
        found = mg.quantus_explain(mg.from_function(lambda model, x, target: -1 - x), signed=True)(
            model=net, inputs=X, targets=Y
        )
    assert (found == 0).sum() == 1
    assert found.max() == 0


def test_what_is_no_method_is_refused(net):
    with pytest.raises(TypeError, match="name in METHODS"):
        mg.quantus_explain(3)
    with pytest.raises(TypeError, match="object with attribute"):
        mg.quantus_explain(lambda model: model)(model=net, inputs=X, targets=Y)


@pytest.fixture
def metric(net):
    """Runs a metric of Quantus on a network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantus = pytest.importorskip("quantus", reason="quantus is not installed; see `make test-interop`")

    def run(name, explain_func, model=net, **options):
        made = getattr(quantus, name)(disable_warnings=True, **options)
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")  # its own
            return made(
                model=model, x_batch=X.copy(), y_batch=Y, explain_func=explain_func, softmax=False, device="cpu"
            )

    return run


def test_sparseness_is_our_gini(metric, net):
    explain_func = mg.quantus_explain("sparse_moreau", sparsity=0.2, budget=32)
    maps = torch.as_tensor(explain_func(model=net, inputs=X, targets=Y))
    assert metric("Sparseness", explain_func) == pytest.approx(mg.gini(maps).tolist(), abs=1e-5)


def test_complexity_is_the_entropy_of_the_map(metric, net):
    found = metric("Complexity", mg.quantus_explain("gradient"))
    share = np.abs(net.gradient(Y)).sum(1).reshape(3, -1)
    share /= share.sum(1, keepdims=True)
    assert found == pytest.approx(-(share * np.log(share)).sum(1), rel=1e-4)


def test_random_logit_compares_with_the_map_of_the_other_class(metric, net):
    def cosine(a, b, batched=True):
        return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)

    found = metric("RandomLogit", mg.quantus_explain("gradient"), num_classes=2, similarity_func=cosine)
    own, other = (np.abs(net.gradient(target)).sum(1).reshape(3, -1) for target in (Y, 1 - Y))
    assert found == pytest.approx(cosine(own, other), rel=1e-5)


@pytest.mark.parametrize("name", ["MaxSensitivity", "LocalLipschitzEstimate"])
def test_the_gradient_of_a_linear_network_does_not_move(metric, name):
    assert metric(name, mg.quantus_explain("gradient"), nr_samples=3) == pytest.approx([0, 0, 0], abs=1e-6)


def test_contributions_to_a_linear_score_are_faithful(metric):
    """What the entries of a subset add to the score is what the score loses without them."""
    explain_func = mg.quantus_explain(mg.from_function(input_times_gradient), signed=True)
    options = {"nr_runs": 12, "subset_size": 40, "return_aggregate": False}
    assert metric("FaithfulnessCorrelation", explain_func, **options) == pytest.approx([1, 1, 1], abs=1e-4)


def test_pixel_flipping_takes_the_largest_contributions_first(metric, net):
    explain_func = mg.quantus_explain(mg.from_function(input_times_gradient), signed=True)
    found = metric("PixelFlipping", explain_func, features_in_step=16)
    parts = (X * net.gradient(Y)).reshape(3, -1)
    ordered = -np.sort(-parts, axis=1)
    assert np.array(found) == pytest.approx(parts.sum(1, keepdims=True) - ordered.cumsum(1)[:, 15::16], abs=1e-4)


def test_region_perturbation_ends_without_the_image(metric, net):
    found = metric("RegionPerturbation", mg.quantus_explain("gradient"), patch_size=4, regions_evaluation=4)
    values = np.array(list(found.values()) if isinstance(found, dict) else found)
    assert values.shape == (3, 4)
    assert values[:, -1] == pytest.approx((X * net.gradient(Y)).sum((1, 2, 3)), abs=1e-4)


def test_monotonicity_is_a_correlation(metric):
    found = metric("MonotonicityCorrelation", mg.quantus_explain("gradient"), nr_samples=3, features_in_step=16)
    assert np.shape(found) == (3,)
    assert (np.abs(found) <= 1).all()


def test_random_weights_change_the_map(metric):
    found = metric("MPRT", mg.quantus_explain("gradient"), return_last_correlation=True)
    assert np.shape(found) == (3,)
    assert (np.abs(found) < 0.7).all()  # of 64 independent entries


def test_inputs_that_are_no_numbers_are_refused(net):
    explain = mg.quantus_explain("gradient")
    x = torch.as_tensor(X)
    for inputs, targets, name in (({"x": x}, Y, "inputs"), (x, ["a", object(), 1], "targets")):
        with pytest.raises(TypeError, match=f"{name} must be an array of numbers"):
            explain(net, inputs, targets)
    with_graph = x.clone().requires_grad_()
    assert np.array_equal(explain(net, with_graph, Y), explain(net, X, Y))

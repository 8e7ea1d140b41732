"""Copies of a model with random weights: which layers, in which order, and who notices."""

import copy
from functools import partial

import pytest
import torch
from small_maps import maps, net
from torch import nn

import moreaugrad as mg
from moreaugrad.metrics import METRICS
from moreaugrad.metrics.sanity import model_randomisation, randomisable, sanity_check
from moreaugrad.metrics.similarity import spearman


def gradients(model):
    return lambda x: mg.Gradient(model).attribute(x, 1)


def edges(model):
    """An explainer that does not look at the weights."""
    return lambda x: x - x.roll(1, 3)


def test_layers_come_from_the_output_to_the_input():
    model = net()
    assert [name for name, _ in randomisable(model, maps(0))] == ["last", "norm", "first"]
    swapped = nn.ModuleDict({"b": nn.Linear(4, 4), "a": nn.Linear(4, 4)})
    swapped.forward = lambda x: swapped["b"](swapped["a"](x))
    assert [name for name, _ in randomisable(swapped, torch.zeros(1, 4))] == ["b", "a"]
    attention = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    names = [name for name, _ in randomisable(attention, torch.zeros(1, 3, 8))]
    assert (
        names.index("linear2") < names.index("linear1") < names.index("self_attn.out_proj") < names.index("self_attn")
    )


def test_an_explainer_blind_to_the_model_is_caught():
    x = maps(0)
    blind = model_randomisation(edges, net(), x)
    assert torch.equal(blind.similarity, torch.ones(3, 3).double())
    assert sanity_check(edges, net(), x).tolist() == [1, 1, 1]
    honest = model_randomisation(gradients, net(), x)
    assert (honest.similarity[:, -1] < 0.9).all()
    torch.testing.assert_close(honest.similarity[:, -1], sanity_check(gradients, net(), x))


def test_cascades_and_single_layers_by_hand():
    """Weights that reach the explainer: which layers differ from the user's at each stage."""
    model, x = net(), maps(0)
    wanted = dict(model.named_parameters())
    for mode, stages in {
        "cascading": [set(), {"last"}, {"last"}, {"last", "first"}],  # batch norm is constant when new: nothing to draw
        "independent": [set(), {"last"}, set(), {"first"}],
    }.items():
        reached = []

        def factory(twin, reached=reached):
            assert twin is not model
            changed = {name.split(".")[0] for name, p in twin.named_parameters() if not torch.equal(p, wanted[name])}
            reached.append(changed)
            return gradients(twin)

        found = model_randomisation(factory, model, x, mode=mode)
        assert found.layers == ("last", "norm", "first")
        assert reached == stages
    assert torch.equal(found.similarity[:, 1], torch.ones(3).double())


def test_drawn_weights_have_the_spread_of_the_trained():
    model = nn.Sequential(nn.Flatten(), nn.Linear(336, 200)).double().eval()
    model[1].weight.data.mul_(5).add_(0.3)
    drawn = []

    def factory(twin):
        drawn.append(twin[1].weight.detach().clone())
        return gradients(twin)

    sanity_check(factory, model, maps(0))
    assert float(drawn[1].mean()) == pytest.approx(float(drawn[0].mean()), abs=0.01)
    assert float(drawn[1].std()) == pytest.approx(float(drawn[0].std()), rel=0.02)
    assert abs(float(torch.corrcoef(torch.stack([each.flatten() for each in drawn]))[0, 1])) < 0.02


def test_shared_weights_are_drawn_once_and_any_pair_metric_serves():
    inner = nn.Linear(168, 168)
    model = nn.Sequential(nn.Flatten(2), inner, nn.Softplus(), nn.Linear(168, 168), nn.Flatten(), nn.Linear(336, 3))
    model[3].weight = inner.weight
    model = model.double().eval()
    calls = {}
    for metric in ("spearman", "ssim", partial(spearman, signed=True), METRICS["cosine"]):
        found = model_randomisation(gradients, model, maps(0), metric=metric, seed=1)
        assert found.layers == ("5", "3", "1")  # 1 has its bias left
        calls[str(metric)] = found.similarity
    assert len({float(each.sum()) for each in calls.values()}) == 4


def test_the_users_model_is_not_touched_when_an_explainer_fails():
    model = net()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()

    def failing(twin):
        raise RuntimeError("no map today")

    with pytest.raises(RuntimeError, match="no map today"):
        model_randomisation(failing, model, maps(0))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("change", "error", "kind"),
    [
        ({"model": lambda v: v}, r"torch\.nn\.Module", TypeError),
        ({"model": nn.Flatten().eval()}, "must have parameters", ValueError),
        ({"factory": "gradient"}, "factory must be a function", TypeError),
        ({"factory": lambda model: 3}, "what factory returns must be a function", TypeError),
        ({"metric": "gini"}, "compare two maps", ValueError),
        ({"metric": "spearmann"}, "Did you mean 'spearman'", ValueError),
        ({"metric": 3}, "metric must be a function", TypeError),
        ({"mode": "all"}, "mode must be one of", ValueError),
    ],
)
def test_wrong_randomisations_are_refused(change, error, kind):
    given = {"factory": edges, "model": net(), "x": maps(0), **change}
    with pytest.raises(kind, match=error):
        model_randomisation(**given)


@pytest.mark.parametrize("metric", [lambda a, b: 0.5, lambda a, b: a, lambda a, b: None, lambda a, b: torch.zeros(())])
def test_a_metric_of_ones_own_gives_one_number_per_image(metric):
    with pytest.raises(TypeError, match="metric must return a tensor with one number per image"):
        sanity_check(lambda model: lambda v: v.detach(), net(), maps(0), metric=metric)

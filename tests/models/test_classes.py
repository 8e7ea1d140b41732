"""The class to explain: found by name, by rank, and contrasted with another."""

import pytest
import torch
from torch import nn

from moreaugrad.models.classes import Contrast, Ranked, choose_classes, find_class, rank_classes
from moreaugrad.models.labels import read_labels


@pytest.mark.parametrize(("given", "found"), [("Dog", 1), (" dog", 1), ("2", 2), (-1, 2)])
def test_a_class_by_name_or_number(given, found):
    assert find_class(given, ["cat", "dog", "bird"]) == found


@pytest.mark.parametrize(
    ("given", "labels", "words"),
    [
        ("doog", ["cat", "dog"], "against must be .* Did you mean 'dog'"),
        ("dog", None, "where classes have no names"),
        ("crane", ["crane", "Crane"], r"the name of classes \[0, 1\]"),
    ],
)
def test_a_class_that_cannot_be_found(given, labels, words):
    with pytest.raises(ValueError, match=words):
        find_class(given, labels, "against")


def test_ranks_are_those_of_sorted_scores():
    scores = torch.randn(150, 7, generator=torch.Generator().manual_seed(0))  # more than one block
    order = rank_classes(nn.Identity(), scores)
    for row, wanted in enumerate(scores.tolist()):
        assert order[row].tolist() == sorted(range(7), key=lambda k: -wanted[k])
    first = choose_classes(nn.Identity(), scores, [Ranked(1)] * 150)
    assert first == scores.argmax(1).tolist()
    mixed = choose_classes(nn.Identity(), scores[:3], [5, Ranked(7), None])
    assert mixed == [5, int(scores[1].argmin()), int(scores[2].argmax())]


def test_a_method_predicts_by_itself_where_nothing_is_asked():
    def never(x):
        raise AssertionError("the network need not be run")

    assert choose_classes(never, torch.zeros(2, 3), [None, None]) is None
    assert choose_classes(never, torch.zeros(2, 3), [1, 2], against=0) == [1, 2]


@pytest.mark.parametrize(
    ("wanted", "against", "words"),
    [
        ([Ranked(4)], None, "top must be at most 3, the number of classes, got 4"),
        ([1], 1, "got 1, which is given"),
        ([None], 2, "got 2, which is among"),
        ([Ranked(1)], 2, "which is among"),
    ],
)
def test_classes_that_cannot_be_explained(wanted, against, words):
    with pytest.raises(ValueError, match=words):
        choose_classes(nn.Identity(), torch.tensor([[0.0, 1.0, 2.0]]), wanted, against)
    with pytest.raises(ValueError, match=r"scores of shape \(N, classes\)"):
        choose_classes(nn.Identity(), torch.zeros(1, 2, 2), [Ranked(1)])


@pytest.mark.parametrize("kind", ["logit", "prob", "logprob"])
def test_a_contrast_is_a_difference_of_two_scores(kind):
    output = torch.randn(4, 5, generator=torch.Generator().manual_seed(1)).double()
    score = {"logit": output, "prob": output.exp() / output.exp().sum(1, keepdim=True)}
    score["logprob"] = score["prob"].log()
    found = Contrast(3, kind)(output)
    for target in range(5):
        torch.testing.assert_close(found[:, target], score[kind][:, target] - score[kind][:, 3])
    if kind == "logprob":
        torch.testing.assert_close(found, Contrast(3)(output))


def test_a_contrast_knows_its_classes():
    with pytest.raises(ValueError, match="against must be a class of the model, got 5"):
        Contrast(5)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="score must be one of"):
        Contrast(5, "loss")
    assert repr(Contrast(2)) == "Contrast(against=2, kind='logit')"


@pytest.mark.parametrize("against", [[], 1.0, "1", None, True, torch.zeros(2, 3)], ids=repr)
def test_a_contrast_is_with_the_number_of_a_class(against):
    with pytest.raises(TypeError, match="against must be the number of a class"):
        Contrast(against)


@pytest.mark.parametrize("given", [torch.zeros(2, 3), 1.5, None, True, [1]], ids=repr)
def test_a_class_is_a_number_or_a_name(given):
    with pytest.raises(TypeError, match="against must be the number or the name of a class"):
        find_class(given, ["cat", "dog"], "against")
    assert find_class(torch.tensor(1), None) == 1


@pytest.mark.parametrize("labels", [3, torch.Generator(), torch.tensor(0.5)], ids=lambda each: type(each).__name__)
def test_labels_are_names_or_a_file(labels):
    with pytest.raises(TypeError, match="labels must be a list of names, or a file"):
        read_labels(labels)

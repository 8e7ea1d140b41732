"""What rows tell together, by hand."""

import numpy as np
import pyarrow as pa
import pytest
from bulk_folder import make_row, write_job

import moreaugrad as mg
from moreaugrad.bulk_jobs import summary


def facts(folder, name, values):
    return mg.open_maps(write_job(folder, [make_row(row, **{name: each}) for row, each in enumerate(values)])).facts


def test_every_image_is_in_a_bar_and_far_ones_do_not_flatten_the_rest(tmp_path):
    values = [*np.linspace(1, 2, 99).tolist(), 1000.0]
    found = summary.describe_numbers(facts(tmp_path, "seconds", values), "seconds")
    assert sum(found.bars) == found.count == 100
    assert (found.quantiles["smallest"], found.quantiles["largest"]) == (1, 1000)
    assert found.quantiles["median"] == pytest.approx(np.median(values), rel=1e-6)
    assert found.span[1] < 5
    assert sum(bar > 0 for bar in found.bars) > 5


def test_a_number_that_no_image_has_is_left_out(tmp_path):
    assert summary.describe_numbers(facts(tmp_path, "relative_error", [None, None]), "relative_error") is None


def test_numbers_that_are_not_finite_do_not_count():
    """Our parts hold none, but others can be put in their place."""
    table = pa.table({"score": [1.0, float("nan"), 3.0, float("inf"), None]})
    found = summary.describe_numbers(table, "score")
    assert (found.count, found.span, sum(found.bars)) == (2, (1, 3), 2)


def test_one_value_for_all_is_no_failure(tmp_path):
    found = summary.describe_numbers(facts(tmp_path, "kept", [1.0, 1.0]), "kept")
    assert set(found.quantiles.values()) == {1.0}


@pytest.mark.parametrize(("count", "most"), [(0, 5), (1, 5), (5, 5), (7, 3), (50_000, 1000)])
def test_picks_are_spread_evenly(count, most):
    picks = summary.pick_evenly(count, most)
    assert len(picks) == min(count, most)
    assert picks == sorted(set(picks))
    if len(picks) > 1:
        steps = np.diff(picks)
        assert (picks[0], picks[-1]) == (0, count - 1)
        assert steps.max() - steps.min() <= 1


def test_extremes_are_in_order_and_never_both(tmp_path):
    values = [0.3, None, 0.1, 0.5, 0.2, 0.4]
    found = facts(tmp_path, "relative_error", values)
    assert summary.find_extremes(found, "relative_error", 8) == ([2, 4], [3, 5])


def test_sentences_that_quote_different_things_are_one_failure():
    found = summary.group_failures({"a": "'x' isn't good", "b": '"y\'z" is bad', "c": "'w' isn't good"})
    assert [(each.sentence, list(each.keys)) for each in found] == [
        ("'...' isn't good", ["a", "c"]),
        ('"y\'z" is bad', ["b"]),
    ]

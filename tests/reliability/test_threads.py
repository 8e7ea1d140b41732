"""Members of all tables in threads: their results are those computed alone, and the checks see a planted fault."""

import threading
import warnings

import pytest
import torch

from reliability import threads, workloads
from reliability.together import run_together

MEMBERS = list(workloads.every_member())
# the tests' own checks of shapes draw which entries of a list they look at, and silence warnings while they wrap a
# function; tests/test_threads.py holds what the package does to filters
CHECKS_OF_SHAPES = ("random numbers of Python", "warning filters")


def faults(verdict):
    return [fault for fault in verdict.faults if not fault.endswith(CHECKS_OF_SHAPES)]


def test_every_member_of_the_tables_has_a_workload():
    own = {kind: {name for each, name in MEMBERS if each == kind} for kind in ("method", "attack")}
    assert own == {"method": set(workloads.METHODS), "attack": set(workloads.ATTACKS)}


@pytest.mark.parametrize("share", [threads.share_object, threads.share_network])
@pytest.mark.parametrize(("kind", "name"), MEMBERS)
def test_threads_get_what_they_get_alone(share, kind, name):
    verdict = run_together(*share(kind, name))
    assert faults(verdict) == []
    assert verdict.calls == threads.THREADS


@pytest.mark.parametrize("name", [name for name in workloads.METHODS if name != "deeplift"])
def test_first_uses_in_half_precision_at_once_are_prepared_once(name):
    assert faults(run_together(*threads.share_half("method", name))) == []


@pytest.mark.parametrize("check", ["chunks of different sizes", "derivatives of maps"])
def test_callers_do_not_change_the_chunks_and_levels_of_each_other(check):
    assert faults(threads.CHECKS[check](1)) == []


def test_different_members_share_one_network():
    assert faults(threads.CHECKS["different members on one network"](1)) == []


def test_planted_faults_are_seen():
    kept, both = {}, threading.Barrier(2)

    def racing(number):
        kept["x"] = torch.tensor([float(number)])
        both.wait(10)
        return [kept["x"]]

    wanted = [[torch.tensor([0.0])], [torch.tensor([1.0])]]
    assert any("differs" in fault for fault in run_together([lambda: racing(0), lambda: racing(1)], wanted).faults)

    def meddling():
        warnings.simplefilter("ignore", ResourceWarning)
        return wanted[0]

    with warnings.catch_warnings():
        assert "left changed: warning filters" in run_together([meddling], wanted[:1]).faults


def test_hooks_of_a_call_are_no_part_of_the_model():
    """A copy that is made while another thread has hooks in the model must not carry them on."""
    from moreaugrad.methods.cam.layer_capture import forward_hooks
    from moreaugrad.model import surgery
    from moreaugrad.model.prepared import fingerprint

    net, seen = workloads.network(), []
    before = fingerprint(net)
    with forward_hooks({"0": net[0]}, lambda *given: seen.append(given)):
        assert fingerprint(net) == before
        copied = surgery.freeze(net)
        copied(workloads.images())
        thread = threading.Thread(target=net, args=(workloads.images(),))
        thread.start()
        thread.join()
        assert seen == []
        net(workloads.images())
        assert len(seen) == 1

"""What threads share and forks take along: filters of warnings, hooks of one thread, seeds of weights, OpenMP."""

import copy
import os
import pickle
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch import nn

from moreaugrad.threads import ALONE, OwnHook, ignore_warnings, initial_weights


def test_overlapping_threads_leave_no_filter_behind():
    """In the order in which `warnings.catch_warnings` leaves that of the first for good."""
    before = list(warnings.filters)
    first, second = ignore_warnings(UserWarning, "one"), ignore_warnings(UserWarning, "two")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert list(warnings.filters) == before


def test_only_the_named_warnings_are_left_out():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with ignore_warnings(UserWarning, "advice"):
            warnings.warn("Advice on hooks", UserWarning, stacklevel=1)
            warnings.warn("another", UserWarning, stacklevel=1)
    assert [str(each.message) for each in heard] == ["another"]


def test_a_callers_own_equal_filter_stays():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "advice", UserWarning)
        before = list(warnings.filters)
        with ignore_warnings(UserWarning, "advice"):
            pass
        assert list(warnings.filters) == before


def test_a_hook_serves_its_thread_and_its_copies_do_nothing():
    seen = []
    hook = OwnHook(seen.append)
    hook(1)
    thread = threading.Thread(target=hook, args=(2,))
    thread.start()
    thread.join()
    copy.deepcopy(hook)(3)
    pickle.loads(pickle.dumps(hook))(4)
    assert seen == [1]


def test_weights_of_a_seed_do_not_depend_on_other_threads():
    def build():
        with initial_weights(3):
            return nn.Linear(200, 200).weight

    wanted, before, found = build(), torch.get_rng_state(), []
    threads = [threading.Thread(target=lambda: found.append(build())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(each, wanted) for each in found)
    assert torch.equal(torch.get_rng_state(), before)


FORK = """
import os, threading, torch
import moreaugrad.threads
from moreaugrad.threads import ALONE

torch.set_num_threads(2)
held, done = threading.Event(), threading.Event()

def hold():
    with ALONE:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
if os.fork() == 0:
    free = ALONE.acquire(timeout=10)
    os._exit(0 if free and torch.get_num_threads() == 1 else 1)
_, status = os.wait()
done.set()
print(os.waitstatus_to_exitcode(status), torch.get_num_threads())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_computes_with_one_thread_and_with_free_locks():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "2"], done.stderr
    assert ALONE.acquire(timeout=1)
    ALONE.release()


FORK_AFTER_USE = """
import os, time, torch
import moreaugrad as mg

torch.set_num_threads(2)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
x, method = torch.rand(1, 3, 128, 128), mg.SmoothGrad(net.eval(), samples=8)
wanted = method.attribute(x, target=1)  # on both threads
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(method.attribute(x, target=1), wanted) else 1)
end = time.monotonic() + 20
while time.monotonic() < end and (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
    time.sleep(0.05)
print("hangs" if ended == (0, 0) else os.waitstatus_to_exitcode(ended[1]))
if ended == (0, 0):
    os.kill(child, 9)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_forked_after_use_gets_the_same_map():
    """Without the handler of forks it waits for threads of OpenMP that it does not have."""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    program = [sys.executable, "-W", "ignore", "-c", FORK_AFTER_USE]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["0"], done.stderr

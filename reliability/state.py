"""The state of a process that a call must leave as it was."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

SIGNALS = [each for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM) if each in signal.valid_signals()]


def global_state() -> dict[str, Any]:
    """Everything that is shared by all code of a process, by name."""
    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    root, ours = logging.getLogger(), logging.getLogger("moreaugrad")
    state: dict[str, Any] = {
        "random numbers of Python": random.getstate(),
        "random numbers of NumPy": _digest(np.random.get_state()),  # noqa: NPY002 - the global ones are meant
        "random numbers of torch": torch.get_rng_state().numpy().tobytes(),
        "default dtype": torch.get_default_dtype(),
        "default device": str(torch.get_default_device()),
        "gradients enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "anomaly detection": torch.is_anomaly_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads of torch": torch.get_num_threads(),
        "precision of matmul": torch.get_float32_matmul_precision(),
        "TF32 of matmul": cuda.matmul.allow_tf32,
        "attention": (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        "cudnn": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32),
        "matplotlib's settings": dict(mpl.rcParams),
        "warning filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "logging": [(each.level, list(each.handlers), each.disabled, each.propagate) for each in (root, ours)],
        "signal handlers": {each: signal.getsignal(each) for each in SIGNALS},
        "excepthook": (sys.excepthook, threading.excepthook),
        "limit of recursion": sys.getrecursionlimit(),
        "garbage collection": gc.isenabled(),
        "current folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "floating-point errors of NumPy": np.geterr(),
    }
    if "matplotlib.pyplot" in sys.modules:
        state["open figures"] = sys.modules["matplotlib.pyplot"].get_fignums()
    return state


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of what differs. What only one of them has does not count: its module was loaded in between."""
    return [name for name in before if name in after and before[name] != after[name]]


def _digest(value: object) -> str:
    parts = value if isinstance(value, tuple) else (value,)
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return whole.hexdigest()

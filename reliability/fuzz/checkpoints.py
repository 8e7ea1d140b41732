"""The target `checkpoints`: damaged and hostile files of weights. No code in one may run, no claim may be believed."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from safetensors.torch import save as pack_safetensors
from torch import Tensor

import moreaugrad as mg
from reliability.fuzz.case import Case
from reliability.fuzz.damage import VALUES, spoil
from reliability.fuzz.tiny_network import NAME, find_fault, shared_network

SENTINEL = "MOREAUGRAD_FUZZ_SENTINEL"  # the variable that names the file which code in a pickle would write
MODELS = {  # names of models, and what the notes of a file may say of each
    NAME: {},
    "lipschitz": {"widths": "4,4", "depth": "1", "tau": "0.1", "patch": "8"},
    "resnet18_softplus": {"width": "1", "beta": "2.0", "activation": "softplus"},
}
NOTES = (
    *("0", "-1", "1", "3", "8,8", "4,4,4", "1e3", "nan", "inf", "", ",", "x", "999999999", "9" * 5000, "4," * 900),
    *("\u0663", "1_0", " 4 ", "0.5", "relu", "__import__('os')", "1000000", "100000,100000"),
)


class Code:
    """A pickle of it writes the sentinel where it is loaded."""

    def __reduce__(self) -> Any:
        return exec, (f"import os; open(os.environ.get({SENTINEL!r}, os.devnull), 'w').close()",)


@cache
def make_state(model: str) -> dict[str, Tensor]:
    """The weights of a small network of a kind."""
    if model == NAME:
        return dict(shared_network().network.state_dict())
    notes = MODELS[model]
    with torch.random.fork_rng(devices=[]):
        if model == "lipschitz":
            from moreaugrad.models.lipschitz import LipschitzNetwork, read_widths

            network: Any = LipschitzNetwork(3, widths=read_widths(notes["widths"]), depth=1, tau=0.1, patch=8)
        else:
            from moreaugrad.models.resnet import ResNet18

            network = ResNet18(3, width=1, beta=2.0)
    return dict(network.state_dict())


def make_case(chance: random.Random) -> Case:
    model = chance.choices(list(MODELS), (6, 1, 1))[0]
    make = chance.choice((_make_damaged, _make_state, _make_state, _make_hostile, _make_safetensors, _make_notes))
    name, ending, content, whole = make(chance, model)
    expected = make_state(model) if whole else None
    return Case(f"{name} for {model}", lambda folder: _load(folder, model, ending, content), _check(expected))


def _load(folder: Path, model: str, ending: str, content: bytes | None) -> object:
    path, sentinel = folder / f"weights{ending}", folder / "sentinel"
    path.mkdir() if content is None else path.write_bytes(content)
    os.environ[SENTINEL] = str(sentinel)
    try:
        loaded = mg.load_model(model, weights=path)
        x = torch.linspace(-1, 1, 3 * loaded.size[0] * loaded.size[1]).reshape(1, 3, *loaded.size)
        return loaded, mg.explain(loaded, x, "gradient", target=0)
    finally:
        del os.environ[SENTINEL]
        if sentinel.exists():
            raise AssertionError("code in a pickle has run")


def _check(expected: dict[str, Tensor] | None) -> Callable[[Any], str | None]:
    def check(found: Any) -> str | None:
        loaded, maps = found
        state = loaded.network.state_dict()
        if not all(bool(each.isfinite().all()) for each in state.values()):
            return "weights that are not finite"
        if expected is not None and not all(bool((state[name] == each).all()) for name, each in expected.items()):
            return "weights that differ from those of the file"
        if loaded.size != (8, 8):
            return None if bool(maps.finite.all()) else "maps that are not finite"
        return find_fault(maps, 1)

    return check


def pack(value: Any, legacy: bool = False) -> bytes:
    """As torch.save writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, stored := BytesIO(), _use_new_zipfile_serialization=not legacy)
    return stored.getvalue()


def pack_script(state: dict[str, Tensor]) -> bytes:
    """An archive that looks as those of TorchScript do."""
    with ZipFile(BytesIO(pack(state))) as given, ZipFile(stored := BytesIO(), "w") as archive:
        names = given.namelist()
        for name in names:
            archive.writestr(name, given.read(name))
        archive.writestr(f"{names[0].partition('/')[0]}/constants.pkl", pickle.dumps(()))
    return stored.getvalue()


def _safetensors(state: dict[str, Tensor], notes: dict[str, str] | None = None) -> bytes:
    return pack_safetensors({name: each.contiguous() for name, each in state.items()}, notes)


def _make_damaged(chance: random.Random, model: str) -> tuple[str, str, bytes | None, bool]:
    """A whole file of some kind, a damaged or a half-written one, nothing, or a folder."""
    state, kind = make_state(model), chance.choice(("torch", "legacy", "safetensors", "script"))
    if kind == "script":
        content = pack_script(state)
    else:
        content = _safetensors(state, MODELS[model]) if kind == "safetensors" else pack(state, kind == "legacy")
    ending = ".safetensors" if kind == "safetensors" else ".pt"
    what = chance.choice(("whole", "spoilt", "spoilt", "spoilt", "half", "empty", "a folder", "misnamed"))
    changed = {
        "spoilt": spoil(chance, content),
        "half": content[: chance.randrange(len(content))],
        "empty": b"",
        "a folder": None,
    }
    if what == "misnamed":
        ending = ".pt" if ending == ".safetensors" else ".safetensors"
    # without notes a network of another size is made: only a file that has them, or needs none, loads for certain
    whole = what == "whole" and (kind == "safetensors" or (model == NAME and kind != "script"))
    return f"{what}, {kind}", ending, changed.get(what, content), whole


def _odd_tensor(chance: random.Random, tensor: Tensor) -> Any:
    """Another thing in place of a tensor."""
    rows = torch.ones(1)
    every: tuple[Callable[[], Any], ...] = (
        partial(chance.choice, VALUES),
        lambda: torch.full_like(tensor, chance.choice((float("nan"), float("inf"), -1e38)), dtype=torch.float32),
        lambda: tensor.to(chance.choice((torch.float16, torch.float64, torch.bfloat16, torch.float8_e4m3fn))),
        lambda: tensor.to(chance.choice((torch.int64, torch.uint8, torch.bool, torch.complex64))),
        lambda: tensor[None],
        tensor.flatten,
        lambda: torch.zeros(chance.choice(((0,), (1,), (7,), (3, 3)))),
        lambda: tensor.float().to_sparse(),
        lambda: tensor.float().to("meta"),
        lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        lambda: rows.expand(chance.choice((10**6, 10**10, 10**13))),
        lambda: rows.expand(chance.choice((10**6, 10**10)), 4),
        lambda: rows.expand(1, *tensor.shape)[0],
        lambda: torch.nn.Parameter(tensor.float()),
    )
    return chance.choice(every)()


def _make_state(chance: random.Random, model: str) -> tuple[str, str, bytes | None, bool]:
    """A state with another value, key or form."""
    state: dict[Any, Any] = OrderedDict(make_state(model))
    name = chance.choice((*state, list(state)[-1], list(state)[-1]))
    what = chance.choice(("value", "value", "value", "missing", "extra", "key", "prefix", "wrapper", "other", "nested"))
    if what == "value":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state[name] = _odd_tensor(chance, state[name])
    elif what in ("missing", "key"):
        moved = state.pop(name)
        state |= {chance.choice((1, None, ("a", 1), b"fc", 2.5, True)): moved} if what == "key" else {}
    elif what == "extra":
        state[chance.choice(("x", "", "fc.weight.x", "\0", "é", "\ud800", "a" * 10**5))] = torch.zeros(2)
    elif what == "prefix":
        state = {chance.choice(("module.", "model.", "_orig_mod.module.", "x."))[:9] + key: state[key] for key in state}
    whole: Any = state
    if what == "wrapper":
        whole = {chance.choice(("state_dict", "model", "net", "weights")): chance.choice((state, {}, [], None, 3, [1]))}
    elif what == "other":
        whole = chance.choice((*VALUES, torch.zeros(3), [state], {}, {"a": 1}, set(), b"x"))
    elif what == "nested":
        for _ in range(chance.choice((1, 3, 200))):
            whole = {"model": whole}
    try:
        content = pack(whole)
    except Exception:  # what torch.save does not write, no file has
        content = pickle.dumps(VALUES)
    return f"a state with another {what}", ".pt", content, False


def _make_hostile(chance: random.Random, model: str) -> tuple[str, str, bytes | None, bool]:
    """Pickles with code: plain, in a state, as key, in a zip archive, in the old format, under each ending."""
    state: dict[Any, Any] = dict(make_state(model))
    how = chance.choice(("plain", "value", "wrapper", "legacy", "protocol"))
    if how == "value":
        state[chance.choice(list(state))] = Code()
    whole: Any = {"value": state, "wrapper": {"state_dict": state, "hook": Code()}}.get(how, Code())
    plain = how in ("plain", "protocol")
    content = pickle.dumps(whole, chance.randrange(2, 6)) if plain else pack(whole, how == "legacy")
    if chance.random() < 0.3:
        content = spoil(chance, content)
    return f"code, {how}", chance.choice((".pt", ".pth", ".bin", ".safetensors", "")), content, False


def _make_safetensors(chance: random.Random, model: str) -> tuple[str, str, bytes | None, bool]:
    """A header by hand: lengths beyond the file, negative or overlapping places, kinds that are not there."""
    content = _safetensors(make_state(model), MODELS[model])
    size = struct.unpack("<Q", content[:8])[0]
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = chance.choice([each for each in header if each != "__metadata__"])
    entry = header[name]
    far = chance.choice((-1, 0, 1, len(body), len(body) + 1, 2**31, 2**63, 2**64, 10**30, 0.5, None, "0"))
    what = chance.choice(("offsets", "shape", "dtype", "twice", "notes", "length", "json"))
    if what == "offsets":
        entry["data_offsets"] = chance.choice(([0, far], [far, far], [far, 0], [far], far))
    elif what == "shape":
        entry["shape"] = chance.choice(([far], [far, far], [], far, [2**32, 2**32], [0]))
    elif what == "dtype":
        entry["dtype"] = chance.choice(("F64", "I8", "BOOL", "F8_E4M3", "F8_E8M0", "F4", "C64", "X", None, 3, "BF16"))
    elif what == "twice":
        header["again"] = dict(entry)
    elif what == "notes":
        header["__metadata__"] = chance.choice(({"a": 1}, [], None, "x", {"a": None}, {"": ""}))
    text = json.dumps(header).encode()
    if what == "json":
        text = chance.choice((spoil(chance, text), b"[" * 100_000, b"{}", b"null", b'{"__metadata__":{}}', b"\xff"))
    length = chance.choice((far, 2**40, 100_000_001)) if what == "length" else len(text)
    length = min(max(length, 0), 2**64 - 1) if isinstance(length, int) else 0
    return f"safetensors with other {what}", ".safetensors", struct.pack("<Q", length) + text + body, False


def _make_notes(chance: random.Random, model: str) -> tuple[str, str, bytes | None, bool]:
    """Notes that tell of a network of another size, or of one that no memory holds."""
    model_notes = dict(MODELS[model] or {"a": "b"})
    for _ in range(chance.choice((1, 1, 2))):
        model_notes[chance.choice(list(model_notes))] = chance.choice(NOTES)
    if chance.random() < 0.2:
        model_notes.pop(chance.choice(list(model_notes)))
    return f"notes {str(model_notes)[:80]}", ".safetensors", _safetensors(make_state(model), model_notes), False

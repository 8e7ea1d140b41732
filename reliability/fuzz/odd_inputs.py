"""Inputs of every kind that a caller may pass where a batch of pictures, a map or a target is meant."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from reliability.fuzz.networks import CHANNELS, SIDE

SHAPE = (2, CHANNELS, SIDE, SIDE)


class Labelled(Tensor):
    """A subclass of Tensor, as other libraries have them."""


@dataclass(frozen=True, slots=True)
class Input:
    """A value, what is odd about it, and the sound tensor that it stands for, where it does."""

    name: str
    value: Any
    plain: Tensor | None = None


def sound(chance: random.Random, shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float32) -> Tensor:
    """A batch that every method can explain."""
    generator = torch.Generator().manual_seed(chance.getrandbits(40))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _expand(x: Tensor) -> Tensor:
    return x[:1].clone().expand(x.shape)


def _overlap(x: Tensor) -> Tensor:
    """Rows that share memory with each other."""
    flat = x.reshape(-1)
    inner = torch.empty(x.shape[1:]).stride()
    return flat.as_strided(x.shape, (1, *inner)) if flat.numel() > 1 else x


def _with_grad(x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    leaf.grad = torch.ones_like(x)
    return leaf


def _inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


def _sliced(x: Tensor) -> Tensor:
    return torch.stack([x, x + 1], -1)[..., 0]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "a transposed one": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "an expanded one": _expand,
    "an overlapping one": _overlap,
    "a slice": _sliced,
    "a leaf": lambda x: x.clone().requires_grad_(),
    "a leaf with grad": _with_grad,
    "a node of a graph": lambda x: x.clone().requires_grad_() * 1,
    "an inference tensor": _inference,
    "a subclass": lambda x: x.clone().as_subclass(Labelled),
    "a parameter": lambda x: nn.Parameter(x.clone()),
    "a negative view": lambda x: torch._neg_view(-x),
    "the real part": lambda x: torch.complex(x.float(), x.float()).real,
    "a buffer": lambda x: nn.Buffer(x.clone()),
}
SIZES = [
    (), (0,), (1,), (5,), (1, 1), (2, 6), (0, 6), (2, 0), (2, 8, 8), (2, 0, 8), (1, 2, 1, 1), (2, 2, 1, 1),
    (2, 2, 1, 8), (2, 2, 2, 2), (2, 2, 3, 5), (0, 2, 8, 8), (2, 0, 8, 8), (2, 2, 0, 8), (2, 2, 8, 0),
    (2, 1, 8, 8), (2, 3, 8, 8),
    (1, 2, 8, 8), (3, 2, 8, 8), (17, 2, 8, 8), (2, 2, 3, 4, 2), (1, 1, 1, 1, 1), (1, 2, 1, 3, 1, 2), (2, 2, 64, 3),
]  # fmt: skip
DTYPES = [
    torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8,
    torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128, torch.complex32,
]  # fmt: skip
ARRAY_DTYPES = ["i8", "u1", ">i4", "f4", "O", "bool", "U3", "M8[s]"]
CONTENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "a constant": lambda x: torch.full_like(x, -7.25),
    "constant images": lambda x: x.flatten(1)[:, :1].reshape(-1, *[1] * (x.ndim - 1)).expand_as(x).clone(),
    "one NaN": lambda x: _put(x, torch.nan),
    "one infinity": lambda x: _put(x, torch.inf),
    "one -infinity": lambda x: _put(x, -torch.inf),
    "NaN": lambda x: torch.full_like(x, torch.nan),
    "one huge entry": lambda x: _put(x, 3e38),
    "huge values": lambda x: x * 1e37,
    "large values": lambda x: x * 1e19,
    "pixels of 0 to 255": lambda x: (x.tanh() + 1) * 127.5,
    "denormal values": lambda x: x * 1e-42,
    "tiny values": lambda x: x * 1e-30,
    "values far from zero": lambda x: x + 1e7,
    "two equal images": lambda x: x[:1].repeat(len(x), *[1] * (x.ndim - 1)),
    "negative zeros": lambda x: -torch.zeros_like(x),
}


def _put(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    if x.numel():
        x.view(-1)[-1] = value
    return x


def _read_only(x: Tensor) -> Any:
    found = x.numpy().copy()
    found.flags.writeable = False
    return found


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "an array": lambda x: x.numpy(),
    "an array of objects": lambda x: x.numpy().astype(object),
    "a read-only array": _read_only,
    "a big-endian array": lambda x: x.numpy().astype(">f4"),
    "a reversed array": lambda x: x.numpy()[::-1, ..., ::-1],
    "a list": lambda x: x.tolist(),
    "a list of tensors": list,
    "None": lambda x: None,
    "a number": lambda x: 3.0,
    "a word": lambda x: "cat",
    "an object": lambda x: object(),
    "a class": lambda x: Tensor,
    "a function": lambda x: lambda: x,
    "a dict": lambda x: {"x": x},
    "an empty tuple": lambda x: (),
    "an empty list": lambda x: [],
    "a tuple of one": lambda x: (x,),
    "a tuple of None": lambda x: (None,),
    "a nested tuple": lambda x: ((x,),),
    "a tuple of two": lambda x: (x, x[:, :1]),
    "other batch sizes": lambda x: (x, x[:1]),
    "other dtypes": lambda x: (x, x.double()),
    "a tuple with an array": lambda x: (x, x.numpy()),
    "a sparse tensor": lambda x: x.to_sparse(),
    "a sparse row tensor": lambda x: x.flatten(1).to_sparse_csr(),
    "a meta tensor": lambda x: x.to("meta"),
    "a quantized tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8),
    "a nested tensor": lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
    "a picture": lambda x: Image.new("RGB", (9, 7), "red"),
}


def odd_input(chance: random.Random, shape: tuple[int, ...] = SHAPE) -> Input:
    """One input; at least half of them stand for sound ones."""
    x = sound(chance, shape)
    way = chance.choices(["layout", "size", "dtype", "content", "kind"], [4, 2, 2, 3, 3])[0]
    if way == "layout":
        name = chance.choice(list(LAYOUTS))
        value = LAYOUTS[name](x)
        return Input(name, value, read_plain(value))
    if way == "size":
        size = chance.choice(SIZES)
        return Input(f"shape {size}", sound(chance, size))
    if way == "dtype":
        dtype = chance.choice(DTYPES)
        return Input(str(dtype), (3 * x).to(dtype))
    if way == "content":
        name = chance.choice(list(CONTENTS))
        return Input(name, CONTENTS[name](x))
    name = chance.choice(list(KINDS))
    return Input(name, KINDS[name](x))


def read_plain(x: Tensor) -> Tensor:
    """The same values in a tensor of its own."""
    with torch.inference_mode(False), torch.no_grad():
        return torch.tensor(x.detach().tolist(), dtype=x.dtype).reshape(x.shape)


def odd_target(chance: random.Random, images: int = 2) -> Input:
    """What may be passed as target."""
    classes: list[Any] = [chance.randrange(3) for _ in range(images)]
    choices: dict[str, Callable[[], Any]] = {
        "None": lambda: None,
        "a class": lambda: classes[0],
        "a negative class": lambda: -1 - classes[0],
        "a class that is not there": lambda: chance.choice([3, -4, 999, 2**31, 2**63, 2**64, -(2**70), 10**30]),
        "True": lambda: True,
        "a numpy class": lambda: chance.choice([np.int64, np.uint8, np.int16, np.uint64])(classes[0]),
        "a numpy number": lambda: chance.choice([np.float32(1), np.bool_(True), np.complex64(1)]),
        "an array": lambda: np.array(classes, dtype=chance.choice(ARRAY_DTYPES)),
        "an array of one": lambda: np.array(chance.choice([1, [1], [[1]]])),
        "a tensor": lambda: torch.tensor(classes, dtype=chance.choice([torch.int64, torch.int32, torch.uint8])),
        "a tensor of another dtype": lambda: torch.tensor(classes).to(chance.choice(DTYPES)),
        "a 0-d tensor": lambda: torch.tensor(classes[0]),
        "a 0-d float": lambda: torch.tensor(chance.choice([1.0, torch.nan])),
        "a column": lambda: torch.tensor(classes)[:, None],
        "a tensor of one": lambda: torch.tensor([classes[0]]),
        "too many": lambda: torch.tensor([*classes, 0]),
        "too few": lambda: torch.tensor(classes)[:0],
        "a meta tensor": lambda: torch.tensor(classes).to("meta"),
        "a meta number": lambda: torch.tensor(1).to("meta"),
        "a sparse tensor": lambda: torch.tensor(classes).to_sparse(),
        "a tensor out of range": lambda: torch.tensor([*classes[1:], chance.choice([3, -4, 2**62])]),
        "an inference tensor": lambda: _inference(torch.tensor(classes)),
        "a list": lambda: classes,
        "a list out of range": lambda: [*classes[1:], chance.choice([3, -4, 10**30])],
        "a list of numpy numbers": lambda: [np.int64(each) for each in classes],
        "a list of tensors": lambda: [torch.tensor(each) for each in classes],
        "a list of anything": lambda: [chance.choice([None, True, 1.0, "0", (0,), [0], (0, 0)]) for _ in classes],
        "an empty list": list,
        "a tuple": lambda: tuple(classes),
        "a tuple of one": lambda: (classes[0],),
        "a tuple of anything": lambda: (chance.choice([None, True, 1.0, "0", (0,), slice(None), ...]),),
        "an empty tuple": tuple,
        "tuples": lambda: [(each,) for each in classes],
        "tuples out of range": lambda: [(each + 3,) for each in classes],
        "tuples of other lengths": lambda: [(0,), *[(0, 0) for _ in classes[1:]]],
        "a float": lambda: chance.choice([1.0, 0.5, float("nan"), float("inf")]),
        "a word": lambda: chance.choice(["", "cat", "1", "0", "None"]),
        "bytes": lambda: b"1",
        "a range": lambda: range(images),
        "a set": lambda: {0, 1},
        "a dict": lambda: {0: 1},
        "an object": object,
        "a function": lambda: len,
    }
    name = chance.choice(list(choices))
    return Input(f"target {name}", choices[name]())

"""Sample-gradients per second inside a solve, everything counted, compared with what the hardware allows.

    python -m benchmarks.throughput [--device cuda] [--images 64] [--budget 800] [--models lite0,resnet50,vit]

Two lower bounds for the time of one gradient: its multiplications over the rate of a large matrix product, and its
bytes over the rate of a large copy, both measured in the same run in the same precision. Bytes: every convolution and
linear layer reads its input and writes its output once, forward and backward, and nothing else moves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import moreaugrad as mg
from benchmarks import record

MODELS = {
    "lite0": ("efficientnet_lite0", None),
    "resnet50": ("timm/resnet50", "random"),
    "vit": ("timm/vit_base_patch16_224", "random"),
}
WAYS = {
    "cuda": {
        "compiled float16": {"precision": "float16", "compile": True},
        "compiled bfloat16": {"precision": "bfloat16", "compile": True},
        "compiled tf32": {"precision": "tf32", "compile": True},
        "eager float16": {"precision": "float16", "compile": False},
        "eager bfloat16": {"precision": "bfloat16", "compile": False},
        "eager tf32": {"precision": "tf32", "compile": False},
    },
    "cpu": {"eager float32": {"precision": "float32", "compile": False}},
}
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def main() -> None:
    args = record.arguments(__doc__, False, images=64, budget=800, models="lite0,resnet50,vit", ways="", size=0)
    kind = torch.device(args.device).type
    ways = {name: way for name, way in WAYS[kind].items() if not args.ways or name in args.ways.split(",")}
    table = []
    rates = {way["precision"]: ceilings(args.device, str(way["precision"])) for way in ways.values()}
    for short in args.models.split(","):
        name, weights = MODELS[short]
        model = mg.load_model(name, weights=weights, device=args.device)
        size = (args.size, args.size) if args.size else model.size
        generator = torch.Generator(args.device).manual_seed(0)
        x = torch.randn((args.images, 3, *size), device=args.device, generator=generator)
        operations, entries = cost(model, x[:1])
        for way, options in ways.items():
            if short != "lite0" and way not in ("compiled float16", "eager float16", "eager float32"):
                continue
            budget = args.budget if short == "lite0" else max(16, args.budget // 4)
            row = {"model": name, "way": way, "budget": budget, **measure(model, x, budget, options)}
            precision = str(options["precision"])
            rate, bandwidth = rates[precision]
            bytes_moved = entries * (2 if precision in HALF else 4)
            floors = {"arithmetic": operations / rate, "memory": bytes_moved / bandwidth}
            binding = max(floors, key=lambda each: floors[each])
            row |= {
                "operations_per_gradient": operations,
                "bytes_per_gradient": bytes_moved,
                "bound_by": binding,
                "bound_gradients_per_second": 1 / floors[binding],
                "share_of_bound": row["gradients_per_second"] * floors[binding],
            }
            table.append(row)
            print(row, flush=True)
    measured = {
        name: {"operations_per_second": rate, "bytes_per_second": width} for name, (rate, width) in rates.items()
    }
    results = {"images": args.images, "measured_ceilings": measured, "table": table}
    record.store("throughput", args.device, results, args.out)


def measure(model: nn.Module, x: Tensor, budget: int, options: dict[str, Any]) -> dict[str, Any]:
    """One solve of all images, after a single image as warm-up."""
    method = mg.SparseMoreauGrad(model, eta=0.005, budget=budget, **options)
    device = str(x.device)
    _, first = record.timed(device, lambda: method.attribute(x[:1], target=0))
    if x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    found, seconds = record.timed(device, lambda: method.explain(x, target=0))
    spent = int(found.gradients.sum())
    return {
        "gradients_per_second": spent / seconds,
        "seconds_per_image": seconds / len(x),
        "first_call_seconds": first,
        "peak_bytes": torch.cuda.max_memory_allocated() if x.is_cuda else None,
    }


def cost(model: nn.Module, x: Tensor) -> tuple[int, int]:
    """Operations of one gradient, and the entries that its layers must read and write."""
    moved: list[int] = []

    def count(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        moved.append(given[0].numel() + output.numel())

    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(x)
    for hook in hooks:
        hook.remove()
    # the backward pass repeats the products and the memory traffic with transposed weights
    return 2 * counter.get_total_flops(), 2 * sum(moved)


def ceilings(device: str, precision: str) -> tuple[float, float]:
    """Operations per second of a matrix product, bytes per second of a copy (read and written)."""
    dtype = HALF.get(precision, torch.float32)
    size = 8192 if device.startswith("cuda") else 1024
    matrix = torch.randn(size, size, device=device).to(dtype)
    many = torch.randn(2**28 if device.startswith("cuda") else 2**24, device=device)
    copy = torch.empty_like(many)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    rates = []
    for amount, work in ((2 * size**3, lambda: matrix @ matrix), (8 * many.numel(), lambda: copy.copy_(many))):
        work()
        _, seconds = record.timed(device, lambda work=work: [work() for _ in range(10)] and None)
        rates.append(10 * amount / seconds)
    torch.set_float32_matmul_precision(before)
    return rates[0], rates[1]


if __name__ == "__main__":
    main()

"""What every method costs: sample-gradients, seconds and peak memory, beside Captum and torch-cam where they have it.

    python -m benchmarks.cost --data FOLDER [--device cuda] [--quality fast] [--methods NAMES]

One photo, and a batch of them. Slow methods (those with a budget) take the given quality; empty: their own default.
A rival runs in turn with the method, on the same images, and is judged by its best of `repeats`.
"""

from __future__ import annotations

import ctypes
import gc
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.methods import QUALITY
from moreaugrad.methods.options import make_method, option_names

Rival = Callable[[], Any]


def main() -> None:
    asked = record.arguments(__doc__, photos=16, quality="fast", methods="", repeats=3, long=10.0)
    model, x = photos.load(asked.data, asked.photos, asked.device)
    names = (
        asked.methods.split(",") if asked.methods else [n for n, e in mg.METHODS.items() if "trained" not in e.flags]
    )
    table: list[dict[str, Any]] = []
    for name in names:
        options: dict[str, Any] = (
            {"budget": QUALITY[asked.quality]} if asked.quality and "budget" in option_names(name) else {}
        )
        if "sparsity" in option_names(name):
            options["sparsity"] = 0.05
        method = make_method(name, model, options)
        for batch in (x[:1], x):
            with torch.no_grad():
                target = model(batch).argmax(1)
            begin_peak(asked.device)
            found, first = record.timed(asked.device, partial(method.explain, batch, target))
            ways = {"moreaugrad": partial(method.attribute, batch, target)}
            ways |= rivals(name, method, model, batch, target)
            known = {"moreaugrad": (first, peak(asked.device))} if first > asked.long else {}
            row = {"method": name, "images": len(batch), "gradients": int(found.gradients.max()), **options}
            table.append(row | measured(ways, known, asked.device, asked.repeats))
            print(table[-1], flush=True)
            figures = {"quality": asked.quality or "default", "image_size": list(x.shape[1:]), "table": table}
            record.store("cost", asked.device, figures, asked.out)  # each time: a run that is cut short is not lost


def measured(ways: dict[str, Rival], known: dict[str, tuple[float, int]], device: str, repeats: int) -> dict[str, Any]:
    """Best seconds and largest peak memory of each way, in turn; what is `known` took long and is not run again."""
    seconds = {name: [time] for name, (time, _) in known.items()}
    peaks = {name: most for name, (_, most) in known.items()}
    for _ in range(1 if known else repeats):
        for name, work in ways.items():
            if name in known:
                continue
            begin_peak(device)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seconds.setdefault(name, []).append(record.timed(device, work)[1])
            peaks[name] = max(peaks.get(name, 0), peak(device))
    best = {name: min(times) for name, times in seconds.items()}
    found: dict[str, Any] = {"seconds": best.pop("moreaugrad"), "peak_bytes": peaks["moreaugrad"]}
    if best:
        found["rivals"] = {name: {"seconds": time, "peak_bytes": peaks[name]} for name, time in best.items()}
        found["times_faster_than_the_best_rival"] = min(best.values()) / found["seconds"]
    return found


def rivals(name: str, method: Any, model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Rival]:
    """The same method in other libraries, called as their users call it: at once, and for long sums in chunks."""
    from captum.attr import DeepLift, IntegratedGradients, LayerGradCam, NoiseTunnel, Saliency

    if name == "gradient":
        return {"captum": partial(Saliency(model).attribute, x, target=target, abs=False)}
    if name == "integrated_gradients":
        call = partial(IntegratedGradients(model).attribute, x, target=target, n_steps=50, method="riemann_right")
        sizes = {max(rows, len(x)) for rows in (4, 16, 64)}
        return {f"captum {rows} rows": partial(call, internal_batch_size=rows) for rows in sorted(sizes)}
    if name == "deeplift":
        return {"captum (not complete on this network)": partial(DeepLift(model).attribute, x, target=target)}
    if name == "smoothgrad":
        call = partial(NoiseTunnel(Saliency(model)).attribute, x, nt_samples=64, stdevs=0.6, target=target, abs=False)
        fitting = [rows for rows in (4, 16, 64) if x.is_cuda or rows * len(x) <= 64]  # 64 rows take 6 GB
        return {f"captum {rows} samples": partial(call, nt_samples_batch_size=rows) for rows in fitting}
    if name not in {"cam", "gradcam", "gradcam_plus_plus"}:
        return {}
    layer = next(iter(method._found.values()))[0]  # the one that it has just used
    module = method.model.get_submodule(layer)
    found: dict[str, Rival] = {"torchcam": partial(torchcam, name, model, module, x, target)}
    if name == "gradcam":
        found["captum"] = partial(LayerGradCam(model, module).attribute, x, target=target, relu_attributions=True)
    return found


def torchcam(name: str, model: nn.Module, layer: nn.Module, x: Tensor, target: Tensor) -> Any:
    from torchcam import methods

    kind = {"cam": methods.CAM, "gradcam": methods.GradCAM, "gradcam_plus_plus": methods.GradCAMpp}[name]
    with kind(model, target_layer=layer) as extractor:
        return extractor(target.tolist(), model(x.clone().requires_grad_()))


def begin_peak(device: str) -> None:
    """Forgets the peak so far: of the GPU's tensors, else of the process, less what it keeps without need."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        return
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def peak(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


if __name__ == "__main__":
    main()

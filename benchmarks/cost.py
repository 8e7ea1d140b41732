"""What every method costs: sample-gradients, seconds and peak memory, beside Captum and torch-cam where they have it.

    python -m benchmarks.cost --data FOLDER [--device cuda] [--quality fast] [--methods NAMES]

One photo, and a batch of them. Slow methods (those with a budget) take the given quality; empty: their own default.
A rival runs in turn with the method, on the same images, and is judged by its best of `repeats`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.methods import QUALITY
from moreaugrad.run.options import make_method, taken

Rival = Callable[[], Any]


def main() -> None:
    asked = record.arguments(__doc__, photos=16, quality="fast", methods="", repeats=3, long=20.0)
    model, x = photos.load(asked.data, asked.photos, asked.device)
    names = (
        asked.methods.split(",") if asked.methods else [n for n, e in mg.METHODS.items() if "trained" not in e.flags]
    )
    table = []
    for name in names:
        options: dict[str, Any] = (
            {"budget": QUALITY[asked.quality]} if asked.quality and "budget" in taken(name) else {}
        )
        if "sparsity" in taken(name):
            options["sparsity"] = 0.05
        method = make_method(name, model, options)
        for batch in (x[:1], x):
            target = model(batch).argmax(1)
            found = method.explain(batch, target)  # warms up, and is counted
            ways = {"moreaugrad": lambda method=method, batch=batch, target=target: method.attribute(batch, target)}
            ways |= rivals(name, method, model, batch, target)
            row = {"method": name, "images": len(batch), "gradients": int(found.gradients.max()), **options}
            row |= measured(ways, asked.device, asked.repeats, asked.long)
            table.append(row)
            print(row, flush=True)
    figures = {"quality": asked.quality or "default", "image_size": list(x.shape[1:]), "table": table}
    record.store("cost", asked.device, figures, asked.out)


def measured(ways: dict[str, Rival], device: str, repeats: int, long: float) -> dict[str, Any]:
    """Best seconds and peak memory of each way; what takes long is not run again."""
    seconds: dict[str, list[float]] = {}
    peaks: dict[str, int] = {}
    for turn in range(repeats):
        for name, work in ways.items():
            if turn and min(seconds[name]) > long:
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
        return {f"captum {rows} rows": partial(call, internal_batch_size=max(rows, len(x))) for rows in (4, 16, 64)}
    if name == "deeplift":
        return {"captum (not complete on this network)": partial(DeepLift(model).attribute, x, target=target)}
    if name == "smoothgrad":
        call = partial(NoiseTunnel(Saliency(model)).attribute, x, nt_samples=64, stdevs=0.6, target=target, abs=False)
        return {f"captum {rows} samples": partial(call, nt_samples_batch_size=rows) for rows in (4, 16, 64)}
    if name not in {"cam", "gradcam", "gradcam_plus_plus"}:
        return {}
    (layer,) = next(iter(method._found.values()))  # the one that it has just used
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
    """Forgets the peak so far: of the GPU's tensors, else of the process."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def peak(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


if __name__ == "__main__":
    main()

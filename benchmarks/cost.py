"""The cost of every method: sample-gradients, seconds and peak memory, beside other libraries where they have it.

    python -m benchmarks.cost --data FOLDER [--device cuda] [--quality fast] [--methods NAMES] [--images 1,4,16,64]

Methods with a budget run at the given quality, or at their default if it is empty. Other libraries run in turn with the
method on the same images; the best of `repeats` counts. pytorch-grad-cam takes part where it is installed.
"""

from __future__ import annotations

import ctypes
import gc
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from benchmarks import photos, record

Rival = Callable[[], Any]


def main() -> None:
    args = record.arguments(__doc__, images="1,16", quality="fast", methods="", repeats=3, long=10.0)
    sizes = [int(size) for size in args.images.split(",")]
    model, x = photos.load(args.data, max(sizes), args.device)
    names = args.methods.split(",") if args.methods else [n for n, e in mg.METHODS.items() if "trained" not in e.flags]
    table: list[dict[str, Any]] = []
    for name in names:
        method = make_method(name, model, args.quality)
        options = {key: getattr(method, key, None) for key in ("budget", "sparsity")}
        for batch in (x[:size] for size in sizes):
            with torch.no_grad():
                target = model(batch).argmax(1)
            begin_peak(args.device)
            found, first = record.timed(args.device, partial(method.explain, batch, target=target))
            ways = {"moreaugrad": partial(method.attribute, batch, target=target)}
            ways |= rivals(name, model, batch, target)
            known = {"moreaugrad": (first, peak(args.device))} if first > args.long else {}
            row = {"method": name, "images": len(batch), "gradients": int(found.gradients.max())}
            row |= {key: value for key, value in options.items() if value is not None}
            table.append(row | measured(ways, known, args.device, args.repeats))
            print(table[-1], flush=True)
            results = {"quality": args.quality or "default", "image_size": list(x.shape[1:]), "table": table}
            # after every row, so that an interrupted run is not lost
            record.store("cost", args.device, results, args.out)


def make_method(name: str, model: nn.Module, quality: str) -> Any:
    """The method at the given quality, if it has a budget, and keeping 5 % of the entries, if it is sparse."""
    entry = mg.METHODS[name]
    options: dict[str, Any] = {"sparsity": 0.05} if "sparse" in entry.flags else {}
    if quality and "budget" in {field.name for field in fields(entry.load())}:
        options["budget"] = quality
    return entry(model, **options)


def measured(ways: dict[str, Rival], known: dict[str, tuple[float, int]], device: str, repeats: int) -> dict[str, Any]:
    """Best seconds and largest peak memory of each way, in turn; those `known` took long and are not run again."""
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


def rivals(name: str, model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Rival]:
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
    module = find_last_features(model, x)
    found: dict[str, Rival] = {"torchcam": partial(torchcam, name, model, module, x, target)}
    if name != "cam" and find_spec("pytorch_grad_cam"):
        found["pytorch-grad-cam"] = partial(pytorch_grad_cam, name, model, module, x, target)
    if name == "gradcam":
        found["captum"] = partial(LayerGradCam(model, module).attribute, x, target=target, relu_attributions=True)
    return found


def find_last_features(model: nn.Module, x: Tensor) -> nn.Module:
    """The last module without children that returns feature maps."""
    found: list[nn.Module] = []

    def note(module: nn.Module, given: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and output.shape[-1] > 1:
            found.append(module)

    hooks = [each.register_forward_hook(note) for each in model.modules() if not list(each.children())]
    with torch.no_grad():
        model(x[:1])
    for hook in hooks:
        hook.remove()
    return found[-1]


def torchcam(name: str, model: nn.Module, layer: nn.Module, x: Tensor, target: Tensor) -> Any:
    from torchcam import methods

    kind = {"cam": methods.CAM, "gradcam": methods.GradCAM, "gradcam_plus_plus": methods.GradCAMpp}[name]
    with kind(model, target_layer=layer) as extractor:
        return extractor(target.tolist(), model(x.clone().requires_grad_()))


def pytorch_grad_cam(name: str, model: nn.Module, layer: nn.Module, x: Tensor, target: Tensor) -> Any:
    import pytorch_grad_cam as library
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    kind = {"gradcam": library.GradCAM, "gradcam_plus_plus": library.GradCAMPlusPlus}[name]
    with kind(model=model, target_layers=[layer]) as extractor:
        return extractor(input_tensor=x, targets=[ClassifierOutputTarget(int(each)) for each in target])


def begin_peak(device: str) -> None:
    """Resets the peak: of the GPU's tensors, or of the process after it has returned unused memory."""
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

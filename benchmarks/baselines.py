"""SmoothGrad against Captum's NoiseTunnel around Saliency: same model, photo and number of samples, in one run.

    python -m benchmarks.baselines --data FOLDER [--device cuda] [--samples 256]

Captum is timed with several `nt_samples_batch_size` (by default it runs all samples at once), and its best time counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from captum.attr import NoiseTunnel, Saliency

import moreaugrad as mg
from benchmarks import photos, record

GPU = ("compiled float16", "compiled tf32", "float16", "tf32", "float32")


def main() -> None:
    sizes = "2,4,8,16,64,256"
    args = record.arguments(__doc__, samples=256, batches=sizes, ways="", repeats=3, photos=1)
    model, x = photos.load(args.data, args.photos, args.device)
    target = int(model(x[:1]).argmax())
    x = x[:1]
    tunnel = NoiseTunnel(Saliency(model))
    sigma = 0.15 * float(x.max() - x.min())

    def captum(together: int) -> Any:
        return tunnel.attribute(
            x,
            target=target,
            nt_type="smoothgrad",
            nt_samples=args.samples,
            nt_samples_batch_size=together,
            stdevs=sigma,
            abs=False,
        )

    ways: dict[str, Callable[[], Any]] = {}
    smoothing = mg.Smoothing(noise_level=0.15, samples=args.samples)
    for way in args.ways.split(",") if args.ways else GPU if x.is_cuda else ("float32",):
        compiled, precision = way.startswith("compiled "), way.removeprefix("compiled ")
        method = mg.SmoothGrad(model, smoothing, precision=precision, compile=compiled)
        ways[f"moreaugrad {way}"] = lambda method=method: method.attribute(x, target=target)
    for together in map(int, args.batches.split(",")):
        ways[f"captum {together} at a time"] = lambda together=together: captum(together)
    # in turn, so that a slow moment of the machine affects all alike; the best time of each counts
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for work in ways.values():
        work()
    for _ in range(args.repeats):
        for name, work in ways.items():
            seconds[name].append(record.timed(args.device, work)[1])
    best = {name: min(times) for name, times in seconds.items()}
    rival = min(time for name, time in best.items() if name.startswith("captum"))
    results = {
        "samples": args.samples,
        "seconds": best,
        "all_seconds": seconds,
        "times_faster_than_captums_best": {n: rival / t for n, t in best.items() if n.startswith("moreaugrad")},
    }
    print(results["seconds"], results["times_faster_than_captums_best"], flush=True)
    record.store("baselines", args.device, results, args.out)


if __name__ == "__main__":
    main()

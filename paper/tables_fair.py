"""The tables of the fair test: the strongest attacks, by derivative, against another image, and method by method."""

from __future__ import annotations

from paper import names
from paper.markdown import Results, Row, better, interval, markdown, percent, signed
from paper.records import number
from paper.summaries import CHANCE as LEVEL
from paper.summaries import DRAWN, FLOOR, MIDDLE, MODES, STRONGEST, curve


def strongest(results: Results, dataset: str, file: str = "fair.csv") -> str:
    """The strongest attack on each method at each size, which derivative led it, what two seeds alone do, and how far
    the map of another image is."""
    lines = results.lines(file)
    rows = []
    for method in names.METHODS:
        floor = [line for line in lines if _of(line, dataset, method) == (DRAWN[0], FLOOR)]
        other = [line for metric in DRAWN for line in lines if _of(line, dataset, method) == (metric, LEVEL)]
        another = " / ".join(f"{number(line['mean']):.2f}" for line in other)
        for parts in zip(*(curve(lines, dataset, method, metric) for metric in DRAWN), strict=True):
            size, share = number(parts[0]["epsilon"]), number(parts[0]["valid_share"])
            told = [names.method(method), f"{size:g}", *map(interval, parts), _won(parts[0]), percent(share)]
            rows.append([*told, "; ".join(map(interval, floor)), another])
    head = ["method", "norm", "distance", "top-k", "SSIM", "won by", "valid", "two seeds, distance", "another image"]
    return markdown(head, rows)


def _of(line: Row, dataset: str, method: str) -> tuple[str, str] | None:
    """Metric and mode, if it is a line of these."""
    return (line["metric"], line["mode"]) if (line["dataset"], line["method"]) == (dataset, method) else None


def _won(line: Row) -> str:
    """implicit 62 %, unrolled 30 %, frozen 8 %; the largest share first."""
    shares = {mode: number(line[f"won_{mode}"]) for mode in MODES if line.get(f"won_{mode}")}
    ordered = sorted(shares, key=lambda mode: -shares[mode])
    return ", ".join(f"{mode} {percent(shares[mode])}" for mode in ordered)


def modes(results: Results, method: str, file: str = "fair.csv") -> str:
    """The mean distance that each derivative reaches on one method, and the strongest of them."""
    lines = [line for line in results.lines(file) if (line["method"], line["metric"]) == (method, DRAWN[0])]
    known = [mode for mode in (*MODES, STRONGEST) if any(line["mode"].partition(":")[0] == mode for line in lines)]
    rows = []
    for dataset in names.DATASETS:
        some = [line for line in lines if line["dataset"] == dataset and line["mode"] not in (FLOOR, LEVEL)]
        for size in sorted({number(line["epsilon"]) for line in some}):
            at = {line["mode"].partition(":")[0]: line for line in some if number(line["epsilon"]) == size}
            told = (interval(at[mode]) if mode in at else "" for mode in known)
            rows.append([names.dataset(dataset), f"{size:g}", *told])
    return markdown(["data set", "norm", *known], rows)


def way(results: Results, file: str = "way.csv") -> str:
    """How far the strongest attack moves a map on its way to that of another image."""
    shares: dict[tuple[str, float], dict[str, str]] = {}
    for line in results.lines(file):
        middle, low, high = (f"{number(line[name]):.0%}".rstrip("%") for name in MIDDLE)
        shares.setdefault((line["dataset"], number(line["epsilon"])), {})[line["method"]] = f"{middle} [{low}, {high}]"
    known = [method for method in names.METHODS if any(method in told for told in shares.values())]
    rows = [
        [names.dataset(dataset), f"{size:g}", *(told.get(method, "") for method in known)]
        for (dataset, size), told in shares.items()
    ]
    return markdown(["in per cent", "norm", *map(names.method, known)], rows)


def paired(results: Results, method: str, other: str, file: str = "paired.csv") -> str:
    """One method less another, image by image; bold where the interval leaves zero out."""
    lines = results.some(file, {"method": method, "other": other})
    groups: dict[tuple[str, float], dict[str, Row]] = {}
    for line in lines:
        groups.setdefault((line["dataset"], number(line["epsilon"])), {})[line["metric"]] = line
    rows = [
        [names.dataset(dataset), f"{size:g}", *(signed(at[metric]) for metric in DRAWN), at[DRAWN[0]]["n"]]
        for (dataset, size), at in groups.items()
    ]
    return markdown(["data set", "norm", *map(better, DRAWN), "images"], rows)

"""Shows that a change of the code moves no number: writes what the library computes, and compares two such files.

    python tools/check_numbers.py write FILE      every method, prior, attack, metric and certificate on fixed seeds
    python tools/check_numbers.py compare OLD NEW largest differences by name; exit 1 above 1e-10 or if one is missing

Networks and inputs are small and in float64, so the whole run takes about a minute. Run it once before a change and
once after, with PYTHONPATH pointing at each tree.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import astuple, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import moreaugrad as mg
from moreaugrad.methods.mask_network.decoder import MaskNet
from moreaugrad.methods.mask_network.encoder import Encoder, Fingerprint

LIMIT = 1e-10
FLOOR = 1e-3  # arrays below it, such as residuals of exact solutions, are rounding errors and compared absolutely
EXPLANATION = (
    "map", "delta", "stderr", "coarse", "target", "score", "eta", "envelope", "residual", "converged", "gradients",
)  # fmt: skip
ATTACK = (
    "x", "success", "kept", "objective", "trace", "gradients", "target", "l2", "linf", "pixels_l2", "pixels_linf",
    "maps", "mse_target", "pearson_clean", "mask", "share", "plain_x", "plain_share", "fooling", "ce",
)  # fmt: skip
CERTIFICATE = (
    "epsilon", "alpha", "sigma", "samples", "rho", "lam", "beta", "lipschitz", "residual", "sampling", "error",
    "budget", "dual_budget", "norm", "k", "total", "overlap", "members", "active", "survivors", "entrants", "distance",
    "cosine", "map", "vacuous",
)  # fmt: skip
Case = tuple[str, Callable[[], Any]]


# Networks and inputs.


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make_cnn(activation: type[nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), activation(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1), activation(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    nn.init.normal_(net[1].weight, 1, 0.3)
    nn.init.normal_(net[1].running_mean, 0, 0.3)
    nn.init.uniform_(net[1].running_var, 0.5, 1.5)
    nn.init.normal_(net[7].weight, 0, 8)  # steep enough for thresholds to keep entries and for attacks to succeed
    return net.double().eval()


def make_mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 4)).double().eval()


class TwoInputs(nn.Module):
    """Scores of an image and a row together, scaled by a third argument."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.rows = make_cnn(nn.Softplus), nn.Linear(10, 5).double()

    def forward(self, image: Tensor, row: Tensor, scale: Tensor | None = None) -> Tensor:
        out = self.images(image) + self.rows(row).tanh()
        return out if scale is None else out * scale.view(-1, 1)


class Quadratic(nn.Module):
    """x'Hx/2 + b'x with curvatures from `low` to `high`, and its negative."""

    def __init__(self, low: float, high: float, size: int = 6) -> None:
        super().__init__()
        basis = torch.linalg.qr(draw(size, size, seed=5))[0]
        self.H = basis @ torch.diag(torch.linspace(low, high, size, dtype=torch.float64)) @ basis.T
        self.b = draw(size, seed=6)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        value = (x @ self.H * x).sum(1) / 2 + x @ self.b
        return torch.stack([value, -value], 1)


def make_mask_network(net: nn.Module, x: Tensor) -> Any:
    """An untrained mask network for this classifier."""
    encoder = Encoder.of(net, x)
    with torch.no_grad():
        output, maps = encoder(lambda: net(x))
    torch.manual_seed(0)
    made = MaskNet(encoder.stages, [m.shape[1] for m in maps], output.shape[1], Fingerprint.of(net), 8)
    return made.double().eval()


CNN, RELU, MLP = make_cnn(nn.Softplus), make_cnn(nn.ReLU), make_mlp()
IMAGES, ROWS = draw(3, 3, 12, 12), draw(3, 10, seed=2)
LABELS = torch.arange(12).view(12, 1) // 3 * 4 + torch.arange(12) // 3
EACH = torch.stack([LABELS, LABELS.T, LABELS.flip(0) // 2])
GROUPS = {"grid": 4, "superpixels": "superpixels", "channels": "channels", "labels": LABELS, "each": EACH}


# Cases: a name, and a function that computes its numbers.


def method_options() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, label, options; on the smooth network unless the label starts with relu or rows."""
    few = mg.Smoothing(noise_level=0.2, samples=10)
    yield "gradient", "plain", {}
    yield "gradient", "relu", {}
    yield "gradient", "rows", {}
    for kind in ("prob", "logprob"):
        yield "gradient", kind, {"score": kind}
        yield "moreau", kind, {"score": kind, "budget": 64}
    yield "integrated_gradients", "right", {"steps": 6}
    yield "integrated_gradients", "gauss", {"steps": 6, "rule": "gausslegendre", "baseline": "zero"}
    yield "integrated_gradients", "alone", {"steps": 5, "multiply_by_inputs": False}
    yield "deeplift", "plain", {}
    yield "deeplift", "relu", {"multiply_by_inputs": False}
    for variant in ("mean", "sq", "var"):
        yield "smoothgrad", variant, {"smoothing": few, "variant": variant}
    yield "smoothgrad", "relu sigma", {"smoothing": mg.Smoothing(sigma=0.3, samples=16), "seed": 3}
    yield "smoothgrad", "rows", {"smoothing": few}
    for variant in ("basic", "relaxed", "scaled"):
        yield "sparsified_smoothgrad", variant, {"smoothing": few, "variant": variant}
    yield "sparsified_smoothgrad", "relu", {"smoothing": few, "tau": 0.3, "gamma": 0.05}
    yield from layer_and_mask_options()
    yield from moreau_options()


def layer_and_mask_options() -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "relex", "plain", {"budget": 80, "steps": 10, "lam1": 1e-6}
    yield "relex", "short", {"budget": 24, "steps": 4, "lam2": 0.5}
    for name in ("cam", "gradcam", "gradcam_plus_plus", "normgrad"):
        yield name, "plain", {}
        yield name, "relu", {}
    yield "gradcam", "layer signed", {"layer": "2", "relu": False}
    yield "gradcam_plus_plus", "normalised", {"layer": "0", "normalise_alpha": True}
    for variant in ("conv3x3", "scaling", "selective", "bias", "proper"):
        yield "normgrad", variant, {"variant": variant}
    yield "normgrad", "several", {"layers": ["0", "3"], "aggregation": "sum", "loss": "ce"}
    yield "meaningful_perturbation", "deletion", {"budget": 6}
    yield "meaningful_perturbation", "preservation", {"mode": "preservation", "budget": 5, "replacement": "noise"}
    yield "fgvis", "relu", {"budget": 6, "lam": 1e-3}
    yield "fgvis", "relu grid", {"mode": "deletion", "budget": 8, "defence": "clip"}
    yield "mask_network", "plain", {"network": make_mask_network(CNN, IMAGES)}
    yield "mask_network", "confident", {"network": make_mask_network(CNN, IMAGES), "confidence": 2.0}


def moreau_options() -> Iterator[tuple[str, str, dict[str, Any]]]:
    still, fast = {"smoothing": None, "budget": 120}, {"budget": 64}
    fixed = mg.Smoothing(sigma=0.2, samples=6, fixed=True)
    yield "moreau", "noise", fast
    yield "moreau", "still", still
    yield "moreau", "rows", {**fast, "rho": 0.3}
    yield "moreau", "relu", {**fast, "rho": 0.1}
    yield "moreau", "fixed", {**fast, "smoothing": fixed}
    yield "moreau", "early", {"relative_error": 0.5, "budget": 400}
    yield "moreau", "published", {**still, "solver": mg.PaperAlgorithm(steps=20), "rho": 0.5}
    yield "moreau", "averaged", {**still, "solver": "dual_averaging"}
    yield "moreau", "tuned", {"solver": mg.DualAveraging(budget=48, power=6.0, late=0.5)}
    yield "sparse_moreau", "eta", {**fast, "eta": 0.01}
    yield "sparse_moreau", "eta each", {**fast, "eta": torch.tensor([0.005, 0.01, 0.02], dtype=torch.float64)}
    yield "sparse_moreau", "sparsity", {**fast, "sparsity": 0.25}
    yield "sparse_moreau", "still eta", {**still, "eta": 0.01}
    yield "sparse_moreau", "still sparsity", {**still, "sparsity": 0.3}
    yield "sparse_moreau", "published", {"solver": mg.PaperAlgorithm(steps=20), "eta": 0.01, "rho": 0.5}
    yield "sparse_moreau", "path eta", {**fast, "eta": [0.005, 0.01, 0.02]}
    yield "sparse_moreau", "path sparsity", {**fast, "sparsity": [0.1, 0.3, 0.6]}
    yield "sparse_moreau", "still path", {**still, "sparsity": [0.1, 0.5]}
    yield "sparse_moreau", "rows", {**fast, "sparsity": 0.4, "rho": 0.3}
    yield "sparse_moreau", "relu", {**fast, "sparsity": 0.2, "rho": 0.1}
    for label, groups in GROUPS.items():
        yield "group_sparse_moreau", label, {**fast, "groups": groups, "sparsity": 0.4}
        yield "group_sparse_moreau", f"still {label}", {**still, "groups": groups, "eta": 0.05}
    yield "group_sparse_moreau", "rows", {**fast, "groups": torch.arange(10) // 2, "eta": 0.05, "rho": 0.3}
    yield "group_sparse_moreau", "path", {**fast, "groups": 4, "eta": [0.05, 0.1]}


def explain(name: str, label: str, options: dict[str, Any]) -> Any:
    net, x = {"relu": (RELU, IMAGES), "rows": (MLP, ROWS)}.get(label.split(maxsplit=1)[0], (CNN, IMAGES))
    return mg.METHODS[name](net, **options).explain(x)


def method_cases() -> Iterator[Case]:
    for name, label, options in method_options():
        yield f"method/{name}/{label}", partial(explain, name, label, options)
    image = torch.full_like(IMAGES[:1], 0.1)
    for name in ("integrated_gradients", "deeplift"):
        method = mg.METHODS[name](CNN)
        yield (
            f"method/{name}/baselines",
            partial(method.attribute, IMAGES, target=2, baselines=image, return_convergence_delta=True),
        )
    pair, scale = TwoInputs().eval(), torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    for name in ("gradient", "smoothgrad", "moreau", "sparse_moreau", "integrated_gradients"):
        options = {"budget": 64} if "moreau" in name else {}
        method = mg.METHODS[name](pair, **options)
        yield (
            f"method/{name}/tuple",
            partial(method.attribute, (IMAGES, ROWS), target=[0, 3, 1], additional_forward_args=scale),
        )
    yield (
        "method/moreau/chunks",
        partial(mg.MoreauGrad(CNN, budget=64).attribute, IMAGES, target=1, internal_batch_size=7),
    )


def derivative_cases() -> Iterator[Case]:
    """Gradients of a weighted sum of the map, which takes the derivative of the map."""
    modes = {
        "implicit": {"derivative": mg.Implicit()},
        "implicit sized": {"derivative": mg.Implicit(steps=3, samples=8, tol=1e-2)},
        "covariance": {"derivative": mg.Covariance(samples=32)},
        "unrolled": {"derivative": mg.Unrolled(steps=3, samples=8)},
        "frozen": {"derivative": mg.Frozen()},
        "differences": {"hessian_step": 1e-3},
    }
    kinds = {"moreau": {}, "sparse_moreau": {"sparsity": 0.3}, "group_sparse_moreau": {"eta": 0.05, "groups": 4}}
    for name, own in kinds.items():
        for label, options in modes.items():
            yield f"derivative/{name}/{label}", partial(differentiate, name, budget=48, **own, **options)
            if label != "covariance":
                still = partial(differentiate, name, budget=60, smoothing=None, **own, **options)
                yield f"derivative/{name}/still {label}", still
    for name in ("gradient", "smoothgrad", "sparsified_smoothgrad", "integrated_gradients", "gradcam", "normgrad"):
        options = {"smoothing": mg.Smoothing(noise_level=0.2, samples=6)} if "smooth" in name else {}
        yield f"derivative/{name}", partial(differentiate, name, **options)


def differentiate(name: str, **options: Any) -> Tensor:
    x = IMAGES.clone().requires_grad_()
    maps = mg.METHODS[name](CNN, **options).attribute(x, target=1, create_graph=True)
    return torch.autograd.grad((maps * draw(*maps.shape, seed=7)).sum(), x)[0]


def prior_cases() -> Iterator[Case]:
    yield "prior/zero", lambda: measure_prior(mg.Zero())
    yield "prior/l1", lambda: measure_prior(mg.L1())
    for label, groups in GROUPS.items():
        yield f"prior/group/{label}", lambda groups=groups: measure_prior(mg.Group(groups).for_batch(IMAGES))


def measure_prior(prior: Any) -> dict[str, Any]:
    amount, q = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64), draw(*IMAGES.shape, seed=8)
    delta = prior.prox(IMAGES, amount)
    return {
        "value": prior.value(IMAGES),
        "prox": delta,
        "level": prior.level(IMAGES, 0.3),
        "units": prior.units(delta),
        "active": prior.active(delta),
        "hessian_product": prior.hessian_product(delta, q),
        "stiffness": prior.stiffness(delta),
    }


ATTACKS: list[tuple[str, str, str, dict[str, Any]]] = [  # attack, label, method, options
    ("topk", "l2", "gradient", {"epsilon": 0.5, "k": 20, "steps": 3}),
    ("topk", "sign", "gradient", {"epsilon": 0.5, "k": 0.1, "steps": 3, "rule": "sign", "per_pixel": True}),
    ("topk", "linf", "smoothgrad", {"epsilon": 0.05, "norm": "linf", "steps": 3, "restarts": 2}),
    ("topk", "moreau", "sparse_moreau", {"epsilon": 0.5, "k": 20, "steps": 2}),
    ("mass_centre", "l2", "gradient", {"epsilon": 0.5, "steps": 3}),
    ("region", "l2", "gradient", {"epsilon": 0.5, "steps": 3, "region": (0, 0, 4, 4)}),
    ("noise", "l2", "gradient", {"epsilon": 0.5}),
    ("noise", "plain", "gradient", {"epsilon": 0.1, "norm": "plain", "seed": 4}),
    ("manipulation", "map", "gradient", {"epsilon": 0.5, "steps": 4, "step_size": 0.05, "target_map": LABELS / 15}),
    ("structured", "grid", "gradient", {"epsilon": 4.0, "groups": 4, "rounds": 2, "iterations": 25, "c": 10.0}),
    ("structured", "official", "gradient",
     {"epsilon": 4.0, "groups": "channels", "rounds": 2, "iterations": 20, "official": True, "growing": True}),
    ("pgd", "linf", "gradient", {"epsilon": 2.0, "steps": 4}),
    ("pgd", "goal", "gradient", {"epsilon": 20.0, "norm": "l2", "steps": 4, "goal": 1, "restarts": 2}),
    ("patch", "hidden", "gradcam", {"epsilon": 9.0, "norm": "linf", "steps": 12, "step_size": 4.0, "size": (7, 7)}),
    *[("model_fooling", kind, "gradcam", {"epsilon": float("inf"), "steps": 2, "lr": 1e-3, "kind": kind})
      for kind in ("location", "topk", "centre_mass")],
]  # fmt: skip


def attack_cases() -> Iterator[Case]:
    quick = {"smoothgrad": {"smoothing": mg.Smoothing(samples=6)}, "sparse_moreau": {"budget": 48, "sparsity": 0.3}}
    for name, label, method, given in ATTACKS:
        for kind, net in (("smooth", CNN), ("relu", RELU)):
            explained = mg.METHODS[method](net, **quick.get(method, {}))
            yield f"attack/{name}/{label}/{kind}", partial(attack_images, name, explained, **given)
    first, second = (mg.ATTACKS["topk"](mg.Gradient(CNN), 0.5, k=20, steps=2, seed=seed) for seed in (0, 1))
    yield "attack/transfer", lambda: first.transfer(IMAGES, [second.perturb(IMAGES).x, IMAGES + 0.01])
    yield "attack/strongest", lambda: mg.strongest_attack([first.perturb(IMAGES), second.perturb(IMAGES)])[0]


def attack_images(name: str, method: Any, epsilon: float, **options: Any) -> Any:
    return mg.ATTACKS[name](method, epsilon, **options).perturb(IMAGES)


def metric_cases() -> Iterator[Case]:
    a, b = draw(3, 3, 12, 12, seed=10), draw(3, 3, 12, 12, seed=11)
    a[0, :, :6] = 0
    boxes = torch.tensor([[2, 3, 9, 8], [0, 0, 12, 4], [5, 5, 6, 6]])
    given: dict[str, Any] = {"pair": (a, b), "map": (a,), "box": (a, boxes), "model": (a, IMAGES, CNN, 2)}
    given["explainer"] = (explain_by, CNN, IMAGES)
    options: dict[str, list[dict[str, Any]]] = {
        "topk_intersection": [{"k": 7}, {"k": 0.25, "per_pixel": True}, {"signed": True}],
        "ssim": [{"raw": True}],
        "nonzero_share": [{"tol": 0.1}],
        "active_groups": [{"groups": 4}, {"groups": "channels"}, {"groups": LABELS, "tol": 0.5}],
        "pointing_game": [{"tolerance": 3.0}, {"signed": True}],
        "insertion": [{"step": 5, "signed": True}, {"baseline": 0.3, "return_curve": True}],
        "deletion": [{"step": 5, "seeds": (4,)}, {"baseline": "blur", "return_curve": True}],
        "local_lipschitz": [{"radius": 0.5, "samples": 3, "seed": 1}],
        "sanity_check": [{"metric": "cosine", "seed": 2}],
        "model_randomisation": [{"mode": "independent"}],
        **{name: [{"signed": True}] for name in ("normalised_distance", "cosine", "spearman", "pearson")},
    }
    for name, entry in mg.METRICS.items():
        inputs = (explain_by(CNN), IMAGES) if name == "local_lipschitz" else given[entry.needs]
        for number, chosen in enumerate([{}, *options.get(name, [])]):
            yield f"metric/{name}/{number}", partial(entry, *inputs, **chosen)


def explain_by(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: mg.Gradient(model).attribute(x, target=1)


def certificate_cases() -> Iterator[Case]:
    x, y = draw(2, 6, seed=20), draw(2, 10, seed=21)
    quadratic, noise = Quadratic(-0.4, 3.0), mg.Smoothing(sigma=0.5)
    still = {"rho": 1.0, "smoothing": None}
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    image = draw(1, 3, 12, 12, seed=22)
    torch.manual_seed(0)
    steep = nn.Sequential(nn.Linear(6, 2)).double().eval()
    nn.init.normal_(steep[0].weight, 0, 5)
    by_range, by_odds = (mg.MoreauGrad(net, score="prob", smoothing=noise) for net in (MLP, steep))
    fresh, certified = mg.FreshNoise(samples=20_000, seed=7), partial(mg.CertifiedProblem, "certified")
    convex = {"assume": mg.Assumptions(convex=True), "epsilon": 0.01}
    curved = {"epsilon": 0.05, "assume": mg.Assumptions(curvature=(0.4, 3.0)), "report": mg.ReportOptions(k=2)}
    drawn = {"epsilon": 0.001, "problem": certified(), "noise": fresh}
    ranged, local = ({**drawn, "assume": mg.Assumptions(recipe=recipe)} for recipe in ("range", "local"))
    bounded = {**drawn, "assume": mg.Assumptions(lipschitz=3.0), "problem": certified(theta=0.2)}
    ranked = {"epsilon": 0.001, "noise": mg.FreshNoise(samples=2000, seed=3), "report": mg.ReportOptions(k=5)}
    cases: dict[str, tuple[Any, Tensor, dict[str, Any]]] = {
        "smooth/plain": (mg.MoreauGrad(quadratic, **still), x, curved),
        "smooth/sparse": (mg.SparseMoreauGrad(quadratic, eta=0.3, **still), x, curved),
        "smooth/group": (mg.GroupSparseMoreauGrad(quadratic, eta=0.4, groups=groups, **still), x, curved),
        "smooth/exact": (
            mg.SparseMoreauGrad(MLP, rho=0.2, eta=0.05, smoothing=None), y,
            {"epsilon": 0.01, "assume": mg.Assumptions(curvature="exact")},
        ),
        "convex": (mg.MoreauGrad(Quadratic(0.0, 5.0), rho=0.5, smoothing=None), x, convex),
        "range": (by_range, y, ranged),
        "range/grid": (
            mg.MoreauGrad(CNN, score="prob", smoothing=noise), image, {**drawn, "problem": certified(grid=3)},
        ),
        "range/clipped": (mg.MoreauGrad(mg.Clipped(MLP, -0.5, 0.5), smoothing=noise), y, ranged),
        "range/votes": (mg.MoreauGrad(mg.Votes(CNN), smoothing=noise), image, {**drawn, "problem": certified(grid=2)}),
        "range/steep": (by_odds, x / 20, ranged),
        "local/steep": (by_odds, x / 20, local),
        "local": (by_range, y, local),
        "centred": (mg.MoreauGrad(MLP, smoothing=noise), y, {**drawn, "problem": certified(centred=True)}),
        "lipschitz": (
            mg.SparseMoreauGrad(MLP, eta=0.02, smoothing=noise), y,
            {**drawn, "assume": mg.Assumptions(lipschitz="exact")},
        ),
        "lipschitz/computed": (
            mg.MoreauGrad(MLP, smoothing=noise, seed=None), y, {**bounded, "report": mg.ReportOptions(k=3)},
        ),
        "ranks": (mg.SparsifiedSmoothGrad(RELU, smoothing=noise), image, ranked),
    }  # fmt: skip
    for label, (method, inputs, options) in cases.items():
        yield f"certificate/{label}", partial(mg.certify, method, inputs, 0, **options)
    yield "certificate/constants", lambda: astuple(mg.lipschitz_bounds(MLP, 0))


# Writing and comparing.


def read(result: Any, name: str) -> Any:
    """A field of a result, or of one of the objects that group its fields; None where it has none."""
    if name in dir(result):  # former names are not, and would warn
        return getattr(result, name)
    own = fields(result) if is_dataclass(result) else ()
    parts = [getattr(result, field.name) for field in own if field.name != "method"]
    values = (getattr(part, name, None) for part in parts if is_dataclass(part))
    return next((value for value in values if value is not None), None)


def flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Named arrays of what a case returned."""
    if value is None or isinstance(value, str):
        return
    if isinstance(value, Tensor):
        yield name, value.detach().numpy()
    elif isinstance(value, bool | int | float | np.ndarray):
        yield name, np.asarray(value)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from flatten(f"{name}:{key}", each)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from flatten(f"{name}[{number}]", each)
    else:
        kinds = {"recipe": CERTIFICATE, "objective": ATTACK, "map": EXPLANATION}
        known = next((names for key, names in kinds.items() if read(value, key) is not None), None)
        picked = ("similarity",) if known is None else known
        yield from flatten(name, {key: read(value, key) for key in picked})


def write(path: str) -> int:
    """Runs every case; the number of those that failed."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    logging.getLogger("moreaugrad").setLevel(logging.ERROR)
    arrays, failed = {}, 0
    for cases in (method_cases, derivative_cases, prior_cases, attack_cases, metric_cases, certificate_cases):
        for name, compute in cases():
            torch.manual_seed(0)
            try:
                arrays.update(flatten(name, compute()))
            except Exception:
                failed += 1
                print(f"{name}: failed\n{traceback.format_exc(limit=-3)}", file=sys.stderr)
    np.savez(path, **arrays)
    print(f"{len(arrays)} arrays of {sum(each.size for each in arrays.values())} numbers in {path}; {failed} failed")
    return failed


def difference(old: np.ndarray, new: np.ndarray) -> float:
    """Largest difference, relative to the largest finite number of the old array or FLOOR."""
    if old.shape != new.shape:
        return float("inf")
    a, b = old.astype(float), new.astype(float)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    gap = np.abs(np.where(same, 0.0, a) - np.where(same, 0.0, b))
    scale = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return float(np.nan_to_num(gap, nan=np.inf, posinf=np.inf).max() / max(scale, FLOOR))


def compare(old: str, new: str) -> int:
    first, second = (np.load(path, allow_pickle=False) for path in (old, new))
    gaps = {name: difference(first[name], second[name]) for name in first.files if name in second.files}
    missing = [name for name in first.files if name not in second.files]
    for name in missing:
        print(f"only in {old}: {name}")
    for name in second.files:
        if name not in first.files:
            print(f"only in {new}: {name}")
    for name, gap in sorted(gaps.items(), key=lambda item: -item[1])[:30]:
        if gap > 0:
            print(f"{gap:9.2e}  {name}")
    moved = sum(gap > LIMIT for gap in gaps.values())
    print(f"{len(gaps)} arrays compared, {moved} differ by more than {LIMIT:g}, {len(missing)} missing")
    return int(moved > 0 or bool(missing))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("file")
    both = commands.add_parser("compare")
    both.add_argument("old")
    both.add_argument("new")
    given = parser.parse_args()
    return int(write(given.file) > 0) if given.command == "write" else compare(given.old, given.new)


if __name__ == "__main__":
    sys.exit(main())

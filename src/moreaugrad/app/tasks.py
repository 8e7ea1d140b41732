"""What a job does: explain a photo, attack its map, or certify one. Each returns facts, and files to fetch."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import moreaugrad as mg
from moreaugrad.api import Explainer, with_photos
from moreaugrad.app.binary import pack_map
from moreaugrad.app.jobs import File, Job, JobResult
from moreaugrad.app.models import Menu, check_explainer, check_number, rank, read_options
from moreaugrad.app.photos import Photo, encode
from moreaugrad.app.recipe import Recipe
from moreaugrad.app.refusal import Refusal
from moreaugrad.models.classifier import Classifier
from moreaugrad.plotting import pictures
from moreaugrad.results import Explanation
from moreaugrad.studies.setup import BudgetedMethod
from moreaugrad.studies.trial import Trial
from moreaugrad.wording import KNOWN, describe_accuracy

BINARY, PNG, JSON = "application/octet-stream", "image/png", "application/json"
ATTACK, ATTACK_BUDGET, JUDGED_BUDGET = "topk", 40, 160  # gradients of a map inside the attack, and of a judged one
LADDER = tuple(round(0.005 * 1.3**step, 5) for step in range(16))  # of epsilon over sigma, for certificates
TITLES = {
    "normalised_distance": "distance of the maps",
    "topk_intersection": "shared among the largest pixels",
    "ssim": "structural similarity",
    "cosine": "cosine",
    "spearman": "rank correlation",
    "centre_shift": "shift of the centre",
}


@dataclass(frozen=True)
class Task:
    """A checked request: which photo, which network, which method."""

    kind: str
    photo: Photo
    model: str
    loaded: Mapping[str, Any]  # what it was loaded with
    classifier: Classifier
    method: str
    options: Mapping[str, Any]  # flat, as for `make_method`
    asked: Mapping[str, Any]  # as they were sent
    target: int | None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def same(self) -> object:
        """Equal for tasks with equal results."""
        return json.dumps(
            [self.kind, self.photo.digest, self.model, self.method, self.target, dict(self.options), dict(self.more)],
            sort_keys=True,
        )

    def run(self, job: Job) -> JobResult:
        return TASKS[self.kind](self, job)


def read_task(body: Mapping[str, Any], photo: Photo, menu: Menu) -> Task:
    """A request as a browser sent it, checked."""
    known = {"kind", "photo", "model", "method", "target", "options", "attack", "certify"}
    if unknown := sorted(set(body) - known):
        raise Refusal(422, f"a job may have {', '.join(sorted(known))}, got {unknown[0]!r}"[:300])
    kind = body.get("kind", "explain")
    if not isinstance(kind, str) or kind not in TASKS:
        raise Refusal(422, f"kind must be one of {list(TASKS)}, got {kind!r}"[:300])
    classifier, model = menu[body.get("model")], menu.name_of(body.get("model"))
    target = body.get("target")
    if target is not None:
        check_number("target", target, 0, menu.outputs[model] - 1, whole=True)
    asked = body.get("options") or {}
    found = kind, photo, model, menu.loaded.get(model, {}), classifier
    if kind == "certify":
        return Task(*found, "moreau", {}, asked, target, _read_certify(body.get("certify") or {}))
    method, options = read_options(body.get("method", "sparse_moreau"), asked)
    check_explainer(classifier, method, options)
    more = _read_attack(body.get("attack") or {}) if kind == "attack" else {}
    return Task(*found, method, options, asked, target, more)


def explain(task: Task, job: Job) -> JobResult:
    """The map of a photo, with what is known of it."""
    explainer = check_explainer(task.classifier, task.method, task.options)
    x, target = _look(task, job, explainer)
    began = time.monotonic()
    watch = partial(job.watch, preview=_draw_preview)
    found = explainer.method.explain(x, target, callback=watch)
    seconds = time.monotonic() - began
    dense = _dense(explainer, found)
    photo, crop = task.photo.use(lambda picture: (explainer.read(picture)[1], explainer.classifier.crop(picture)))
    # a result is kept for a while, and must not keep the moments, or a large picture
    found = with_photos(_own(found).cpu(), (replace(photo, read=None),))
    facts = _head(task, found) | {"seconds": round(seconds, 2), "solved_share": _share(explainer)}
    facts |= {"known": describe_known(found, explainer.method.random)}
    given = dict(task.asked)
    device = task.classifier.device.type
    recipe = Recipe(task.model, task.loaded, device, task.method, target, given, task.options.get("samples"))
    facts |= {"command": recipe.command, "python": recipe.python}
    facts |= {"never_negative": bool((found.map >= 0).all())}
    one = found.map[0]
    record = facts | {"explanation": found.to_dict(), "settings": given, "model": task.model}
    files = {
        "map": _keep("map", pack_map(one, None if dense is None else dense[0].cpu())),
        "npz": File("map.npz", BINARY, found.to_bytes),
        "picture": File("picture.png", PNG, partial(_draw_picture, crop, one)),
        "json": File("result.json", JSON, partial(_to_json, record)),
    }
    return JobResult(facts, files, 6 * 4 * one.numel())


def attack(task: Task, job: Job) -> JobResult:
    """The map before and after an attack on it, and what another seed alone changes."""
    explainer = check_explainer(task.classifier, task.method, task.options)
    x, target = _look(task, job, explainer)
    budget = int(task.options.get("budget", task.options.get("samples", JUDGED_BUDGET)))
    options = {name: value for name, value in task.options.items() if name not in ("budget", "samples", "seed")}
    seed = int(task.options.get("seed", 0))
    budgeted = BudgetedMethod(task.method, budget, min(budget, ATTACK_BUDGET), seed, options)
    epsilon, steps = task.more["epsilon"], task.more["steps"]
    trial = Trial.of(
        *(mg.prepare(task.classifier), budgeted, ATTACK),
        derivative="frozen" if budgeted.has_modes else None,
        epsilon=epsilon,
        options={"steps": steps},
    )
    began = time.monotonic()
    hit = trial.attack(x.contiguous(), target, job.watch)
    found = trial.judge_maps(x.contiguous(), hit, job.watch)
    lengths = {"change_8bit": hit.pixels_l2, "largest_change_8bit": hit.pixels_linf}
    metrics = [
        {"name": name, "title": TITLES[name], "higher_is_more_robust": each["more_robust"] == "higher"}
        | {key: _finite(each[key]) for key in ("attacked", "two_seeds")}
        for name, each in found.compare().items()
    ]
    moved = metrics[0]
    facts = _head(task, found.before) | {"epsilon": epsilon, "norm": getattr(trial.attacker, "norm", "l2")}
    facts |= {name: None if value is None else round(float(value), 2) for name, value in lengths.items()}
    facts |= {"same_class": bool(hit.kept.all()), "seconds": round(time.monotonic() - began, 2), "metrics": metrics}
    facts |= {"gradients": int(hit.gradients.sum()), "sentence": _tell_attack(moved, trial.judge.random)}
    picture = (hit.x[0] * task.classifier.std + task.classifier.mean).clamp(0, 1).mul(255).round().byte()
    record = facts | {"settings": dict(task.asked), "model": task.model}
    files = {
        "before": _keep("before", pack_map(found.before.map[0])),
        "after": _keep("after", pack_map(found.after.map[0])),
        "photo": _keep("photo.png", _encode_pixels(picture.cpu()), PNG),
        "json": File("result.json", JSON, partial(_to_json, record)),
    }
    return JobResult(facts, files)


def certify(task: Task, job: Job) -> JobResult:
    """Which entries of a map of votes surely stay in it, however the photo changes by up to epsilon."""
    sigma, samples, share = (task.more[name] for name in ("sigma", "samples", "sparsity"))
    options = {"rho": 0.0, "statistic": "votes", "sigma": sigma, "sparsity": share, "prior": "l1"}
    explainer = check_explainer(task.classifier, "moreau", options)
    x, target = _look(task, job, explainer)
    method: Any = explainer.method
    began = time.monotonic()
    noise = mg.FreshNoise(samples=samples)
    (found,) = mg.certify(method, x, target, LADDER[0] * sigma, noise=noise, report=mg.ReportOptions(units="entries"))
    epsilons, stays, overlap = [ratio * sigma for ratio in LADDER], [], []
    radius = torch.zeros_like(found.map)
    for epsilon in epsilons:
        there = found.at(epsilon)
        assert there.values is not None  # a certificate of votes bounds every value
        sure = there.values.lower > 0
        radius[sure] = epsilon
        stays.append(int(sure.sum()))
        overlap.append(round(there.topk.overlap / there.topk.k, 4))
    active = int((found.map != 0).sum())
    facts = _describe_class(task, found.target) | dict(
        zip(("channels", "height", "width"), found.map.shape, strict=True)
    )
    facts |= {"kind": "certify", "sigma": sigma, "samples": samples, "alpha": noise.alpha, "epsilons": epsilons}
    facts |= {"active": active, "stays": stays, "overlap": overlap, "seconds": round(time.monotonic() - began, 2)}
    facts |= {"sentence": _tell_certificate(active, stays, epsilons, noise.alpha)}
    files = {
        "map": _keep("map", pack_map(found.map)),
        "radius": _keep("radius", pack_map(radius)),
        "json": File("result.json", JSON, partial(_to_json, facts | {"model": task.model})),
    }
    return JobResult(facts, files)


TASKS: dict[str, Callable[[Task, Job], JobResult]] = {"explain": explain, "attack": attack, "certify": certify}


def describe_known(found: Explanation, random: bool) -> str:
    """How well a map is known, for people who have not read a paper."""
    (facts,) = found.facts()
    error = facts["relative_error"]
    if not random:
        return "This method uses no noise: asked again, it gives exactly this map."
    if error is None or math.isnan(error):
        words = "; ".join(describe_accuracy(facts))
        return f"{words[:1].upper()}{words[1:]}." if words else "How well this map is known was not measured."
    percent = f"{100 * error:.2g} %"
    if error > KNOWN:
        return f"This map is known to within {percent} only: another seed gives another map. Ask for a better quality."
    end = "" if facts["converged"] is not False else " The solver had not settled; ask for a better quality."
    return f"This map is known to within {percent}: another seed gives nearly the same.{end}"


def _look(task: Task, job: Job, explainer: Explainer) -> tuple[Tensor, int | None]:
    """The network's input, on its device; tells the classes first."""
    job.check()
    x = task.photo.use(lambda picture: explainer.read(picture)[0])[None].to(task.classifier.device)
    top = rank(task.classifier, x)
    job.tell("classes", {"top": top})
    job.check()
    several = top[0]["probability"] is not None
    return x, (top[0]["target"] if task.target is None else task.target) if several else None


def _head(task: Task, found: Explanation) -> dict[str, Any]:
    (facts,) = found.facts()
    size = dict(zip(("channels", "height", "width"), found.map.shape[1:], strict=True))
    known = {name: _finite(facts[name]) for name in ("score", "kept", "relative_error")}
    about = {"kind": task.kind, "method": task.method, "converged": facts["converged"], "seed": found.seed}
    spent = None if found.gradients is None else int(found.gradients[0])
    return about | _describe_class(task, facts["target"]) | size | known | {"gradients": spent}


def _keep(name: str, content: bytes, kind: str = BINARY) -> File:
    """A file that is made already: what it was made of may be much larger."""
    return File(name, kind, partial(bytes, content))


def _own(found: Explanation) -> Explanation:
    """A result without the moments, none of whose tensors is a part of a larger one."""
    tensors: dict[str, Any] = {name: each.clone() for name, each in vars(found).items() if isinstance(each, Tensor)}
    return replace(found, **tensors | {"moments": None})


def _describe_class(task: Task, target: int | None) -> dict[str, Any]:
    return {"target": target, "label": None if target is None else task.classifier.label(target)}


def _dense(explainer: Explainer, found: Explanation) -> Tensor | None:
    """The map before the threshold of a prior on single entries."""
    method: Any = explainer.method
    if found.statistics is None or not isinstance(getattr(method, "prior", None), mg.L1):
        return None
    dense = found.statistics.get(method.statistic)
    return dense if isinstance(dense, Tensor) else None


def _share(explainer: Explainer) -> float | None:
    share = getattr(explainer.method, "share", None)
    return float(share) if isinstance(share, float | int) else None


def _draw_preview(map_: Tensor) -> dict[str, Any]:
    """The sizes of the pixels in 256 steps."""
    pixels = map_[0].detach().abs().sum(0)
    top = float(pixels.max())
    steps = (pixels * (255 / top if top > 0 else 0)).round().byte().cpu().numpy()
    return {"height": steps.shape[0], "width": steps.shape[1], "values": base64.b64encode(steps.tobytes()).decode()}


def _draw_picture(crop: Image.Image, map_: Tensor) -> bytes:
    """The map over what the network saw of the photo, not too small."""
    # the page tells of an all-zero map; a warning would be one in the server's terminal, for each who fetches it
    empty = pictures.ScaledMap(np.zeros(map_.shape[1:]), 0.0, signed=False, folded=False)
    scaled = pictures.scale_map(map_) if map_.any() else empty
    drawn = Image.fromarray(pictures.overlay(pictures.read_photo(crop), scaled))
    times = max(1, -(-448 // max(drawn.size)))
    return encode(drawn.resize((drawn.width * times, drawn.height * times), Image.Resampling.NEAREST))


def _encode_pixels(pixels: Tensor) -> bytes:
    array: Any = np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())
    return encode(Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array))


def _to_json(facts: Mapping[str, Any]) -> bytes:
    return (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read_attack(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping) or set(given) - {"epsilon", "steps"}:
        raise Refusal(422, f"attack may have epsilon and steps, got {given!r}"[:300])
    epsilon = check_number("epsilon", given.get("epsilon", 3.0), 0.001, 100)
    return {"epsilon": float(epsilon), "steps": check_number("steps", given.get("steps", 5), 1, 50, whole=True)}


def _read_certify(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping) or set(given) - {"sigma", "samples", "sparsity"}:
        raise Refusal(422, f"certify may have sigma, samples and sparsity, got {given!r}"[:300])
    return {
        "sigma": float(check_number("sigma", given.get("sigma", 0.25), 0.01, 10)),
        "samples": check_number("samples", given.get("samples", 1000), 100, 20_000, whole=True),
        "sparsity": float(check_number("sparsity", given.get("sparsity", 0.1), 0.001, 0.5)),
    }


def _tell_attack(moved: Mapping[str, Any], random: bool) -> str:
    alone = f"; another seed alone moves it by {moved['two_seeds']:.2f}" if random else ""
    return f"The attack moves the map by {moved['attacked']:.2f} (0: the same map, 1.41: nothing in common){alone}."


def _tell_certificate(active: int, stays: list[int], epsilons: list[float], alpha: float) -> str:
    if not active or not stays[0]:
        return "Nothing is certified with so few samples: take more, or a larger share of the map."
    share, at = 100 * stays[0] / active, epsilons[0]
    return (
        f"Whatever changes the input by at most {at:.3g} (Euclidean length), {stays[0]:,} of the {active:,} entries of "
        f"this map ({share:.0f} %) surely stay in it; the chance that this is wrong is at most {alpha:g}."
    )

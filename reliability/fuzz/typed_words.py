"""Words that people and scripts type behind a command: fitting ones, and odd ones for every kind of option."""

from __future__ import annotations

import random
from dataclasses import dataclass

NET = "small_network:Curved"  # of tests/support
PHOTO, PHOTOS, IN = "../in/photo.png", "photos", "../in"  # as seen from the folder in which a command runs

NUMBERS = [
    *("nan", "inf", "-inf", "-1", "0", "-0.0", "1e308", "-1e308", "1e-320", "1e400", "1.5", "-2.5", "2147483648"),
    *(
        "99999999999999999999999",
        "-99999999999999999999999",
        "9" * 5000,
        "0x10",
        "1_000",
        "1e3",
        "٣",
        "½",
        "one",
        "zwölf",
    ),
    *("", " ", " 1 ", "1,5", "1;5", "--", "-", "True", "None", "null", "[1]", "1/0", "1 2", "+1", "1j", "\u22121"),
]
WORDS = [
    *(
        "",
        " ",
        "-",
        "--",
        "-x",
        "ä",
        "猫",
        "💥",
        "a\nb",
        "a\tb",
        "a\r",
        "\x1b[31mred",
        "<b>&amp;",
        "[red]x[/red]",
        "%s%n",
    ),
    *("{}", "{0.__class__}", "../x", "/", ".", "..", "~", "a" * 5000, "null", "[]", "{", '{"a": 1}', '"', "'", "\\"),
    *(":", "x:y", "x:y:z", ":x", "x:", ",", ",,", "a,,b", "captum/", "captum/Nothing", "captum/IntegratedGradients"),
    *(
        "*",
        "?",
        "[",
        "\udcff",
        "name\udc80.png",
        "nothing",
        "logit",
        "GRADIENT",
        "l1",
        "0",
        "exact",
        "1,2",
        "$HOME",
        "`id`",
    ),
    *(
        "json:loads",
        "os:getcwd",
        "small_network:nothing",
        "small_network:SIZE",
        "small_network",
        "leaves:x",
        "raises:x",
        "syntax:x",
        "votes",
        "\u202eabc",
    ),
]
PATHS = [
    *("", ".", "..", "../in", PHOTO, PHOTOS, "photos/a.png", "../in/bad.png", "../in/empty.png", "../in/nowhere.png"),
    *(
        "file/below",
        "file",
        "a" * 300,
        "a/" * 60 + "b",
        "\udcff.png",
        "ä/💥.png",
        "new\nline",
        "../in/*.png",
        "[",
        "**",
    ),
    *("http://127.0.0.1:9/x.png", "file:///etc/hostname", "s3://bucket/key", "/dev/null", "~", "../in/labels.txt"),
    *("../in/weights.pt", "../in/data.npz", "../in/job.json", "../in/text.csv", "../in/bad.parquet", "../in/bad.tar"),
    *(
        "photos/b[1].png",
        "../in/photo.png/",
        "../in//photo.png",
        "./photos/../photos",
        "job",
        "../in/link",
        "../in/loop",
    ),
]
# of an output: none that may be written to elsewhere, so that files outside the folder are the package's own doing
PLACES = [each for each in PATHS if not each.startswith(("..", "/", "s3")) or each == "/dev/null"] + [PHOTO]
WORK = ("budget", "samples", "steps", "restarts", "attack_steps", "epochs", "steps_selector", "grid", "images")
MUCH = ["1000000000", "2147483648"]  # of work, which is interrupted
SETTINGS = [
    *("x", "=", "=1", "x=", "rho=", "rho=NaN", "rho=Infinity", "rho=-Infinity", "rho=[1,2]", "rho=[]", "rho=null"),
    *(
        "rho={}",
        'rho="1"',
        "eta=1e400",
        "eta=0.1",
        "samples=1.5",
        "samples=2",
        "budget=true",
        "score=logit",
        "score=[]",
    ),
    *("seed=-1", "seed=1", "forward_func=1", "model=3", "a=b=c", "x=[[[[[[", f"rho={'9' * 5000}", "solver=1", "rho=1"),
    *(
        f"x={'[' * 3000}",
        'noise_level={"a": 1}',
        "smoothing=1",
        "sigma=0.1",
        "sigma=-1",
        "derivative=frozen",
        " rho =1",
    ),
    *("n_steps=3", "steps=0", "steps=2", "restarts=1", "target_image=../in/photo.png", "target_image=none", "k=0.1"),
    *(
        "k=-1",
        "per_pixel=1",
        "box=3",
        "rho=\udcff",
        'rho="\\ud800"',
        "__class__=1",
        "self=1",
        "preset=fast",
        "groups=2",
    ),
    *("prior=l1", "prior=nothing", "layer=x", "statistic=votes", "tau=2", "precision=float8", "compile=7", "random=1"),
]
IMPORTS = [
    *("../in/plugin.py", "../in/syntax.py", "../in/raises.py", "../in/leaves.py", "../in/nowhere.py", "../in/bytes.py"),
    *(
        "",
        ".",
        "..",
        ".x",
        "x.",
        "a b",
        "no_such_module",
        "json",
        "os.path",
        "json.nothing",
        "../in/photo.png",
        "ä",
        ".py",
    ),
    *("../in/silent.py", "../in/asks.py", "a" * 300),
]
# what an option may well be, by its name; an option that is not here gets a plain value of its type
FITTING: dict[str, list[str]] = {
    "model": [NET, "small_network:Linear", "small_network:Moody"],
    "weights": ["../in/weights.pt"],
    "labels": ["../in/labels.txt", "../in/labels.json"],
    "device": ["cpu", "auto"],
    "size": ["8", "8,8", "9,8"],
    "mean": ["0.5,0.5,0.5"],
    "std": ["0.25,0.25,0.25"],
    "target": ["0", "2", "dog"],
    "against": ["1", "bird"],
    "top": ["1", "2", "3"],
    "method": ["gradient", "smoothgrad", "moreau", "sparse_moreau", "group_sparse_moreau", "integrated_gradients"],
    "methods": ["gradient", "gradient,smoothgrad", "sparse_moreau:published,gradient", "moreau, gradient"],
    "eta": ["0.01", "0"],
    "sparsity": ["0.1", "1"],
    "groups": ["2", "4", "channels"],
    "statistic": ["mean", "rms", "votes", "geometric"],
    "tau": ["0.2"],
    "preset": ["published"],
    "prior": ["l1"],
    "others": ["rho=0.5", "samples=2", "score=prob"],
    "imports": ["../in/plugin.py", "json", "../in/silent.py"],
    "rho": ["0.5", "0"],
    "score": ["logit", "prob", "logprob"],
    "noise_level": ["0.1", "0"],
    "samples": ["2", "3"],
    "budget": ["4", "9"],
    "quality": ["fast"],
    "relative_error": ["0.5"],
    "seed": ["0", "7"],
    "precision": ["float32"],
    "formats": ["npz", "json", "npz,json", "png"],
    "out": [".", "maps", "new/folder", PHOTOS, "ä"],
    "attack": ["topk", "noise", "pgd", "mass_centre"],
    "attacks": ["noise", "topk"],
    "norms": ["1", "0.5,1"],
    "norm": ["l2", "linf"],
    "epsilon": ["0.1", "1"],
    "steps": ["1", "2"],
    "restarts": ["1", "2"],
    "derivative": ["frozen", "implicit", "covariance", "unrolled"],
    "modes": ["frozen", "transfer"],
    "metrics": ["ssim", "ssim:raw", "cosine,spearman"],
    "attack_budget": ["4"],
    "minutes": ["1"],
    "recipe": ["range", "local", "lipschitz", "smooth"],
    "bounds": ["-5,5"],
    "clip": ["-3,3"],
    "lipschitz": ["exact", "3"],
    "curvature": ["exact", "2", "1,2"],
    "theta": ["0.5", "0.9"],
    "grid": ["2", "4"],
    "alpha": ["0.01"],
    "k": ["3", "10"],
    "units": ["pixels", "entries", "groups"],
    "compared": ["ideal", "computed"],
    "attack_steps": ["0", "1"],
    "sigma": ["0.25"],
    # the other engines start processes that import torch for seconds: the package's tests of jobs run them
    "engine": ["serial"],
    "shard": ["1/1", "1/2", "2/2"],
    "limit": ["1"],
    "limit_seconds": ["10"],
    "part_size": ["1", "2"],
    "workers": ["1"],
    "threads": ["1"],
    "status": ["job"],
    "images": ["1", "2"],
    "count": ["1", "2"],
    "job": ["job"],
    "source": [PHOTOS, "../in"],
    "data": ["../in/data.npz"],
    "network": ["lipschitz"],
    "widths": ["4"],
    "depth": ["1"],
    "epochs": ["1"],
    "batch": ["32"],
    "loss": ["paper", "code"],
    "host": ["127.0.0.1", "localhost", "::1", "0.0.0.0"],
    "port": ["0"],
    "token": ["abc"],
    "allow_host": ["maps.example"],
    "examples": [PHOTOS],
    "more": ["small_network:Linear"],
}


@dataclass(frozen=True)
class Option:
    """An option of a command: its name in Python, how it is typed, and what it takes."""

    name: str
    words: tuple[str, ...]
    kind: str  # flag, int, float, Path or text


def fitting_value(chance: random.Random, option: Option) -> str:
    """A value that an option may well have."""
    plain = {"int": ["1", "2"], "float": ["0.5", "1"], "Path": ["new"]}
    if option.name in WORK and chance.random() < 0.05:
        return chance.choice(MUCH)
    return chance.choice(FITTING.get(option.name) or plain.get(option.kind, ["word"]))


def odd_value(chance: random.Random, option: Option) -> str:
    """A value that hardly fits an option."""
    if option.name == "out":
        return chance.choice(PLACES)
    own = {"others": SETTINGS, "imports": IMPORTS}.get(option.name)
    if own is None:
        own = {"int": NUMBERS, "float": NUMBERS, "Path": PATHS}.get(option.kind, WORDS)
    lists = [own] * 6 + [NUMBERS, WORDS, PATHS]
    value = chance.choice(chance.choice(lists))
    if chance.random() < 0.1:
        value = chance.choice([f"{value},{value}", f" {value}", f"{value}\n", value.upper(), value[::-1]])
    return value

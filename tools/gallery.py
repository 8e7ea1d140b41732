"""Makes docs/gallery.md and its pictures: python tools/gallery.py [--check | NAME ...]

Runs the commands of the table below as they stand on the page, in an empty folder with the built-in photos. With names
only those pictures are made again. `--check` runs nothing: it fails where the page is not what the table says, or where
a picture is missing, too large or left over.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
FOLDER = ROOT / "docs" / "gallery"
WIDTH = 720  # pixels: the width of the page
MOST_BYTES = 60_000
QUALITIES = range(88, 20, -4)  # of JPEG, the first that is small enough

PHOTOS = (
    'python -c "from skimage import data, io; '
    "[io.imsave(name + '.png', getattr(data, name)()) for name in 'astronaut camera chelsea coffee rocket'.split()]; "
    "io.imsave('motorcycle.png', data.stereo_motorcycle()[0])\""
)

PRELUDE = """\
import matplotlib.pyplot as plt
import torch
from torch import nn

import moreaugrad as mg


def tiles(maps, file):
    figure, places = plt.subplots(1, len(maps), figsize=(3 * len(maps), 3.3), layout="constrained")
    for axes, (name, each) in zip(places, maps.items()):
        sizes = each.detach().abs().sum(0)
        axes.imshow(sizes, cmap="inferno", vmax=sizes[sizes > 0].quantile(0.98) if sizes.any() else 1)
        axes.set_title(name)
        axes.set_axis_off()
    figure.savefig(file, dpi=120)


def train(net, inputs, labels):
    steps = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(200):
        steps.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        steps.step()
    return net.eval()
"""


@dataclass(frozen=True)
class Exhibit:
    """A picture of the gallery, and what makes it.

    Args:
        name: of the picture.
        title: heading on the page.
        caption: one sentence.
        command: a command of the shell, or lines of Python where it is longer than one line or begins with no command.
        made: the file that the command writes, in the folder where it runs.
    """

    name: str
    title: str
    caption: str
    command: str
    made: str

    @property
    def is_shell(self) -> bool:
        return self.command.startswith("moreaugrad ")


SECTIONS: dict[str, list[Exhibit]] = {
    "The MoreauGrad family": [
        Exhibit(
            "sparse",
            "A sparse map",
            "The default keeps a twentieth of the entries. The network says *tripod*, and they lie on the camera, the "
            "face behind it and the top of the tripod, hardly on its legs.",
            "moreaugrad explain camera.png --quality fast",
            "maps/camera.sparse_moreau.png",
        ),
        Exhibit(
            "dense",
            "A dense map, and a wrong class",
            "Without a prior no entry is zero. The network takes the astronaut for a *football helmet*, and the map "
            "says why: it looks at the helmet in her arm.",
            "moreaugrad explain astronaut.png --method moreau --quality fast",
            "maps/astronaut.moreau.png",
        ),
        Exhibit(
            "sparsity",
            "Levels of sparsity",
            "One call gives maps of several sparsities, from the strongest entries to many.",
            'path = mg.explain("efficientnet_lite0", "chelsea.png", sparsity=[0.01, 0.05, 0.2], budget="fast")\n'
            'tiles({f"{float(each.kept[0]):.0%} of the entries": each.map[0] for each in path}, "sparsity.png")',
            "sparsity.png",
        ),
        Exhibit(
            "cells",
            "Cells of a grid",
            "A group prior keeps or drops whole cells, by default sixteen to a side.",
            "moreaugrad explain coffee.png --method group_sparse_moreau --quality fast",
            "maps/coffee.group_sparse_moreau.png",
        ),
        Exhibit(
            "superpixels",
            "Superpixels",
            "Groups that follow the edges of the photo keep the rocket, its towers and its lights as regions.",
            "moreaugrad explain rocket.png --method group_sparse_moreau --groups superpixels --quality fast",
            "maps/rocket.group_sparse_moreau.png",
        ),
        Exhibit(
            "channels",
            "Channels",
            "With channels as groups the question is which colour matters; two of three are dropped whole.",
            'found = mg.explain("efficientnet_lite0", "motorcycle.png", "group_sparse_moreau", groups="channels", '
            'sparsity=0.34, budget="fast")\n'
            'tiles(dict(zip(("red", "green", "blue"), found.map[0][:, None])), "channels.png")',
            "channels.png",
        ),
        Exhibit(
            "presets",
            "Presets",
            "The published options and those made for robustness, at the same cost: the second map is smoother and "
            "never negative.",
            "moreaugrad compare chelsea.png --methods sparse_moreau,sparse_moreau:robust --quality fast",
            "maps/chelsea_compare.png",
        ),
        Exhibit(
            "statistics",
            "Statistics of the same gradients",
            "Every solve under noise leaves the mean, the root mean square, the votes and the geometric mean of its "
            "gradients.",
            'found = mg.explain("efficientnet_lite0", "coffee.png", "moreau", rho=0, noise_level=0.2, budget="fast")\n'
            'tiles({name: each[0] for name, each in found.statistics.items()}, "statistics.png")',
            "statistics.png",
        ),
        Exhibit(
            "quality",
            "Budgets",
            "More gradients make a map better known: the stated relative error falls with the root of the budget.",
            'found = [mg.explain("efficientnet_lite0", "rocket.png", budget=budget) for budget in (40, 160, 800)]\n'
            'tiles({f"known to within {float(each.relative_error[0]):.0%}": each.map[0] for each in found}, '
            '"quality.png")',
            "quality.png",
        ),
        Exhibit(
            "error",
            "The standard error of every entry",
            "A result also says how uncertain each entry is; the error is large where the map is large, and elsewhere "
            "too.",
            'found = mg.explain("efficientnet_lite0", "camera.png", "moreau", budget="fast")\n'
            'tiles({"map": found.map[0], "standard error": found.stderr[0]}, "error.png")',
            "error.png",
        ),
    ],
    "Other methods": [
        Exhibit(
            "gradient",
            "Simple gradient",
            "One gradient, in less than a second, and noisy.",
            "moreaugrad explain motorcycle.png --method gradient",
            "maps/motorcycle.gradient.png",
        ),
        Exhibit(
            "smoothgrad",
            "SmoothGrad",
            "The gradient averaged over noise: less scattered, and with a standard error, which is still large here.",
            "moreaugrad explain motorcycle.png --method smoothgrad --samples 160",
            "maps/motorcycle.smoothgrad.png",
        ),
        Exhibit(
            "sparsified_smoothgrad",
            "Sparsified SmoothGrad",
            "How often an entry is among the largest of a noisy gradient: never more than one, so it can be certified.",
            "moreaugrad explain motorcycle.png --method sparsified_smoothgrad --samples 160",
            "maps/motorcycle.sparsified_smoothgrad.png",
        ),
        Exhibit(
            "completeness",
            "Integrated gradients and DeepLIFT",
            "Both add up to the change of the score from a black image: DeepLIFT exactly, integrated gradients nearly.",
            "moreaugrad compare coffee.png --methods integrated_gradients,deeplift",
            "maps/coffee_compare.png",
        ),
        Exhibit(
            "cam",
            "Class activation maps",
            "Four methods that read a layer: coarse, and next to free.",
            "moreaugrad compare motorcycle.png --methods cam,gradcam,gradcam_plus_plus,normgrad",
            "maps/motorcycle_compare.png",
        ),
        Exhibit(
            "masks",
            "Masks",
            "Three methods that search for a mask which keeps or removes the class.",
            "moreaugrad compare chelsea.png --methods relex,meaningful_perturbation,fgvis --quality fast",
            "maps/chelsea_compare.png",
        ),
        Exhibit(
            "compare",
            "All methods at once",
            "Every method that needs no training, each on its own scale, with its gradients and seconds.",
            "moreaugrad compare rocket.png --quality fast",
            "maps/rocket_compare.png",
        ),
    ],
    "Other questions": [
        Exhibit(
            "target",
            "Another class",
            "Asked for *disk brake* instead of the predicted *moped*, the map gathers on the engine: of the front "
            "wheel the network sees next to nothing.",
            'moreaugrad explain motorcycle.png --target "disk brake" --quality fast',
            "maps/motorcycle.sparse_moreau.png",
        ),
        Exhibit(
            "contrast",
            "One class against another",
            "What speaks for *Egyptian cat* rather than for *tabby*: evidence that both share cancels.",
            'moreaugrad explain chelsea.png --target "Egyptian cat" --against tabby --quality fast',
            "maps/chelsea.sparse_moreau.png",
        ),
    ],
    "Attacks and certificates": [
        Exhibit(
            "attack",
            "Before and after an attack",
            "A change of the photo that nobody sees keeps the class and makes another map of the simple gradient; "
            "averages over noise are moved less.",
            "moreaugrad attack camera.png --method gradient",
            "attacks/camera_attack.png",
        ),
        Exhibit(
            "certificate",
            "A certificate",
            "The share of the top pixels that no change up to a length can displace, beside the best attack that was "
            "found; the network knows the classes of CIFAR-10 only, and takes the cat for a frog.",
            "moreaugrad certify chelsea.png --model lipschitz_cifar10 --epsilon 0.005",
            "certificates/chelsea_certificate.png",
        ),
    ],
    "Not only photos": [
        Exhibit(
            "row",
            "A row of a table",
            "The label depends on the first two columns alone, and the sparse map keeps these.",
            'names = ["debt", "income", "age", "height", "shoe size", "birthday"]\n'
            "torch.manual_seed(0)\n"
            "rows = torch.randn(512, 6)\n"
            "net = train(nn.Sequential(nn.Linear(6, 16), nn.Softplus(), nn.Linear(16, 2)), rows, "
            "(rows[:, 0] > rows[:, 1]).long())\n"
            "found = mg.SparseMoreauGrad(net, sparsity=0.34).explain(rows[:1])\n"
            'found.show("row.png", names=names, signed=True)',
            "row.png",
        ),
        Exhibit(
            "wave",
            "A wave",
            "A small network tells noise with a burst from noise without one; the pieces that are kept are the burst.",
            "torch.manual_seed(0)\n"
            "waves = 0.3 * torch.randn(128, 1, 400)\n"
            "waves[::2, :, 240:280] += torch.sin(torch.arange(40) / 2)\n"
            "hear = nn.Sequential(nn.Conv1d(1, 8, 25), nn.Softplus(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), "
            "nn.Linear(8, 2))\n"
            "train(hear, waves, torch.arange(128) % 2)\n"
            "found = mg.GroupSparseMoreauGrad(hear, groups=40, sparsity=0.1).explain(waves[:1])\n"
            'found.show("wave.png")',
            "wave.png",
        ),
        Exhibit(
            "tokens",
            "Words of a sentence",
            "The embeddings are explained, with one group for each word; the names of the words make it text again.",
            'words = "the film was long but the music was wonderful".split()\n'
            "torch.manual_seed(0)\n"
            "sentences = torch.randint(8, (512, 9))  # of a vocabulary in which the last word is praise\n"
            "embedding = torch.randn(8, 6)\n"
            "read = nn.Sequential(\n"
            "    nn.Linear(6, 16), nn.Softplus(), nn.Linear(16, 2), nn.AdaptiveMaxPool2d((1, 2)), nn.Flatten()\n"
            ")\n"
            "train(read, embedding[sentences], (sentences == 7).any(1).long())\n"
            "sentence = torch.tensor([[0, 1, 2, 3, 4, 0, 5, 2, 7]])\n"
            "found = mg.GroupSparseMoreauGrad(read, groups=torch.arange(9)[None], sparsity=0.25).explain("
            "embedding[sentence])\n"
            'found.show("tokens.png", names=words)',
            "tokens.png",
        ),
    ],
}


def render() -> str:
    """The page."""
    lines = [
        "<!-- Made by tools/gallery.py: edit the table there. -->",
        "# Gallery",
        "Every picture with what made it. The photos come with scikit-image, a dependency of the package; nothing is "
        "downloaded. To repeat the commands, write the photos to an empty folder:",
        f"```console\n{PHOTOS}\n```",
        "The network is EfficientNet-Lite0, whose weights are installed with the package. The budgets are small, so "
        "that nearly all commands take seconds on a CPU; where a title says that another seed gives another map, a "
        "larger `--quality` helps. `python tools/gallery.py` makes this page again.",
        "Blocks of Python begin with these lines, of which `tiles` draws maps side by side:",
        f"<details>\n<summary>The lines</summary>\n\n```py\n{PRELUDE}```\n\n</details>",
    ]
    for section, exhibits in SECTIONS.items():
        lines.append(f"## {section}")
        for each in exhibits:
            fence = "console" if each.is_shell else "py"
            lines += [
                f"### {each.title}",
                each.caption,
                f"```{fence}\n{each.command}\n```",
                f"![{each.title}](gallery/{each.name}.jpg)",
            ]
    lines += [
        "## What is missing",
        "`MaskNetwork` must be trained first ([training](training.md)). A whole data set has a page of its own "
        "([bulk](bulk.md)), and `moreaugrad serve` shows all this in a browser ([the page](page.md)).",
    ]
    return "\n\n".join(lines) + "\n"


def make(exhibits: Sequence[Exhibit]) -> None:
    """Runs the commands, each in a folder of its own, and stores the pictures."""
    FOLDER.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # `moreaugrad` and `python` of this one
    quiet = os.environ | {"PATH": path, "MPLBACKEND": "agg"}
    for each in exhibits:
        with TemporaryDirectory() as place:
            subprocess.run(shlex.split(PHOTOS), check=True, cwd=place, env=quiet)
            lines = shlex.split(each.command) if each.is_shell else [sys.executable, "-c", PRELUDE + each.command]
            subprocess.run(lines, check=True, cwd=place, env=quiet)
            (FOLDER / f"{each.name}.jpg").write_bytes(shrink(Path(place) / each.made))


def shrink(file: Path) -> bytes:
    """The picture as a JPEG of the page's width, as good as fits."""
    with Image.open(file) as found:
        picture = found.convert("RGB")
    size = WIDTH, round(picture.height * WIDTH / picture.width)
    picture = picture.resize(size, Image.Resampling.LANCZOS)
    for quality in QUALITIES:
        picture.save(handle := BytesIO(), "JPEG", quality=quality, optimize=True)
        if handle.tell() <= MOST_BYTES:
            return handle.getvalue()
    raise ValueError(f"{file.name} must fit into {MOST_BYTES:,} bytes, got {handle.tell():,}; draw fewer tiles")


def find_faults() -> list[str]:
    """What is wrong with the page and its pictures."""
    names = {each.name for exhibits in SECTIONS.values() for each in exhibits}
    there = {file.stem: file.stat().st_size for file in FOLDER.glob("*.jpg")}
    faults = [] if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == render() else ["docs/gallery.md is stale"]
    faults += [f"{name}.jpg is missing" for name in sorted(names - there.keys())]
    faults += [f"{name}.jpg belongs to no command" for name in sorted(there.keys() - names)]
    return faults + [f"{name}.jpg has {size:,} bytes" for name, size in there.items() if size > MOST_BYTES]


def main(arguments: Sequence[str]) -> int:
    if list(arguments) != ["--check"]:
        every = [each for exhibits in SECTIONS.values() for each in exhibits]
        if unknown := set(arguments) - {each.name for each in every}:
            raise ValueError(f"a name must be one of {[each.name for each in every]}, got {sorted(unknown)}")
        make([each for each in every if not arguments or each.name in arguments])
        PAGE.write_text(render(), encoding="utf-8")
    faults = find_faults()
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

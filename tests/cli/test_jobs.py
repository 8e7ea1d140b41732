"""What tells one image from another: its place, its content, and every option that its map depends on."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import small_network
import torch
from PIL import Image

from moreaugrad.api import Explainer
from moreaugrad.identity import describe_explainer
from moreaugrad.methods import PRESETS
from moreaugrad.models.custom import as_classifier

LINEAR = ["--model", "own_small:Linear"]
SMALL = [*LINEAR, "--budget", "64"]


def records(out: str = "maps") -> list[dict]:
    return [json.loads(line) for line in Path(out, "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "other",
    [
        ["--target", "dog"],
        ["--seed", "1"],
        ["--sparsity", "0.5"],
        ["--budget", "72"],
        ["--weights", "other.pt"],
        ["--model", "own_small:Moody"],
    ],
    ids=" ".join,
)
def test_other_options_give_other_files_under_a_number(folder, run, other):
    network = small_network.Linear()
    torch.save({"weight": network.weight + 0.1}, "other.pt")
    base = {"--model": "own_small:Linear", "--budget": "64"}
    for given in (base, base | dict([other]), base):
        words = [word for pair in given.items() for word in pair]
        assert run("explain", "a.png", *words)[0] == 0
    first, second = records()
    assert first["files"]["png"] == "a.sparse_moreau.png"
    assert second["files"]["png"] == "a.sparse_moreau.2.png"
    assert first["id"] != second["id"]


def test_another_method_gives_files_of_its_own(folder, run):
    run("explain", "a.png", *LINEAR, "--method", "gradient")
    run("explain", "a.png", *LINEAR, "--method", "smoothgrad")
    assert {path.name for path in Path("maps").glob("*.npz")} == {"a.gradient.npz", "a.smoothgrad.npz"}


def test_a_file_is_known_by_its_place_and_its_content(folder, run):
    for place, seed in (("x", 0), ("y", 0), ("z", 1)):
        Path(place).mkdir()
        pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"{place}/a.png")
        run("explain", place, *LINEAR, "--method", "gradient")
    assert [line["files"]["npz"] for line in records()] == [f"a.gradient{end}.npz" for end in ("", ".2", ".3")]
    os.utime("x/a.png", (0, 0))
    shutil.copy("z/a.png", "y/a.png")
    run("explain", "x", "y", *LINEAR, "--method", "gradient")  # the first was touched, the second changed
    assert [line["file"] for line in records()] == ["x/a.png", "y/a.png", "z/a.png", "y/a.png"]
    Path("moved").mkdir()
    for place in ("maps", "x", "own_small.py"):
        Path(place).rename(f"moved/{place}")
    os.chdir("moved")
    assert "1 of 1 are done already" in run("explain", "x", *LINEAR, "--method", "gradient")[1]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_and_its_options_are_the_same_run(preset):
    classifier = as_classifier(small_network.Linear().eval())
    given = [{"preset": preset}, {"preset": None, **PRESETS[preset]}]
    one, other = (describe_explainer(Explainer(classifier, "sparse_moreau", each)) for each in given)
    assert json.dumps(one) == json.dumps(other)


def test_the_mean_is_the_same_run_as_in_versions_without_statistics():
    """So that a folder from such a version is resumed; any other statistic is another run."""
    classifier = as_classifier(small_network.Linear().eval())

    def options(**given):
        return describe_explainer(Explainer(classifier, "sparse_moreau", {"preset": "published", **given}))["options"]

    assert not {"statistic", "tau", "preset"} & set(options())
    assert options(statistic="votes") | {"statistic": "votes", "tau": 0.1} == options(statistic="votes")


def test_a_changed_mask_network_is_another_option(folder):
    """The option names a file: what counts is what the file holds."""
    Path("layer").write_text("one")
    explainer = Explainer(as_classifier(small_network.Linear().eval()), "integrated_gradients", {})
    first = describe_explainer(explainer)
    object.__setattr__(explainer.method, "rule", "layer")
    second = describe_explainer(explainer)
    Path("layer").write_text("two")
    assert len({json.dumps(each) for each in (first, second, describe_explainer(explainer))}) == 3

"""`moreaugrad attack` and `moreaugrad robustness`: files, words, exit codes, and one line for every failure."""

import contextlib
import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moreaugrad.attacks import ATTACKS
from moreaugrad.cli.app import main
from moreaugrad.cli.attack_report import enlargement
from moreaugrad.metrics import METRICS
from moreaugrad.studies.trial import SHOWN

SOURCE = '''
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    """Three classes of small pictures, x = (picture - 0.5) / 0.25."""

    labels, side = ("cat", "dog", "bird"), 12

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * self.side**2, 16), nn.Softplus(), nn.Linear(16, 3))
        for parameter in self.layers.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5

    def forward(self, x):
        return self.layers(x)

    def preprocess(self, picture):
        pixels = np.asarray(picture.resize((self.side, self.side)), dtype=np.float32) / 255
        return torch.tensor((pixels - 0.5) / 0.25).permute(2, 0, 1)


class Tiny(Net):
    side = 8  # too small for the window of a metric
'''
NET = ["--model", "own_attacked:Net"]
CHEAP = [*NET, "--budget", "32", "--attack-budget", "16"]
QUICK = [*CHEAP, "--steps", "2", "--modes", "frozen,implicit:2x8"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the user's network, and pictures in a folder of their own."""
    (tmp_path / "own_attacked.py").write_text(SOURCE)
    (tmp_path / "photos").mkdir()
    (tmp_path / "nothing").mkdir()
    for seed, name in enumerate(("a", "b, c")):
        pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_attacked", None)


def read_json(path="attacks/a_attack.json"):
    return json.loads(Path(path).read_text())


def rows(path="robustness/rows.csv"):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


# attack


def test_attack_writes_a_picture_and_all_that_is_known(folder, run):
    code, out, err = run(
        *("attack", "photos/a.png", *CHEAP, "--steps", "3", "--grad-mode", "implicit:2x8", "--epsilon", "2"),
        *("--sparsity", "0.2", "--set", "k=0.1", "--seed", "5"),
    )
    assert (code, err) == (0, "")
    found = read_json()
    assert (found["success"], found["kept"], found["valid"], found["class_is_to_change"]) == (True, True, True, False)
    change = found["change"]
    assert 0 < change["l2"] <= 2 * (1 + 1e-6)
    assert change["pixels_l2"] == pytest.approx(change["l2"] * 0.25 * 255, rel=1e-4)
    assert change["pixels_linf"] == pytest.approx(change["linf"] * 0.25 * 255, rel=1e-4)
    assert tuple(found["metrics"]) == SHOWN
    for name, figure in found["metrics"].items():
        assert figure["more_robust"] == METRICS[name].direction
        assert figure["attacked"] != figure["two_seeds"]
    assert found["objective"]["after"] < found["objective"]["before"]
    assert found["gradients"]["map"] == 32
    assert found["seeds"] == {"attacked_map": 5, "judge": 6, "second_judge": 7, "attack": 8}
    judge, attacked, attack = (found["options"][name] for name in ("judge", "attacked_method", "attack"))
    assert (judge["seed"], judge["budget"], attacked["seed"], attacked["budget"]) == (6, 32, 5, 16)
    assert (attack["k"], attack["seed"]) == (0.1, 8)
    assert found["before"]["label"] == found["after"]["label"] == found["label"]
    assert found["label"] in out
    assert "prediction kept" in out
    assert f"distance {found['metrics']['normalised_distance']['attacked']:.3f}" in out
    assert "two seeds, no attack" in out
    with Image.open("attacks/a_attack.png") as picture:
        assert picture.size[0] > 3 * picture.size[1]
    assert not list(Path("attacks").glob(".*"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no names that are no text")
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_that_are_no_text_can_be_read_written_and_told(folder, encoding):
    """What a terminal has no sign for is a question mark; the files are where they were asked for."""
    Path("photos/a.png").rename("photos/\udcff\u732b.png")
    printed, typed = io.TextIOWrapper(io.BytesIO(), encoding), [*CHEAP, "--method", "gradient", "--steps", "1"]
    with pytest.raises(SystemExit) as end, contextlib.redirect_stdout(printed):
        main(["attack", "photos/\udcff\u732b.png", *typed, "--out", "\udcfe"])
    printed.seek(0)
    assert end.value.code == 0
    assert "-> ?/?" in printed.read()
    assert read_json("\udcfe/?\u732b_attack.json")["file"] == "photos/?\u732b.png"


def test_the_same_command_gives_the_same_figures(folder, run):
    found = []
    for _ in range(2):
        run("attack", "photos/a.png", *CHEAP, "--method", "smoothgrad", "--steps", "2", "--quiet")
        found.append({name: value for name, value in read_json().items() if name != "seconds"})
    assert found[0] == found[1]


def test_an_attack_on_the_class_says_so_and_compares_maps_of_the_class_before(folder, run):
    code, out, _ = run("attack", "photos/a.png", *NET, "--method", "gradient", "--attack", "pgd", "--epsilon", "6")
    found = read_json()
    assert code == 0
    assert (found["success"], found["kept"], found["valid"], found["class_is_to_change"]) == (True, False, True, True)
    assert found["after"]["class"] != found["before"]["class"] == found["target"]
    assert "as this attack is meant to change it" in out
    assert found["metrics"]["normalised_distance"]["two_seeds"] == 0
    assert "no noise of its own" in out


def test_an_attack_that_finds_nothing_says_so(folder, run):
    code, out, _ = run("attack", "photos/a.png", *NET, "--method", "gradient", "--attack", "pgd", "--epsilon", "1e-4")
    found = read_json()
    assert code == 0
    assert (found["valid"], found["change"]["l2"], found["metrics"]["normalised_distance"]["attacked"]) == (False, 0, 0)
    assert "nothing valid was found" in out
    assert "prediction kept" in out


def test_a_named_class_is_attacked(folder, run):
    run("attack", "photos/a.png", *NET, "--method", "gradient", "--steps", "2", "--target", "bird")
    found = read_json()
    assert (found["target"], found["label"]) == (2, "bird")
    assert found["before"]["probability_of_target"] <= found["before"]["probability"]


def test_a_map_too_small_for_a_metric_has_the_others(folder, run):
    code, out, _ = run("attack", "photos/a.png", "--model", "own_attacked:Tiny", "--method", "gradient", "--steps", "2")
    assert code == 0
    assert read_json()["metrics"]["ssim"]["attacked"] is None
    assert read_json()["metrics"]["cosine"]["attacked"] < 1
    assert "ssim not defined" in out


def test_a_method_without_a_derivative_is_judged_under_noise(folder, run, refuses):
    refuses("use noise", "attack", "photos/a.png", *NET, "--method", "deeplift")
    code, *_ = run("attack", "photos/a.png", *NET, "--method", "deeplift", "--attack", "noise", "--norm", "l2")
    assert code == 0
    assert 2 < read_json()["change"]["l2"] <= 3 * (1 + 1e-6)  # the box takes a little of it
    assert read_json()["gradients"]["attack"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "0"], "epsilon must be a positive"),
        (["--epsilon", "-2"], "epsilon must be a positive"),
        (["--norm", "l1"], "norm must be one of"),
        (["--attack", "topq"], "Did you mean 'topk'"),
        (["--attack", "structured", "--norm", "l2"], "norm must be one of ['linf'], got 'l2'"),
        (["--attack", "region"], "region needs its region"),
        (["--attack", "model_fooling"], "which changes the network"),
        (["--method", "gradiant"], "Did you mean 'gradient'"),
        (["--grad-mode", "implicitt"], "Did you mean 'implicit'"),
        (["--derivative", "frozen", "--method", "gradient"], "derivative must be left out"),
        (["--set", "k=0"], "k must be at least 1 entry"),
        (["--set", "kk=1"], "an option of sparse_moreau, topk must be one of"),
        (["--set", "steps=3", "--steps", "4"], "--set must not repeat an option"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--restarts", "0"], "restarts must be at least 1"),
        (["--attack", "noise", "--steps", "3"], "an option of sparse_moreau, noise must be one of"),
        (["--method", "relex"], "cannot be differentiated"),
        (["--budget", "0"], "budget must be at least 1"),
        (["--attack-budget", "3"], "budget must be at least samples"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--target", "doog"], "Did you mean 'dog'"),
        (["--target", "7"], "target must lie in 0..2"),
        (["--sparsity", "7"], "sparsity must be in"),
        (["--out", "photos/a.png"], "--out must be a folder"),
        (["--device", "nonsense"], "device must be one that works here"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_attacks_are_one_line_and_exit_code_2(folder, refuses, arguments, words):
    refuses(words, "attack", "photos/a.png", *NET, *arguments)


@pytest.mark.parametrize("image", ["nothing", "missing.png", "own_attacked.py"])
def test_what_is_no_image_cannot_be_attacked(folder, refuses, image):
    refuses(image, "attack", image, *NET)


def test_a_change_is_enlarged_as_far_as_it_fits():
    assert enlargement(np.zeros((4, 4, 3))) == 0
    assert enlargement(np.full((4, 4, 3), 0.004)) == 100
    assert enlargement(np.full((4, 4, 3), -0.003)) == 100
    assert enlargement(np.full((4, 4, 3), 0.4)) == 1
    for size in np.geomspace(1e-6, 0.4, 50):
        factor = enlargement(np.full((2, 2, 3), size))
        assert 0.2 <= factor * size <= 0.5 or factor == 1


# robustness


def test_a_study_of_files_can_be_resumed(folder, run, refuses):
    command = ["robustness", "photos", *QUICK, "--norms", "1,4", "--methods", "gradient,sparse_moreau"]
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    found = rows()
    cells = (1 + 2 * (1 + 1) + 2 * (1 + 1)) + (1 + 2 * (2 + 1) + 2 * (1 + 1))
    assert len(found) == 2 * cells
    assert {row["key"] for row in found} == {"a", "b, c"}
    assert {row["mode"] for row in found if row["attack"] == "noise"} == {"none", "strongest"}
    assert {row["mode"] for row in found if (row["attack"], row["method"]) == ("topk", "gradient")} == {
        *("exact", "strongest")
    }
    assert all(row["pixels_l2"] for row in found if row["attack"] != "none")
    assert "sparse_moreau, topk: 1: " in out
    assert "gradient, two seeds: 0.000" in out
    study = read_json("robustness/study.json")
    assert study["configuration"]["study"]["methods"]["sparse_moreau"] == {}
    assert study["configuration"]["study"]["attacks"] == {"topk": {"steps": 2, "restarts": 1}, "noise": {}}
    before = Path("robustness/rows.csv").read_bytes()
    assert run(*command)[0] == 0
    assert Path("robustness/rows.csv").read_bytes() == before
    refuses("must be resumed with the configuration it began with, got study.seed = 1", *command, "--seed", "1")
    with Image.open("robustness/curves.png") as picture:
        assert picture.size[0] > 1000


def test_minutes_give_exit_code_1_until_all_is_done(folder, run):
    command = ["robustness", "photos/a.png", *QUICK, "--norms", "1", "--methods", "gradient", "--attacks", "topk"]
    codes, words = [], []
    for _ in range(3):
        code, out, _ = run(*command, "--minutes", "1e-9")
        codes.append(code)
        words.append("the same command resumes it in robustness" in out)
    assert (codes, words) == ([1, 1, 0], [True, True, False])


def test_arrays_and_the_first_images_of_them(folder, run, refuses):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    labels = np.zeros(5, np.uint8)
    np.savez("small.npz", x_train=pixels[:1], y_train=labels[:1], x_test=pixels, y_test=labels)
    command = ["robustness", "--data", "small.npz", *QUICK, "--methods", "gradient", "--norms", "1", "--images", "3"]
    assert run(*command, "--attacks", "topk")[0] == 0
    assert {row["image"] for row in rows()} == {"0", "1", "2"}
    refuses("got images and data", *command, "photos")


def test_attacks_on_the_class_count_where_they_change_it(folder, run):
    command = ["robustness", "photos", *QUICK, "--methods", "gradient", "--attacks", "pgd", "--norms", "0.001,9"]
    code, out, _ = run(*command)
    assert code == 0
    assert "gradient, pgd: 0.001: none valid; 9: " in out
    for row in rows():
        if row["attack"] == "pgd":
            assert (row["valid"] == "1") == (row["predicted_after"] != row["predicted"]) == (row["epsilon"] == "9.0")


def test_maps_that_are_mostly_noise_are_named(folder, run):
    command = ["robustness", "photos/a.png", *NET, "--methods", "smoothgrad", "--attacks", "noise", "--norms", "0.01"]
    _, out, _ = run(*command, "--budget", "2", "--attack-budget", "2")
    assert "smoothgrad: two seeds differ more than any attack" in out


def test_options_go_to_one_method_or_to_all(folder, run):
    run(
        *("robustness", "photos/a.png", *QUICK, "--methods", "moreau,sparse_moreau", "--attacks", "topk"),
        *("--norms", "1", "--set", "rho=0.5", "--set", "sparse_moreau.eta=0.01", "--set", "k=0.2"),
    )
    study = read_json("robustness/study.json")["configuration"]["study"]
    assert study["methods"] == {"moreau": {"rho": 0.5}, "sparse_moreau": {"rho": 0.5, "eta": 0.01}}
    assert study["attacks"]["topk"] == {"k": 0.2, "steps": 2, "restarts": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--norms", "1,0"], "epsilon must be a positive"),
        (["--norms", "1,x"], "--norms must be numbers with commas, got 'x'"),
        (["--norms", ","], "epsilons must be a list of at least one"),
        (["--norm", "l7"], "norm must be one of"),
        (["--metrics", "simm"], "Did you mean 'ssim'"),
        (["--metrics", "gini"], "metrics must compare two maps"),
        (["--attacks", "topk,noize"], "Did you mean 'noise'"),
        (["--methods", "gradient,smothgrad"], "Did you mean 'smoothgrad'"),
        (["--methods", "gradient,deeplift"], "use noise"),
        (["--modes", "frozen,implizit"], "Did you mean 'implicit'"),
        (["--set", "k=0"], "k must be at least 1 entry"),
        (["--set", "budget=8"], "budget must be the same for all"),
        (["--images", "0"], "--images must be at least 1"),
        (["--minutes", "0"], "--minutes must be a positive"),
        (["--data", "missing.npz"], "got images and data"),
        (["photos/missing.png"], "got nothing there"),
        (["own_attacked.py"], "must be an image file"),
        (["nothing"], "got a folder without images"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_studies_are_one_line_and_exit_code_2(folder, refuses, arguments, words):
    refuses(words, "robustness", "photos", *QUICK, *arguments)
    assert not Path("robustness/rows.csv").exists()


def test_a_study_needs_images(folder, refuses):
    refuses("got none", "robustness", *QUICK)


@pytest.mark.parametrize("command", ["attack", "robustness"])
def test_help_names_every_attack(run, command):
    _, out, _ = run(command, "--help")
    named = {word.strip(",.") for word in out.replace("│", " ").split()}
    own = {name for name, entry in ATTACKS.items() if entry.member is None}  # others may be registered by tests
    assert own - named == {"model_fooling"}  # it changes no image


def test_an_attack_tells_the_norm_it_chose(folder, run):
    typed = ("attack", "photos/a.png", *NET, "--method", "smoothgrad", "--epsilon", "3", "--steps", "2")
    code, out, _ = run(*typed, "--quality", "fast", "--attack-budget", "16")
    assert code == 0
    assert ", l2 up to 3: " in out
    assert "160 per judged map" in out
    assert "None" not in out
    code, out, _ = run(*typed, "--budget", "32", "--attack-budget", "16", "--json")
    assert code == 0
    line = json.loads(out)
    assert (line["norm"], line["epsilon"], line["gradients"]["map"]) == ("l2", 3.0, 32)
    assert line == json.loads(Path("attacks/a_attack.json").read_text())

"""The command line: files, JSON lines, exit codes, and one line on stderr for every failure."""

import json
import os
import re
import shutil
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from PIL import Image

from moreaugrad import METHODS, Explanation, __version__

RUN = "from moreaugrad.cli.app import main; main()"
LINEAR = ["--model", "own_small:Linear"]
SMALL = [*LINEAR, "--budget", "64"]


def width(path: str) -> int:
    with Image.open(path) as picture:
        return picture.size[0]


def test_explain_writes_picture_map_and_line(folder, run):
    code, out, err = run("explain", "a.png", *SMALL, "--sparsity", "0.25", "--target", "dog", "--out", "results")
    assert (code, err) == (0, "")
    assert "dog (class 1)" in out
    assert width("results/a.sparse_moreau.png") > 300
    stored = Explanation.load("results/a.sparse_moreau.npz")
    assert float(stored.kept) == 0.25
    (line,) = Path("results/results.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert found["files"] == {"png": "a.sparse_moreau.png", "npz": "a.sparse_moreau.npz"}
    wanted = {"target": 1, "label": "dog", "entries_kept": 0.25, "gradients": int(stored.gradients), "seed": 0}
    assert {name: found[name] for name in wanted} == wanted
    assert found["pixels_kept"] == pytest.approx(float(stored.pixels_kept))
    assert found["score"] == pytest.approx(float(stored.score))
    assert found["options"]["sparsity"] == 0.25
    assert found["sigma_8bit"] == pytest.approx(found["sigma"] * 0.25 * 255, rel=1e-5)
    assert found["versions"]["moreaugrad"] == __version__
    assert not list(Path("results").glob(".*"))


def test_json_holds_nothing_but_lines_and_one_bad_file_gives_exit_code_1(folder, run):
    code, out, err = run("explain", "a.png", "bad.png", "b[1].png", "missing.png", *SMALL, "--json")
    assert code == 1
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["key"] for line in lines] == ["a", "bad", "b[1]", "missing"]
    assert [("error" in line) for line in lines] == [False, True, False, True]
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "error"]
    assert out == Path("maps/results.jsonl").read_text()
    assert Path("maps/b[1].sparse_moreau.png").is_file()


def test_nothing_done_gives_exit_code_2(folder, refuses):
    refuses("bad.png", "explain", "bad.png", *SMALL, "--quiet")


@pytest.mark.parametrize("out", ["maps", "."])
def test_folders_are_read_but_never_their_results(folder, run, out):
    (folder / "bad.png").unlink()
    for _ in range(2):
        code, lines, _ = run("explain", ".", *SMALL, "--out", out, "--json")
        assert (code, [json.loads(line)["key"] for line in lines.splitlines()]) == (0, ["a", "b[1]"])
    code, lines, _ = run("explain", f"{out}/a.sparse_moreau.png", *SMALL, "--out", out, "--json")
    assert (code, json.loads(lines)["key"]) == (0, "a.sparse_moreau")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "sparse_morau"], "Did you mean 'sparse_moreau'"),
        (["--model", "efficientnet_lite"], "Did you mean 'efficientnet_lite0'"),
        (["--model", "own_small:Nothing"], "AttributeError"),
        ([*LINEAR, "--target", "doog"], "Did you mean 'dog'"),
        ([*LINEAR, "--target", "7"], "target must be below 3"),
        ([*LINEAR, "--rho", "-1"], "rho must be a finite number >= 0"),
        ([*LINEAR, "--eta", "-1"], "eta must be a finite number >= 0"),
        ([*LINEAR, "--eta", "1", "--sparsity", "0.1"], "exclude each other"),
        ([*LINEAR, "--sparsity", "5"], "sparsity must be in"),
        ([*LINEAR, "--groups", "4"], "--groups must be left out with sparse_moreau"),
        ([*LINEAR, "--method", "group_sparse_moreau", "--groups", "[bold]"], "got '[bold]'"),
        ([*LINEAR, "--score", "loss"], "score must be one of"),
        ([*LINEAR, "--budget", "7"], "budget must be at least samples"),
        ([*LINEAR, "--device", "nonsense"], "device must be one that works here"),
        ([*LINEAR, "--labels", "missing.txt"], "labels must be a readable text file"),
        ([*LINEAR, "--weights", "missing.pt"], "weights must be a checkpoint file"),
        ([*LINEAR, "--out", "a.png"], "--out must be a folder"),
        (["--formats", "png,jpg"], "--formats must name some of png,npz,json, got 'png,jpg'"),
        (["--formats", ","], "--formats must name some of"),
        (["--quality", "superb"], "--quality must be one of"),
        (["--quality", "fast", "--budget", "100"], "exclude each other"),
        (["--budget", "many"], "--budget"),
        (["--nonsense"], "--nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_and_exit_code_2(folder, refuses, arguments, words):
    refuses(words, "explain", "a.png", *arguments)


def test_weights_out_of_reach_give_exit_code_2(folder, refuses, monkeypatch):
    from moreaugrad.models import checkpoint

    monkeypatch.setattr(checkpoint, "_connection_error", lambda url: "no connection")
    monkeypatch.setenv("TORCH_HOME", str(folder))
    refuses("efficientnet_lite0", "explain", "a.png", "--model", "torchvision/resnet18")


def test_two_images_of_one_name_get_results_of_their_own(folder, run):
    Image.new("RGB", (9, 9)).save("a.bmp")
    code, *_ = run("explain", "a.png", "a.bmp", *SMALL)
    assert code == 0
    assert len(list(Path("maps").glob("*a_*.npz"))) == 2


def test_an_all_zero_map_is_a_warning(folder, run):
    code, out, err = run("explain", "a.png", *SMALL, "--eta", "1000")
    assert code == 0
    assert "keeps 0 % of the entries" in out
    assert "known" not in out
    assert err.startswith("warning: ")
    assert "sparsity" in err
    assert len(err.splitlines()) == 1


def test_quality_sets_the_budget(folder, run):
    spent = {}
    for quality in ("fast", "balanced"):
        _, out, _ = run("explain", "a.png", *LINEAR, "--quality", quality, "--json")
        spent[quality] = json.loads(out)["gradients"]
    assert spent == {"fast": 160, "balanced": 800}


def test_lists(run):
    code, out, _ = run("methods", "--json")
    assert code == 0
    assert {name: each["flags"] for name, each in json.loads(out).items()} == {
        name: sorted(entry.flags) for name, entry in METHODS.items()
    }
    assert [line.split()[0] for line in run("methods")[1].splitlines()] == list(METHODS)
    assert run("models")[1].startswith("efficientnet_lite0")
    assert run("--version")[1] == f"moreaugrad {__version__}\n"
    assert run("--help")[0] == 0
    code, out, _ = run()
    assert code == 2
    assert "explain" in out


def outside(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_exit_codes_of_the_process(folder):
    good = outside(folder, "explain", "a.png", "bad.png", *SMALL, "--json")
    assert good.returncode == 1
    assert [json.loads(line)["key"] for line in good.stdout.splitlines()] == ["a", "bad"]
    assert len(good.stderr.splitlines()) == 1
    wrong = outside(folder, "explain", "a.png", "--method", "magic")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" not in wrong.stderr


def records(out: str = "maps") -> list[dict]:
    return [json.loads(line) for line in Path(out, "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("given", "endings"),
    [
        (["--no-pictures"], {"npz"}),
        (["--formats", "json"], {"json"}),
        (["--formats", "npz, .PNG,json"], {"png", "npz", "json"}),
        (["--formats", "png", "--no-pictures"], set()),
    ],
)
def test_only_the_files_that_were_asked_for_are_written(folder, run, given, endings):
    assert run("explain", "a.png", *SMALL, *given)[0] == 0
    found = {path.suffix[1:] for path in Path("maps").glob("a.*")}
    assert found == endings
    (line,) = records()
    assert set(line["files"]) == endings
    if "json" in endings:
        assert json.loads(Path("maps/a.sparse_moreau.json").read_text()) == line
    assert "1 of 1 are done already" in run("explain", "a.png", *SMALL, *given)[1]


def test_an_index_that_is_not_ours_is_left_alone(folder, run):
    Path("maps").mkdir()
    Path("maps/index.html").write_text("<h1>my site</h1>")
    code, _, err = run("explain", "a.png", *SMALL)
    assert code == 0
    assert "left alone" in err
    assert Path("maps/index.html").read_text() == "<h1>my site</h1>"


def lines_of(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_frames_get_results_of_their_own(folder, run):
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "lime", "blue")]
    frames[0].save("moving.gif", save_all=True, append_images=frames[1:])
    typed = ("explain", "moving.gif", *LINEAR, "--method", "gradient", "--json")
    code, out, err = run(*typed, "--frames")
    assert (code, err) == (0, "")
    found = lines_of(out)
    assert [line["key"] for line in found] == [f"moving_frame00{index}" for index in range(3)]
    assert [line["frame"] for line in found] == [0, 1, 2]
    assert {line["file"] for line in found} == {"moving.gif"}
    assert len(list(Path("maps").glob("moving_frame*.png"))) == 3
    code, out, err = run(*typed)
    assert (code, len(lines_of(out))) == (0, 1)
    assert "holds 3 frames" in err
    assert len(err.splitlines()) == 1
    assert lines_of(out)[0]["score"] == found[0]["score"]


def test_top_classes_get_results_of_their_own(folder, run):
    code, out, err = run("explain", "a.png", "b[1].png", *LINEAR, "--method", "gradient", "--top", "3", "--json")
    assert (code, err) == (0, "")
    found = lines_of(out)
    assert [line["key"] for line in found] == [f"{name}_top{rank}" for name in ("a", "b[1]") for rank in (1, 2, 3)]
    for some in (found[:3], found[3:]):
        assert {line["target"] for line in some} == {0, 1, 2}
        assert [line["score"] for line in some] == sorted((line["score"] for line in some), reverse=True)
    again = run("explain", "a.png", *LINEAR, "--method", "gradient", "--top", "2")
    assert "2 of 2 are done already" in again[1]


def test_a_contrast_is_told_and_stored(folder, run):
    typed = ("explain", "a.png", *LINEAR, "--method", "gradient", "--target", "bird")
    alone = {name: lines_of(run(*typed[:-1], name, "--json")[1])[0]["score"] for name in ("bird", "dog")}
    code, out, err = run(*typed, "--against", "dog", "--json")
    assert (code, err) == (0, "")
    (line,) = lines_of(out)
    assert line["score"] == pytest.approx(alone["bird"] - alone["dog"], abs=1e-5)
    assert (line["target"], line["against"]) == (2, "dog")
    assert "against=1" in line["options"]["score"]
    assert "bird (class 2) against dog" in run(*typed, "--against", "dog", "--out", "other")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "doog"], "against must be .* Did you mean 'dog'"),
        (["--target", "1", "--against", "dog"], "against must be another class"),
        (["--top", "4"], "top must be at most 3"),
        (["--size", "16"], "preprocess function of its own"),
    ],
)
def test_classes_that_do_not_fit_the_model(folder, run, arguments, words):
    code, out, err = run("explain", "a.png", *LINEAR, *arguments)
    assert (code, out) == (2, "")
    assert re.search(words, err)


def test_an_image_from_standard_input(folder, run, monkeypatch):
    def feed(name):
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(Path(name).read_bytes())))

    typed = (*LINEAR, "--method", "gradient", "--json")
    feed("a.png")
    (line,) = lines_of(run("explain", "-", *typed)[1])
    (named,) = lines_of(run("explain", "a.png", *typed)[1])
    assert (line["key"], line["file"], line["score"]) == ("stdin", "-", named["score"])
    feed("b[1].png")
    (other,) = lines_of(run("explain", "-", *typed)[1])
    assert other["score"] != line["score"]  # another image, though it has the same name
    feed("bad.png")
    code, _, err = run("explain", "-", *typed)
    assert code == 2
    assert "standard input must be an image" in err


def test_a_model_is_told_its_input(folder, run):
    Path("own_small.py").write_text(
        "from torch import nn\ndef plain(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))\n"
    )
    typed = ("explain", "a.png", "--model", "own_small:plain", "--method", "gradient", "--size", "16")
    code, _, err = run(*typed, "--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")
    assert (code, err) == (0, "")
    assert Explanation.load("maps/a.gradient.npz").map.shape == (1, 3, 16, 16)
    code, _, err = run(*typed, "--no-resume")
    assert code == 0
    assert err.startswith("warning: ")
    assert "--mean" in err
    assert run(*typed[:-1], "17")[0] == 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such names")
def test_a_name_that_is_no_text_does_not_stop_the_others(folder, run):
    Path("odd").mkdir()
    for name in (b"odd/a.png", b"odd/caf\xe9.png", b"odd/z.png"):
        shutil.copy("a.png", os.fsdecode(name))
    code, out, _ = run("explain", "odd", *SMALL)
    assert code == 0
    assert "3 done" in out
    assert len(list(Path("maps").glob("*.npz"))) == 3


def test_a_picture_that_cannot_be_drawn_is_the_failure_of_its_image(folder, run, monkeypatch):
    from moreaugrad.plotting import pictures

    draw = pictures.panel

    def refuse(image, map, title, *rest):
        if title.startswith("a,"):
            raise RuntimeError("no such glyph")
        return draw(image, map, title, *rest)

    monkeypatch.setattr(pictures, "panel", refuse)
    code, out, err = run("explain", "a.png", "b[1].png", *SMALL)
    assert code == 1
    assert "no such glyph" in err
    assert "1 done, 1 failed" in out

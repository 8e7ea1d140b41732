"""Several methods on one photo: every tile that can be drawn, and no option lost."""

import json

import pytest
from PIL import Image

from moreaugrad import METHODS
from moreaugrad.methods import DEFAULT_PRESET, PRESETS

LINEAR = ["--model", "own_small:Linear"]


def test_compare_draws_every_method(folder, run):
    code, out, err = run("compare", "a.png", *LINEAR, "--budget", "64", "--groups", "2")
    assert (code, err) == (0, "")
    untrained = [name for name, each in METHODS.items() if "trained" not in each.flags]
    lines = dict(line.split(": ", 1) for line in out.splitlines()[:-1])
    assert list(lines) == untrained
    left = {name for name, line in lines.items() if line.startswith("left out: ")}
    assert left == {"cam", "gradcam", "gradcam_plus_plus", "normgrad"}  # this network has no layer with positions
    with Image.open("maps/a_compare.png") as picture:
        assert picture.size[0] > 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--methods gradient,gradcam", "error: gradcam: "),
        ("--methods gradient,smoothgrad --budget 9", "--budget must be an option of a compared method, got only ['gr"),
        ("--methods gradient,magic", "method must be one of"),
        ("--layer no.such", "no.such"),
        ("--set rule=foo", "integrated_gradients: rule must be one of"),
        ("--target 50", "target must be below"),
        ("--methods gradient --mask-network x.safetensors", "--mask-network must be an option"),
        ("--set nothing", "--set must be NAME=VALUE, got 'nothing'"),
    ],
)
def test_a_comparison_does_not_hide_what_was_asked_wrongly(folder, run, arguments, words):
    code, _, err = run("compare", "a.png", *LINEAR, *arguments.split())
    assert code == 2
    assert words in err


def test_options_that_do_not_fit_a_named_method_are_refused_before_the_first_map(folder, refuses):
    typed = ["--methods", "gradient,sparse_moreau", "--noise-level", "0", "--samples", "2"]
    refuses("error: sparse_moreau: samples must be left out", "compare", "a.png", *LINEAR, *typed)


def test_compare_shows_one_method_with_several_presets(folder, run):
    names = ["gradient", "sparse_moreau", *(f"sparse_moreau:{name}" for name in PRESETS)]
    code, out, err = run("compare", "a.png", *LINEAR, "--budget", "64", "--methods", ",".join(names))
    assert (code, err) == (0, "")
    lines = out.splitlines()[:-1]
    assert [line.split(": ")[0] for line in lines] == names
    for line, preset in zip(lines[1:], [DEFAULT_PRESET, *PRESETS], strict=True):
        assert f"preset {preset}" in line


def test_one_preset_is_for_all_methods_that_have_some_and_are_not_named_with_another(folder, run):
    names = "gradient,moreau,sparse_moreau:published"
    code, out, _ = run("compare", "a.png", *LINEAR, "--budget", "64", "--methods", names, "--preset", "robust")
    gradient, moreau, sparse, _ = out.splitlines()
    assert code == 0
    assert "preset" not in gradient
    assert "preset robust" in moreau
    assert "preset published" in sparse


@pytest.mark.slow
def test_demo(tmp_path, run):
    code, out, _ = run("demo", "--out", tmp_path)
    assert code == 0
    assert len(list(tmp_path.glob("*.png"))) == 5
    assert len(out.splitlines()) == 5
    assert (tmp_path / "chelsea.sparse_moreau.png").is_file()
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert all("cat" in line["label"] or line["label"] == "tabby" for line in lines)
    assert lines[2]["entries_kept"] == pytest.approx(0.05, abs=0.002)

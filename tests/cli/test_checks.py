"""What is wrong is said at once: most of it before torch is imported, and the rest before a model is loaded."""

import json
import subprocess
import sys

import pytest

from moreaugrad import METHODS
from moreaugrad.cli.checks import FLAGS, check_method, choose_method
from moreaugrad.cli.options import DEFAULTS, ModelOptions
from moreaugrad.methods import PRESETS
from moreaugrad.methods.base import option_fields
from moreaugrad.methods.options import option_names

AT_ONCE = {
    "explain missing.png": "nothing there",
    "explain none/*.png": "nothing there",
    "explain https://example.org/a.png": "'https://example.org/a.png'",
    "explain a.png --sparsity 5": "sparsity must be in (0, 1]",
    "explain a.png --eta -1": "eta must be a finite number >= 0",
    "explain a.png --eta 1 --sparsity 0.1": "exclude each other",
    "explain a.png --rho -1": "rho must be a finite number >= 0",
    "explain a.png --statistic magic": "statistic must be one of",
    "explain a.png --statistic vote": "Did you mean 'votes'?",
    "explain a.png --tau 1": "tau must be in (0, 1)",
    "explain a.png --preset robus": "Did you mean 'robust'?",
    "explain a.png --method gradient --statistic rms": "--statistic must be left out with gradient",
    "explain a.png --method smoothgrad --preset robust": "--preset must be left out with smoothgrad",
    "explain a.png --noise-level -0.1": "noise_level must be",
    "explain a.png --samples 0": "samples must be at least 1",
    "explain a.png --budget 0": "budget must be at least 1",
    "explain a.png --score loss": "score must be one of",
    "explain a.png --precision half": "precision must be one of",
    "explain a.png --quality superb": "--quality must be one of",
    "explain a.png --groups cells": "groups must be one of",
    "explain a.png --groups 0": "groups must be at least 1",
    "explain a.png --groups 4": "--groups must be left out with sparse_moreau; it is an option of group_sparse_moreau",
    "explain a.png --method gradient --rho 1": "--rho must be left out with gradient",
    "explain a.png --method magic": "method must be one of",
    "explain a.png --model magic": "model must be one of",
    "explain a.png --weights missing.pt": "weights must be a checkpoint file",
    "explain a.png --labels missing.txt": "labels must be a readable text file",
    "explain a.png --size wide": "--size must be whole numbers",
    "explain a.png --size 0": "size must be at least 1",
    "explain a.png --mean 128,128,128": "divide 8-bit values by 255",
    "explain a.png --top 0": "top must be at least 1",
    "explain a.png --top 2 --target 1": "--top and --target exclude each other",
    "explain a.png --target dog --against dog": "--against must be another class",
    "explain a.png --formats gif": "--formats must name some of",
    "compare missing.png": "nothing there",
    "compare a.png --sparsity 5": "sparsity must be in (0, 1]",
    "compare a.png --statistic magic": "statistic must be one of",
    "compare a.png --methods sparse_moreau:magic": "preset must be one of",
    "compare a.png --methods gradient:robust": "--methods must name a preset only of a method that has some",
    "attack missing.png": "nothing there",
    "attack a.png --attack magic": "attack must be one of",
    "attack a.png --steps 0": "steps must be at least 1",
    "attack a.png --statistic magic": "statistic must be one of",
    "attack a.png --quality superb": "--quality must be one of",
    "attack a.png --quality fast --budget 9": "exclude each other",
    "certify missing.png --epsilon 0.1": "nothing there",
    "certify a.png --epsilon 0.1 --tau 0": "tau must be in (0, 1)",
    "robustness missing.png": "nothing there",
}


def test_wrong_usage_is_refused_without_torch(folder):
    code = """
import io, json, sys
from contextlib import redirect_stderr
from moreaugrad.cli.app import main
found = {}
for line in json.load(sys.stdin):
    with redirect_stderr(io.StringIO()) as said:
        try: main(line.split())
        except SystemExit as stop: code = stop.code
    found[line] = [code, said.getvalue(), "torch" in sys.modules]
print(json.dumps(found))
"""
    typed = json.dumps(list(AT_ONCE))
    done = subprocess.run(
        [sys.executable, "-c", code], input=typed, capture_output=True, text=True, timeout=120, check=True, cwd=folder
    )
    for line, (code, said, heavy) in json.loads(done.stdout).items():
        assert (code, len(said.splitlines()), heavy) == (2, 1, False), (line, said)
        assert AT_ONCE[line] in said, (line, said)
    assert not list(folder.glob("maps"))


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("explain a.png --budget 7", "budget must be at least samples"),
        ("explain a.png --set magic=3", "an option of sparse_moreau must be one of"),
        ("explain a.png --method smoothgrad --statistic log_squar", "statistic must be one of"),
        ("explain a.png --statistic variance", "statistic must be one of"),
        (
            "explain a.png --preset robust --statistic rms --noise-level 0",
            "statistic='rms' is taken of gradients under",
        ),
        ("explain a.png --rho 0 --set solver=paper", "rho=0 takes all gradients at the input"),
        ("attack a.png --method gradient --statistic rms", "statistic must be"),
        ("robustness a.png --methods gradient --statistic rms", "statistic"),
        ("explain a.png --method gradcam --samples 3", "an option of gradcam must be one of"),
        ("attack a.png --set magic=3", "magic"),
        ("attack a.png --method gradient --derivative frozen", "derivative must be left out"),
        ("attack a.png --norm l7", "norm"),
        ("compare a.png --methods gradient --budget 9", "--budget must be an option"),
        ("robustness a.png --attacks pgd --norms many", "--norms must be numbers"),
    ],
)
def test_wrong_usage_is_refused_before_a_model_is_loaded(folder, refuses, monkeypatch, typed, words):
    def load(options, terminal):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(ModelOptions, "load", load)
    refuses(words, *typed.split())


def test_flags_tell_who_takes_an_option():
    """So that refusing by flag refuses nothing that a method takes."""
    for name, entry in METHODS.items():
        taken = {option for option in FLAGS if option in option_names(name)}
        assert taken <= {option for option, flag in FLAGS.items() if flag in entry.flags}, name
        for option in taken:
            assert choose_method(name, {option: 1}) == name


@pytest.mark.parametrize("name", [name for name, each in METHODS.items() if "trained" not in each.flags])
def test_every_method_can_be_checked_without_a_model(name):
    check_method(name, {})


def test_help_tells_the_defaults_of_the_classes():
    from moreaugrad import GroupSparseMoreauGrad, MoreauGrad, SmoothGrad, SparseMoreauGrad

    def default(kind, name):
        return next(each.default for each in option_fields(kind) if each.name == name)

    def identity(x):
        return x

    made_by = {name: MoreauGrad(identity, preset=name) for name in PRESETS}
    shares = [kind(identity).share for kind in (SparseMoreauGrad, GroupSparseMoreauGrad)]
    noises = [kind(identity).noise for kind in (MoreauGrad, SmoothGrad)]
    assert {
        "sparsity": f"{shares[0]}; groups: {shares[1]}",
        "groups": f"{default(GroupSparseMoreauGrad, 'groups')}",
        "rho": "; ".join(f"{name}: {made.rho:g}" for name, made in made_by.items()),
        "statistic": f"{'; '.join(f'{name}: {made.statistic}' for name, made in made_by.items())}; smoothgrad: mean",
        "noise_level": "; ".join(f"{name}: {made.noise.noise_level}" for name, made in made_by.items())
        + f"; smoothgrad: {noises[1].noise_level}",
        "tau": f"{default(MoreauGrad, 'tau')}",
        "samples": f"{noises[0].samples}; smoothgrad: {noises[1].samples}",
        "budget": f"{default(MoreauGrad, 'budget')}",
        "score": default(MoreauGrad, "score"),
        "seed": f"{default(MoreauGrad, 'seed')}",
    } == DEFAULTS

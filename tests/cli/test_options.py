"""Options that commands share: groups of them, --import, --prior, and what they leave behind."""

import json
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import small_network
import typer
from PIL import Image
from typer.testing import CliRunner

from moreaugrad.cli.command import expand_options, option, parse_setting
from moreaugrad.cli.options import MethodOptions
from moreaugrad.methods import DEFAULT_PRESET, PRESETS

HEAVY = ("torch", "torchvision", "timm", "captum", "matplotlib", "skimage", "scipy", "numpy")
SMALL = ["--model", "own_small:Linear", "--budget", "16"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the user's network, a photo and a plugin."""
    (tmp_path / "own_small.py").write_text(Path(small_network.SOURCE).read_text())
    (tmp_path / "plugin.py").write_text("from pathlib import Path\nwith Path('log').open('a') as f: f.write('x')\n")
    Image.new("RGB", (9, 9), "white").save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("own_small", "plugin", str(tmp_path / "plugin.py")):
        sys.modules.pop(name, None)


def test_groups_of_options_become_options():
    @dataclass(frozen=True)
    class Size:
        width: int = option("Columns.", default=3)
        height: int | None = option("Rows.", "--rows")

    def draw(name: Annotated[str, typer.Argument()], *, size: Size, loud: bool = False) -> None:
        """Draw."""
        typer.echo((name, size.width, size.height, loud))

    draw.__annotations__["size"] = Size
    app = typer.Typer()
    app.command()(expand_options(draw))
    assert CliRunner().invoke(app, ["x", "--rows", "5", "--loud"]).output == "('x', 3, 5, True)\n"
    assert CliRunner().invoke(app, ["x", "--width", "wide"]).exit_code == 2


def test_only_typed_options_reach_a_method():
    assert MethodOptions().given() == {}
    typed = MethodOptions(rho=0.5, groups="3", quality="fast", others=["rule=left", "n=4"])
    assert typed.given() == {"rho": 0.5, "groups": 3, "rule": "left", "n": 4, "budget": 160}
    assert typed.specific == {"rule", "n"}


@pytest.mark.parametrize(
    ("text", "found"),
    [("a-b=1", ("a_b", 1)), ("a=[1, 2]", ("a", [1, 2])), ("a=word", ("a", "word")), ("a=null", ("a", None))],
)
def test_settings_are_json_or_words(text, found):
    assert parse_setting(text) == found


@pytest.mark.parametrize("name", ["plugin", "plugin.py"])
def test_a_plugin_is_imported_once_before_names_are_looked_up(folder, run, refuses, name):
    for _ in range(2):
        refuses("method must be one of", "explain", "a.png", "--import", name, "--method", "magic")
    assert Path("log").read_text() == "x"
    assert run("methods", "--import", name)[0] == 0
    assert str(folder) not in sys.path


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing", "ModuleNotFoundError"), ("missing.py", "FileNotFoundError"), ("broken.py", "ValueError: not today")],
)
def test_a_plugin_that_cannot_be_imported_is_one_line(folder, refuses, name, words):
    Path("broken.py").write_text("raise ValueError('not today')")
    message = f"error: --import must name a module or a .py file that can be imported, got {name!r}: {words}"
    for _ in range(2):
        refuses(message, "methods", "--import", name)


@pytest.mark.parametrize("name", ["leaves", "leaves.py"])
def test_code_that_ends_the_program_is_one_line(folder, refuses, name):
    Path("leaves.py").write_text("raise SystemExit(7)")
    words = "ImportError: it ended the program with exit code 7"
    refuses(words, "methods", "--import", name)
    refuses(words, "explain", "a.png", "--model", "leaves:make")
    refuses(words, "bulk", "leaves:make", *SMALL[:2], "--engine", "serial")


@pytest.mark.parametrize("command", ["explain", "attack"])
def test_a_method_without_a_prior_refuses_one(folder, refuses, command):
    refuses("prior", command, "a.png", *SMALL[:2], "--method", "gradient", "--prior", "l1")


def test_a_prior_from_outside_is_used_by_name(folder, run):
    plugin = Path(small_network.SOURCE).parent / "outside" / "elastic_net.py"
    typed = ("--import", plugin, "--prior", "elastic_net", "--eta", "0.01")
    code, out, err = run("explain", "a.png", *SMALL, *typed, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["method"] == "moreau"
    assert json.loads(out)["options"]["prior"] == "elastic_net"


def test_a_prior_by_name_takes_its_own_options(folder, run, refuses):
    code, out, err = run("explain", "a.png", *SMALL, "--prior", "group", "--groups", "4", "--sparsity", "0.5", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["options"] | {"prior": "group", "groups": 4} == json.loads(out)["options"]
    refuses("an option of moreau must be one of", "explain", "a.png", *SMALL, "--prior", "l1", "--groups", "4")


def test_a_command_leaves_the_filters_of_warnings_alone(folder, run):
    before, show = list(warnings.filters), warnings.showwarning
    assert run("explain", "a.png", *SMALL)[0] == 0
    assert warnings.filters == before
    assert warnings.showwarning is show


def test_explaining_loads_no_attack_and_no_study(folder):
    code = (
        "import sys\nfrom moreaugrad.cli.app import main\n"
        f"try: main(['explain', 'a.png', *{SMALL}, '--quiet'])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "print([name for name in sys.modules if name.startswith(('moreaugrad.attacks.', 'moreaugrad.studies'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--help"], ["--version"], ["methods"], ["models"], ["train", "cifar10", "--help"]),
        *([command, "--help"] for command in ("explain", "attack", "robustness", "certify", "train-mask")),
    ],
    ids=" ".join,
)
def test_lists_and_help_import_nothing_heavy(arguments):
    code = (
        "import sys\nfrom moreaugrad.cli.app import main\n"
        f"try: main({arguments})\n"
        f"except SystemExit: sys.stderr.write(str([name for name in {HEAVY} if name in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stderr == "[]"


@pytest.mark.parametrize(
    ("typed", "options", "preset"),
    [
        ("", PRESETS[DEFAULT_PRESET], DEFAULT_PRESET),
        *((f"--preset {name}", options, name) for name, options in PRESETS.items()),
        ("--preset published --statistic votes --tau 0.2", {"statistic": "votes", "tau": 0.2}, "published"),
        ("--preset published --rho 0 --noise-level 0.3", {"rho": 0.0, "noise_level": 0.3}, "published"),
        ("--method smoothgrad --statistic rms", {"statistic": "rms"}, None),
        ("--method smoothgrad --statistic variance", {"statistic": "variance"}, None),
    ],
)
def test_statistics_and_presets_reach_the_method(folder, run, typed, options, preset):
    small = SMALL[:2] if "smoothgrad" in typed else SMALL
    code, out, _ = run("explain", "a.png", *small, *typed.split(), "--json", "--no-pictures")
    line = json.loads(out)
    assert code == 0
    assert line["options"] | options == line["options"]
    assert line.get("preset", "None").split(" ")[0] == str(preset)
    assert line["options"].get("preset") == preset


def test_explain_says_which_preset_it_took(folder, run):
    for name in PRESETS:
        _, out, _ = run("explain", "a.png", *SMALL, "--preset", name)
        assert f"preset {name}" in out
        assert f'"preset":"{name}"' in Path("maps/index.html").read_text()
    _, out, _ = run("explain", "a.png", *SMALL, "--preset", "published", "--statistic", "votes", "--no-pictures")
    assert "preset published with statistic=votes" in out

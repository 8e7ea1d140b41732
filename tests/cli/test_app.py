"""The commands as a whole: their order, their help, completion, and `python -m moreaugrad`."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import warnings
from types import ModuleType

import pytest
from typer.main import get_command

from moreaugrad import METHODS, __version__
from moreaugrad.__main__ import main as start
from moreaugrad.cli import command, compare
from moreaugrad.cli.app import EXAMPLES, app
from moreaugrad.cli.options import model_names
from moreaugrad.methods import QUALITY
from moreaugrad.models import MODELS

COMMANDS = get_command(app).commands


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = os.environ | environment
    typed = [sys.executable, "-m", "moreaugrad", *arguments]
    return subprocess.run(typed, capture_output=True, text=True, timeout=60, check=False, env=known)


def test_the_package_can_be_run():
    found = process("--version")
    assert (found.returncode, found.stdout) == (0, f"moreaugrad {__version__}\n")


def test_what_most_users_want_comes_first():
    order = list(COMMANDS)
    assert order[:3] == ["explain", "compare", "demo"]
    assert {"methods", "models", "train", "train-mask"} <= set(order[-4:])


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_valid_usage(name, monkeypatch):
    """Each parses: its options exist, and take what is given."""
    import shlex

    for line in EXAMPLES[name]:
        program, command, *typed = shlex.split(line.partition(" | ")[0])
        assert (program, command) == ("moreaugrad", name)
        context = COMMANDS[name].make_context(name, list(typed), resilient_parsing=False)
        assert context.params


def test_help_groups_options_and_tells_defaults(run):
    code, out, _ = run("explain", "--help")
    assert code == 0
    for panel in ("Method", "Model", "Noise and accuracy", "Output"):
        assert f" {panel} " in out
    for line in EXAMPLES["explain"]:
        assert line.split()[2] in out
    untold = {"layer", "mask_network", "others", "quality", "top", "against", "imports", "images"}
    for each in COMMANDS["explain"].params:
        told = each.show_default or each.default is not None or each.required
        assert told or each.name in untold, each.name


def complete(typed: str) -> list[str]:
    words = f"moreaugrad {typed}"
    found = process(_MOREAUGRAD_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    return found.stdout.split()


def test_shells_complete_names():
    assert complete("explain --method sm") == [name for name in METHODS if name.startswith("sm")]
    assert complete("explain --model lip") == [name for name in MODELS if name.startswith("lip")]
    assert complete("attack a.png --quality b") == [name for name in QUALITY if name.startswith("b")]
    assert complete("compare --methods gradient,re") == ["gradient,relex"]
    assert "explain" in complete("ex")


def test_hubs_are_completed_up_to_the_name():
    assert {"timm/", "torchvision/", "hf/ORG/"} <= set(model_names())


def test_completing_imports_no_torch():
    code = (
        "import sys\nfrom moreaugrad.cli.options import complete_methods, complete_models\n"
        "assert complete_methods('sp') and complete_models('eff')\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("typed", [["explain", "--help"], ["explain", "a.png", "--formats", "gif"], ["nothing"]])
def test_a_command_leaves_its_process_as_it_was(run, typed):
    """Typer sets a hook for exceptions, rich draws random numbers, and the commands print what is logged."""
    log = logging.getLogger("moreaugrad")

    def state():
        return sys.excepthook, random.getstate(), list(log.handlers), list(warnings.filters), warnings.showwarning

    before = state()
    run(*typed)
    assert state() == before


@pytest.mark.parametrize(("command", "table"), [("methods", METHODS), ("models", MODELS)])
def test_lists_as_json(run, command, table):
    code, out, err = run(command, "--json")
    assert (code, err) == (0, "")
    wanted = {name: {"summary": entry.summary, "flags": sorted(entry.flags)} for name, entry in table.items()}
    assert json.loads(out) == wanted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["command", "options"])
def test_a_signal_ends_any_command_with_one_line(folder, run, monkeypatch, number, moment):
    """While it works, and before it begins: Typer by itself ends without a word."""
    owner, name = {"command": (compare, "make_output"), "options": (command, "fields")}[moment]
    monkeypatch.setattr(owner, name, lambda *given: os.kill(os.getpid(), number))
    before = signal.getsignal(number), logging.getLogger("moreaugrad").handlers
    code, out, err = run("compare", "a.png", "--model", "own_small:Linear", "--methods", "gradient", "--quiet")
    assert (code, out, err) == (130, "", "error: interrupted\n")
    assert (signal.getsignal(number), logging.getLogger("moreaugrad").handlers) == before


def test_an_interruption_while_the_command_line_loads_is_one_line(monkeypatch, capsys):
    class Interrupted(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "moreaugrad.cli.app", Interrupted("moreaugrad.cli.app"))
    with pytest.raises(SystemExit) as stop:
        start()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "error: interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_an_import_ends_the_process_at_once(tmp_path, number):
    """An exception there would leave the library half loaded; some of them then hang."""
    (tmp_path / "interrupted.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\n")
    words = [sys.executable, "-m", "moreaugrad", "models", "--import", "interrupted"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "error: interrupted\n")

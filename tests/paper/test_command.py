"""The command `python -m paper`: figures, errors in one line, exit codes, and time."""

import sys
from types import SimpleNamespace

import pytest
from paper_data import SMALL, make_photos

from paper import __main__ as command


@pytest.fixture
def run(capsys):
    """The command in this process: exit code, stdout, stderr."""

    def go(*words):
        code = command.main([str(word) for word in words])
        found = capsys.readouterr()
        return code, found.out, found.err

    return go


def quick(settings_for, *more):
    data, out = settings_for().data, settings_for().out
    words = f"--data {data} --out {out} --quick --device cpu --datasets cifar10,imagenet --model {SMALL}"
    return [*words.split(), "--model", f"cifar10={SMALL}", *more]


def test_the_command_makes_a_figure_and_says_so(run, settings_for):
    code, out, err = run("--figure", "groups", *quick(settings_for))
    assert (code, err) == (0, "")
    assert "groups: done" in out
    assert {path.name for path in settings_for().out.iterdir()} == {"groups.jpg", "groups.csv", "groups.json"}
    code, out, _ = run("--figure", "groups", *quick(settings_for))
    assert code == 0
    assert "there already" in out


def test_unknown_names_are_reported_with_the_nearest(run, settings_for):
    code, _, err = run("--figure", "rhoo", *quick(settings_for))
    assert code == 2
    assert "Did you mean 'rho'" in err
    code, _, err = run("--figure", "rho", *quick(settings_for), "--datasets", "cifar10,imagenett")
    assert code == 2
    assert "Did you mean 'imagenet'" in err
    assert "Traceback" not in err


def test_missing_data_are_reported_before_any_work(run, settings_for, monkeypatch):
    begun = []
    monkeypatch.setattr(command, "make_figure", lambda *given: begun.append(given) or 0)
    code, _, err = run("--figure", "all", *quick(settings_for), "--datasets", "cifar10,tiny_imagenet")
    assert code == 2
    assert "Tiny-ImageNet must lie in" in err
    assert "Traceback" not in err
    assert not begun
    code, _, err = run("--figure", "compare", *quick(settings_for)[:-4], "--model", "timm/resnet5000")
    assert (code, begun) == (2, [])
    assert "timm/resnet5000" in err
    code, _, err = run("--figure", "all", *quick(settings_for), "--model", "tiny_imagenet=timm/resnet5000")
    assert code == 0  # a data set that is not asked for is not looked at
    assert len(begun) == len(command.FIGURES)


def test_figures_of_photos_need_no_other_data(run, tmp_path):
    make_photos(tmp_path / "photos")
    given = ["--data", tmp_path, "--out", tmp_path / "out", "--quick", "--device", "cpu", "--model", SMALL]
    assert run("--figure", "compare", *given)[0] == 0
    code, _, err = run("--figure", "rho", *given)
    assert code == 2
    assert "CIFAR-10 must lie in" in err


@pytest.fixture
def fake(monkeypatch):
    """Figures that do what they are settings_for; the names of those that were made."""
    made = []

    def put(**figures):
        def make(name, do):
            def go(settings):
                made.append((name, settings.minutes))
                return do(settings) if callable(do) else do

            return SimpleNamespace(make=go)

        for name, do in figures.items():
            monkeypatch.setitem(sys.modules, f"paper.figures.{name}", make(name, do))
        monkeypatch.setattr(command, "FIGURES", {name: command.Figure("made up") for name in figures})
        return made

    return put


def raising(error):
    def do(settings):
        raise error

    return do


def test_an_interrupt_says_how_to_go_on(run, settings_for, fake):
    made = fake(one=True, two=raising(KeyboardInterrupt()), three=True)
    code, _, err = run("--figure", "all", *quick(settings_for))
    assert code == 130
    assert "the same command goes on" in err
    assert [name for name, _ in made] == ["one", "two"]


def test_a_figure_that_fails_does_not_keep_others_from_being_made(run, settings_for, fake):
    made = fake(one=True, two=raising(RuntimeError("no luck")), three=False)
    code, out, err = run("--figure", "all", *quick(settings_for))
    assert code == 2
    assert err == "error: two: RuntimeError: no luck (--debug shows where)\n"
    assert [name for name, _ in made] == ["one", "two", "three"]
    assert "three: not finished yet" in out
    assert "Traceback" in run("--figure", "two", *quick(settings_for), "--debug")[2]


def test_minutes_are_those_of_the_whole_command(run, settings_for, fake, monkeypatch):
    clock = [0.0]

    def work(settings):
        clock[0] += 90
        return True

    made = fake(one=work, two=work, three=work)
    monkeypatch.setattr(command.time, "monotonic", lambda: clock[0])
    code, out, _ = run("--figure", "all", *quick(settings_for), "--minutes", "2.5")
    assert made == [("one", 2.5), ("two", 1.0)]
    assert code == 1
    assert "three: not begun" in out


def test_a_figure_whose_file_is_not_there_is_reported(run, settings_for, monkeypatch):
    monkeypatch.setitem(command.FIGURES, "nowhere", command.Figure("made up"))
    code, _, err = run("--figure", "nowhere", *quick(settings_for))
    assert code == 2
    assert "nowhere" in err
    assert "Traceback" not in err


def test_drawing_again_what_is_made_of_rows_needs_no_data(run, tmp_path):
    nowhere = ("--data", tmp_path / "nowhere", "--out", tmp_path, "--redraw")
    for name, figure in command.FIGURES.items():
        code, _, err = run("--figure", name, *nowhere)
        assert (code == 0) is figure.rows, name
        assert ("must be a folder with the data sets" in err) is not figure.rows
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".png"]  # there is nothing to be drawn

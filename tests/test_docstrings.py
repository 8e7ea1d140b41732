"""Every public name is documented: arguments, what it returns, and an example that runs."""

import dataclasses
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

import moreaugrad as mg
from moreaugrad.registry import Table

NAMES = [name for name in dir(mg) if not name.startswith("_")]
DOCUMENTED = [name for name in NAMES if not isinstance(getattr(mg, name), Table)]
METHODS = {  # public methods of public classes, documented once, at the class that defines them
    f"{kind.__name__}.{name}": member
    for kind in (getattr(mg, each) for each in DOCUMENTED)
    if inspect.isclass(kind) and kind.__module__.startswith("moreaugrad")
    for name, member in vars(kind).items()
    if name
    in ("attribute", "explain", "explain_path", "perturb", "transfer", "save", "load", "show", "at", "violations")
}


def section(text, *titles):
    return any(re.search(rf"^\s*{title}:\s*$", text, re.M) for title in titles)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.name not in ("self", "cls") and not each.name.startswith("_")]


@pytest.fixture
def globs(tmp_path):
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    )
    photo = tmp_path / "photo.jpg"
    ramp = torch.linspace(0, 255, 64).to(torch.uint8)
    Image.fromarray(
        torch.stack([ramp.expand(64, 64), ramp.expand(64, 64).T, ramp.flip(0).expand(64, 64)], -1).numpy()
    ).save(photo)
    return {"mg": mg, "torch": torch, "net": net.eval(), "x": torch.rand(2, 3, 16, 16), "photo": str(photo)}


def test_public_names_are_those_of_the_stub():
    stub = Path(mg.__file__).with_suffix(".pyi").read_text()
    assert sorted(NAMES) == sorted(re.findall(r"import \w+ as (\w+)", stub))
    assert all(getattr(mg, name).__doc__ for name in NAMES)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_public_name_says_what_it_takes_and_gives_and_shows_it(name, globs, tmp_path, monkeypatch):
    public = getattr(mg, name)
    text = inspect.getdoc(public) or ""
    assert inspect.cleandoc(text).splitlines()[0].strip()
    if inspect.isclass(public):
        takes = dataclasses.is_dataclass(public) and dataclasses.fields(public)
        if takes and not getattr(public, "_is_protocol", False):
            assert section(text, "Args", "Attributes"), "its options"
        plain = [each.name for each in dataclasses.fields(public) if not each.name.startswith("_")] if takes else []
    else:
        assert section(text, "Args") or not parameters(public)
        assert section(text, "Returns")
        plain = parameters(public)
    if section(text, "Args"):
        listed = set(re.findall(r"^\s+\**(\w+):", text, re.M))
        if not inspect.isclass(public):
            assert set(plain) <= listed, "every parameter"
    run_examples(text, name, globs, tmp_path, monkeypatch, needed=not getattr(public, "_is_protocol", False))


@pytest.mark.parametrize("name", METHODS)
def test_a_public_method_says_what_it_takes_and_gives(name, globs, tmp_path, monkeypatch):
    function = getattr(METHODS[name], "__func__", METHODS[name])
    function = inspect.unwrap(function)
    text = inspect.getdoc(function) or ""
    if parameters(function):
        assert section(text, "Args")
        assert set(parameters(function)) <= set(re.findall(r"^\s+\**(\w+):", text, re.M))
    assert section(text, "Returns")
    run_examples(text, name, globs, tmp_path, monkeypatch, needed=False)


def run_examples(text, name, globs, tmp_path, monkeypatch, needed):
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestParser().get_doctest(text, globs, name, None, 0)
    assert examples.examples or not needed, "an example"
    report = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(examples, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("table", [name for name in NAMES if isinstance(getattr(mg, name), Table)])
def test_a_table_entry_shows_its_member(table):
    for entry in getattr(mg, table).values():
        try:
            member = entry.load()
        except ImportError:
            continue
        assert entry.__doc__ == member.__doc__
        assert inspect.signature(entry) == inspect.signature(member)


@pytest.mark.parametrize("table", ["METHODS", "ATTACKS", "METRICS", "PRIORS"])
def test_members_of_tables_are_public_names(table):
    for name, entry in getattr(mg, table).items():
        if entry.member is None:  # else it was registered by a test
            public = entry.path.split(":")[1]
            assert getattr(mg, public) is entry.load(), name


def test_old_names_warn_and_work():
    for old, new in importlib.import_module("moreaugrad")._RENAMED.items():
        with pytest.warns(DeprecationWarning, match=f"mg.{old} is now mg.{new}"):
            found = getattr(mg, old)
        assert found is getattr(mg, new) or old == "Slope"
    with pytest.warns(DeprecationWarning, match="mg.Slope"):
        assert mg.Slope("unrolled", 3, samples=8) == mg.Unrolled(3, 8)
    with pytest.raises(AttributeError):
        mg.no_such_name  # noqa: B018

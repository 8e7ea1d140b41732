"""Every fault of a wheel or a source distribution is found, and what is right passes."""

import io
import tarfile
from zipfile import ZipFile

import check_distribution as check
import pytest

KNOWN = {
    "src/moreaugrad/__init__.py": b"1", "src/moreaugrad/py.typed": b"", "src/moreaugrad/models/weights/a.st": b"2",
    "tests/test_a.py": b"3", "docs/start.md": b"4", "pyproject.toml": b"5", "README.md": b"6", "LICENSE": b"7",
    ".gitignore": b"8",
}  # fmt: skip
PAGE = b"Name: moreaugrad\n\npip install moreaugrad, [there](https://example.org) `docs/start.md`"
ABOUT = "moreaugrad-0.1.0.dist-info/"
WHEEL = {name.removeprefix("src/"): content for name, content in KNOWN.items() if name.startswith("src/")}
WHEEL |= {ABOUT + name: b"" for name in ("RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
WHEEL |= {ABOUT + "METADATA": PAGE}
SOURCE = {name: content for name, content in KNOWN.items() if not name.startswith("tests/")} | {"PKG-INFO": PAGE}


def test_what_is_right_passes():
    assert not [*check.check_wheel(WHEEL, KNOWN), *check.check_source(SOURCE, KNOWN)]
    assert not list(check.check_places(WHEEL, ["/home/me"]))


@pytest.mark.parametrize("name", [name for name in WHEEL if not name.endswith("METADATA")])
def test_a_wheel_without_a_file(name):
    (fault,) = check.check_wheel({key: value for key, value in WHEEL.items() if key != name}, KNOWN)
    assert "lacks" in fault
    assert name.removeprefix(ABOUT) in fault


@pytest.mark.parametrize("name", ["tests/test_a.py", "moreaugrad/notes.txt", "moreaugrad/x.pyc", ABOUT + "x", "data/a"])
def test_a_wheel_with_a_file_too_many(name):
    (fault,) = check.check_wheel(WHEEL | {name: b"3"}, KNOWN)
    assert name.removeprefix(ABOUT) in fault


def test_a_wheel_of_another_state():
    (fault,) = check.check_wheel(WHEEL | {"moreaugrad/__init__.py": b"edited"}, KNOWN)
    assert "another moreaugrad/__init__.py" in fault


@pytest.mark.parametrize("link", ["[a](docs/start.md)", '<img src="docs/cat.jpg">', "![](docs/cat.jpg)", "[b](#place)"])
def test_dead_links(link):
    (fault,) = check.check_description(PAGE + link.encode())
    assert "which a registry lacks" in fault
    assert list(check.check_description(b"Name: moreaugrad\n\nanother page"))


@pytest.mark.parametrize("name", ["tests/test_a.py", "notes.txt", "src/moreaugrad/.env"])
def test_a_source_distribution_with_a_file_too_many(name):
    assert any(name in fault for fault in check.check_source(SOURCE | {name: b"3"}, KNOWN))


@pytest.mark.parametrize("name", [name for name in SOURCE if name not in ("docs/start.md", "PKG-INFO")])
def test_a_source_distribution_without_what_a_wheel_is_made_of(name):
    (fault,) = check.check_source({key: value for key, value in SOURCE.items() if key != name}, KNOWN)
    assert f"lacks {name}" in fault


def test_folders_of_the_machine():
    (fault,) = check.check_places(WHEEL | {"moreaugrad/a.py": b"PLACE = '/home/me/work'"}, ["/home/me", "/home/you"])
    assert fault == "moreaugrad/a.py names the folder /home/me"


def test_archives_are_read_whole(tmp_path):
    with ZipFile(tmp_path / "a.whl", "w") as archive:
        for name, content in WHEEL.items():
            archive.writestr(name, content)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name, content in SOURCE.items():
            member = tarfile.TarInfo(f"moreaugrad-0.1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert check.read_wheel(tmp_path / "a.whl") == WHEEL
    assert check.read_source(tmp_path / "a.tar.gz") == SOURCE


def test_git_knows_this_file():
    known = check.read_known(check.ROOT)
    assert {"LICENSE", "src/moreaugrad/py.typed", "pyproject.toml"} <= set(known)
    assert not [name for name in known if name.endswith(".pyc")]

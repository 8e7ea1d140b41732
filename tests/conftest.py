"""What every test needs: one thread per worker, shapes checked at each call, and the photos where they are."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch starts: workers that share the cores must not fight for them
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("moreaugrad", "shape_checks.checked")

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))

settings.register_profile("untimed", deadline=None)  # how long an example takes says nothing of the law it tests
settings.load_profile("untimed")


@pytest.fixture
def run(capsys):
    """Runs a command in this process: exit code, stdout, stderr."""

    from moreaugrad.cli.app import main

    def go(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return go


@pytest.fixture
def refuses(run):
    """Runs a command that must fail: exit code 2, nothing on stdout, and one line with the words on stderr."""

    def go(words, *arguments):
        code, out, err = run(*arguments)
        assert (code, out, len(err.splitlines()), err.startswith("error: ")) == (2, "", 1, True)
        assert words in err

    return go


class Trap:
    """An object that makes a file where somebody unpickles it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.mark,)


@pytest.fixture
def trap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trap]:
    """What no code of the package may unpickle."""
    mark = tmp_path_factory.mktemp("trap") / "sprung"
    yield Trap(mark)
    assert not mark.exists(), "a pickle was run"


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """Finds a folder of MOREAUGRAD_DATA by name; skips the test where it is not there."""

    def folder(name: str) -> Path:
        root = os.environ.get("MOREAUGRAD_DATA")
        if not root:
            pytest.skip("MOREAUGRAD_DATA is not set: it names the folder that holds the data sets")
        if not (found := Path(root) / name).is_dir():
            pytest.skip(f"MOREAUGRAD_DATA holds no folder {name!r}")
        return found

    return folder


@pytest.fixture(scope="session")
def photos(data: Callable[[str], Path]) -> list[Path]:
    """Photographs, always in the same order."""
    found = sorted(
        path for path in data("imagenet_sample").rglob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"}
    )
    if not found:
        pytest.skip("the folder imagenet_sample of MOREAUGRAD_DATA holds no photos")
    return found


@pytest.fixture(autouse=True)
def _no_gpu_no_test(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")

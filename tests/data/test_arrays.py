"""CIFAR-10 from an .npz file, from torchvision's folder and by the adapter; bad files are named."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from training_data import ARRAYS, save_arrays

from moreaugrad.data.arrays import read_cifar10
from moreaugrad.models.labels import CIFAR10

ADAPTER = Path(__file__).parents[2] / "tools" / "cifar10_npz.py"


BAD = {
    "missing array": ({"y_test": None}, r"without \['y_test'\]"),
    "channels first": ({"x_train": np.zeros((9, 3, 32, 32), np.uint8)}, "put the channels last"),
    "floats": ({"x_test": np.zeros((9, 32, 32, 3))}, "x_test .* must be uint8 .* got float64"),
    "no images": ({"x_test": np.zeros((0, 32, 32, 3), np.uint8)}, "N > 0"),
    "too few labels": ({"y_train": np.zeros(7, np.int64)}, r"y_train .* of shape \(128,\)"),
    "float labels": ({"y_train": np.zeros(128)}, "whole numbers"),
    "label too large": ({"y_test": np.full(60, 10)}, r"0\.\.9, got labels from 10 to 10"),
    "label negative": ({"y_test": np.full(60, -1)}, "from -1 to -1"),
    "objects": ({"y_train": np.array([None] * 128)}, "readable .npz"),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD.keys())
def test_bad_arrays(tmp_path, change, words):
    save_arrays(tmp_path / "bad.npz", **change)
    with pytest.raises(ValueError, match=words):
        read_cifar10(tmp_path / "bad.npz")


def test_bad_files(tmp_path):
    (tmp_path / "junk.npz").write_bytes(b"junk")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    np.save(tmp_path / "one.npy", np.zeros(3))
    save_arrays(tmp_path / "whole.npz")
    np.savez_compressed(tmp_path / "flipped.npz", **np.load(tmp_path / "whole.npz"))
    content = bytearray((tmp_path / "flipped.npz").read_bytes())
    content[50:90] = b"\xff" * 40  # where zlib begins
    (tmp_path / "flipped.npz").write_bytes(content)
    for name in ("junk.npz", "cut.npz", "one.npy", "flipped.npz"):
        with pytest.raises(ValueError, match="data must"):
            read_cifar10(tmp_path / name)


def test_torchvisions_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *given: True)
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    for number in range(1, 6):
        some = slice(24 * (number - 1), 24 * number)
        pixels, labels = ARRAYS.x_train[some].transpose(0, 3, 1, 2).reshape(24, -1), ARRAYS.y_train[some].tolist()
        (place / f"data_batch_{number}").write_bytes(pickle.dumps({"data": pixels, "labels": labels}))
    pixels = ARRAYS.x_test.transpose(0, 3, 1, 2).reshape(60, -1)
    (place / "test_batch").write_bytes(pickle.dumps({"data": pixels, "labels": ARRAYS.y_test.tolist()}))
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": list(CIFAR10)}))
    found = read_cifar10(tmp_path)
    np.testing.assert_array_equal(found.x_train, ARRAYS.x_train[:120])
    np.testing.assert_array_equal(found.y_test, ARRAYS.y_test)


def test_adapter(tmp_path):
    for half, pixels, labels in (
        ("train", ARRAYS.x_train, ARRAYS.y_train),
        ("test", ARRAYS.x_test, ARRAYS.y_test),
    ):
        (tmp_path / half).mkdir()
        for number, some in enumerate(np.split(pixels, 2)):
            strip = Image.fromarray(some.reshape(-1, 32, 3))
            strip.save(tmp_path / half / f"{number:03}.webp", lossless=True)
        np.save(tmp_path / f"{half}_labels.npy", labels)

    def convert(*given: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ADAPTER), *map(str, given)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert convert(tmp_path, tmp_path / "made.npz").returncode == 0
    found = read_cifar10(tmp_path / "made.npz")
    assert found.digest() == ARRAYS.digest()
    assert "usage" in convert(tmp_path).stderr
    np.save(tmp_path / "test_labels.npy", ARRAYS.y_test[1:])
    assert "60 images and 59 labels" in convert(tmp_path, tmp_path / "made.npz").stderr

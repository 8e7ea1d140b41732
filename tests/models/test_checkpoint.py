"""Weights from files that lie: what they claim is compared with what they hold, before any memory is taken for it."""

import pickle
import struct
import warnings
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import moreaugrad as mg
from moreaugrad.models.checkpoint import build_network, load_state, read_state
from moreaugrad.models.lipschitz import LipschitzNetwork
from moreaugrad.models.resnet import ResNet18


class Net(nn.Module):
    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.fc = nn.Linear(4, num_classes)


def write(path, **changed):
    torch.save(dict(Net().state_dict()) | changed, path)
    return path


LIES = {
    "sparse": ({"fc.weight": torch.ones(3, 4).to_sparse()}, "dense tensors"),
    "without values": ({"fc.weight": torch.ones(3, 4, device="meta")}, "dense tensors"),
    "a number as name": ({1: torch.ones(3)}, r"dense tensors with names, got 1 others .*\(1\)"),
    "more than the file": ({"fc.bias": torch.ones(1).expand(10**12)}, "more than its"),
    "complex": ({"fc.weight": torch.ones(3, 4) * 1j}, "of another kind"),
    "whole numbers": ({"fc.bias": torch.ones(3, dtype=torch.int64)}, r"of another kind \(fc.bias torch.int64"),
    "NaN": ({"fc.weight": torch.full((3, 4), torch.nan)}, "finite, got NaN or infinity in 1 tensors"),
    "NaN in a buffer": ({"norm.running_mean": torch.full((4,), torch.nan)}, "finite"),
    "too large for float32": ({"fc.bias": torch.full((3,), 1e300, dtype=torch.float64)}, "finite"),
}


@pytest.mark.parametrize(("changed", "words"), LIES.values(), ids=LIES.keys())
def test_tensors_that_are_none_or_do_not_fit_are_refused(tmp_path, changed, words):
    path = write(tmp_path / "net.pt", **{str(name): each for name, each in changed.items() if isinstance(name, str)})
    if 1 in changed:
        torch.save({1: torch.ones(3)}, path)
    with pytest.raises(ValueError, match=words):
        load_state(Net(), read_state(path), path)


def test_infinity_in_a_buffer_is_a_mask(tmp_path):
    path = write(tmp_path / "net.pt", **{"norm.running_var": torch.tensor([1, 2, 3, torch.inf])})
    net = Net()
    load_state(net, read_state(path), path)
    assert net.norm.running_var[3] == torch.inf


def test_as_many_classes_as_there_are_weights_for(tmp_path):
    asked = []

    def make(num_classes=3):
        asked.append(num_classes)
        return Net(num_classes)

    path = write(tmp_path / "net.pt", **{"fc.bias": torch.zeros(100)})
    with pytest.raises(ValueError, match="of another shape"):
        build_network(make, path, None)
    assert max(asked) == 3
    write(path, **{"fc.bias": torch.zeros(100), "fc.weight": torch.zeros(100, 4)})
    assert build_network(make, path, None).fc.out_features == 100


@pytest.mark.parametrize(
    ("name", "notes", "words"),
    [
        ("resnet18_softplus", {"width": "999999999"}, "got width=999999999"),
        ("resnet18_softplus", {"width": "8"}, "must fit the model"),
        ("lipschitz", {"depth": "999999999"}, "got depth=999999999"),
        ("lipschitz", {"widths": "4,9999999"}, "got widths="),
        ("lipschitz", {"widths": "192,192", "depth": "2", "patch": "8"}, "must fit the model"),
    ],
)
def test_notes_of_a_larger_network_than_the_file_holds(tmp_path, name, notes, words, monkeypatch):
    """None is made with memory of its own."""
    drawn = []
    for init in ("kaiming_normal_", "orthogonal_"):
        monkeypatch.setattr(nn.init, init, lambda tensor, *how, **more: drawn.append(tensor.is_meta))
    network = ResNet18(3, width=1) if name == "resnet18_softplus" else LipschitzNetwork(3, (4, 4), 1, 0.1, 8)
    drawn.clear()
    save_file(network.state_dict(), tmp_path / "net.safetensors", notes)
    with pytest.raises(ValueError, match=words):
        mg.load_model(name, weights=tmp_path / "net.safetensors")
    assert all(drawn)


def test_notes_of_a_file_make_its_network(tmp_path):
    network = LipschitzNetwork(3, (4, 4), 1, 0.1, 8)
    notes = {"widths": "4,4", "depth": "1", "tau": "0.1", "patch": "8"}
    save_file(network.state_dict(), tmp_path / "net.safetensors", notes)
    found = mg.load_model("lipschitz", weights=tmp_path / "net.safetensors").network.state_dict()
    assert all(torch.equal(found[key], each) for key, each in network.state_dict().items())


def test_what_torch_says_about_an_archive_of_another_kind_is_not_passed_on(tmp_path):
    write(tmp_path / "net.pt")
    with ZipFile(tmp_path / "net.pt", "a") as archive:  # as TorchScript's have it
        archive.writestr("net/constants.pkl", pickle.dumps(()))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="weights must be"):
            read_state(tmp_path / "net.pt")
    assert told == []


def test_a_header_that_is_no_header(tmp_path):
    for content in (struct.pack("<Q", 2**63), struct.pack("<Q", 4) + b"null", b""):
        (path := tmp_path / "net.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match="readable checkpoint"):
            mg.load_model("lipschitz", weights=path)

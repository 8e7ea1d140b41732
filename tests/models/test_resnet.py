"""ResNet-18: its activations, its files, and the weights that come with the package."""

import pytest
import torch
from safetensors.torch import save_file

from moreaugrad.models import checkpoint, load_model
from moreaugrad.models.checkpoint import WeightsUnavailableError
from moreaugrad.models.resnet import ResNet18
from moreaugrad.training.recipes import to_half


@pytest.mark.parametrize(("activation", "kind"), [("softplus", torch.nn.Softplus), ("relu", torch.nn.ReLU)])
def test_activations(activation, kind):
    network = ResNet18(activation=activation, beta=3.0)
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_173_962
    assert len([module for module in network.modules() if isinstance(module, kind)]) == 17
    assert {name for name, _ in network.named_children()} == {
        *("conv1", "bn1", "act1", "layer1", "layer2", "layer3", "layer4", "pool", "fc")
    }


def test_half_precision_file_round_trip(tmp_path):
    state = ResNet18(width=2).state_dict() | {"bn1.running_var": torch.tensor([1e6, 2.0])}
    stored = to_half(state)
    assert not any("num_batches" in name for name in stored)
    assert stored["conv1.weight"].dtype == torch.float16
    assert stored["bn1.running_var"].tolist() == [1e6, 2.0]  # more than float16 can hold
    save_file(stored, tmp_path / "net.safetensors", {"activation": "relu", "width": "2"})
    model = load_model("resnet18_softplus", weights=tmp_path / "net.safetensors")
    assert isinstance(model.network.act1, torch.nn.ReLU)
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    torch.testing.assert_close(model.network.conv1.weight, state["conv1.weight"].half().float(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("stated", "words"),
    [({"beta": "steep"}, "beta and width in numbers"), ({"activation": "tanh"}, "activation must be one of")],
    ids=["beta", "activation"],
)
def test_notes_that_make_no_network(tmp_path, stated, words):
    save_file({"fc.bias": torch.zeros(10)}, tmp_path / "net.safetensors", stated)
    with pytest.raises(ValueError, match=words):
        load_model("resnet18_softplus", weights=tmp_path / "net.safetensors")


def test_weights_that_come_with_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "files", lambda package: tmp_path)
    with pytest.raises(WeightsUnavailableError, match="moreaugrad train cifar10 --data FOLDER --out FILE"):
        load_model("resnet18_softplus_cifar10")
    assert load_model("resnet18_softplus_cifar10", weights="random").labels[0] == "airplane"
    (tmp_path / "weights").mkdir()
    network = ResNet18(width=2)
    save_file(to_half(network.state_dict()), tmp_path / "weights/resnet18_softplus_cifar10.safetensors", {"width": "2"})
    model = load_model("resnet18_softplus_cifar10")
    torch.testing.assert_close(model.network.fc.weight, network.fc.weight.half().float())
    assert (model.view.mean, model.view.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

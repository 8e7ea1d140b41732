"""ResNet-18: its activations, its files, and the weights that come with the package."""

import pytest
import torch
from safetensors.torch import save_file

from moreaugrad.models import checkpoint, load_model
from moreaugrad.models.checkpoint import WeightsUnavailableError
from moreaugrad.models.lipschitz import LipschitzNetwork
from moreaugrad.models.resnet import ResNet18
from moreaugrad.training.orthogonal import to_half as to_half_orthonormal
from moreaugrad.training.recipes import to_half


def half(network: ResNet18) -> dict[str, torch.Tensor]:
    return to_half(network.state_dict())


@pytest.mark.parametrize(("activation", "kind"), [("softplus", torch.nn.Softplus), ("relu", torch.nn.ReLU)])
def test_each_activation_is_a_module_of_its_own(activation, kind):
    network = ResNet18(activation=activation, beta=3.0).eval()
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_173_962
    shapes = {name: [] for name, module in network.named_modules() if isinstance(module, kind)}
    for name, store in shapes.items():
        network.get_submodule(name).register_forward_hook(lambda *given, store=store: store.append(given[2].shape))
    x = torch.randn(2, 3, 32, 32, requires_grad=True)
    (first,) = torch.autograd.grad(network(x)[:, 0].sum(), x, create_graph=True)
    assert [len(calls) for calls in shapes.values()] == [1] * 17
    assert shapes["layer4.1.act2"] == [(2, 512, 4, 4)]
    if activation == "softplus":  # its maps have derivatives of their own
        (second,) = torch.autograd.grad(first.square().sum(), x)
        assert second.abs().max() > 0


def test_steep_softplus_is_relu():
    steep, relu = ResNet18(beta=1e4).eval(), ResNet18(activation="relu").eval()
    relu.load_state_dict(steep.state_dict())
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(steep(x), relu(x), atol=1e-3, rtol=1e-3)


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


@pytest.mark.parametrize(
    ("name", "make", "store", "notes", "command"),
    [
        ("resnet18_softplus_cifar10", lambda: ResNet18(width=2), half, {"width": "2"}, "cifar10 --data"),
        (
            *("lipschitz_cifar10", lambda: LipschitzNetwork(widths=(6,)), to_half_orthonormal, {"widths": "6"}),
            "cifar10 --network lipschitz --data",
        ),
    ],
    ids=["resnet18", "lipschitz"],
)
def test_weights_that_come_with_the_package(tmp_path, monkeypatch, name, make, store, notes, command):
    monkeypatch.setattr(checkpoint, "files", lambda package: tmp_path)
    with pytest.raises(WeightsUnavailableError, match=f"moreaugrad train {command} FOLDER --out FILE"):
        load_model(name)
    assert load_model(name, weights="random").labels[0] == "airplane"
    (tmp_path / "weights").mkdir()
    network = make()
    save_file(store(network), tmp_path / f"weights/{name}.safetensors", notes)
    torch.testing.assert_close(load_model(name).network.fc.weight, network.fc.weight, rtol=0, atol=1e-3)

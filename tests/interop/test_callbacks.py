"""Callbacks of trainers: the training ends with the same bits, and the maps are where they belong."""

import logging
import pickle
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import moreaugrad as mg
from moreaugrad.interop import callbacks
from moreaugrad.interop.training_maps import TrainingMaps, evaluation_mode

X = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(8) % 3
OPTIONS = {"sparsity": 0.1, "budget": 32}


def network():
    """With layers whose mode, statistics and random numbers a map must not touch."""
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5)),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)),
    )


def equal_states(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def lightning(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(request.param, reason=f"{request.param} is not installed")


def fit(lightning, folder, *, callbacks=(), logger=False, module=None):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()
            self.net[1].eval()  # a layer that is kept frozen in training

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def on_train_epoch_start(self):
            self.net[1].eval()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)

    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trainer's advice
        torch.manual_seed(0)
        made = Module()
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=logger, callbacks=list(callbacks), default_root_dir=folder,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(made, DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True))
        after = torch.rand(3)  # what the next random numbers of the user are
    return made, after


def test_a_lightning_training_ends_with_the_same_bits(lightning, tmp_path):
    plain, numbers = fit(lightning, tmp_path)
    callback = mg.LightningMaps((X[:2], Y[:2]), **OPTIONS)
    made, same = fit(lightning, tmp_path, callbacks=[callback])
    assert equal_states(plain.state_dict(), made.state_dict())
    assert torch.equal(numbers, same)
    assert [module.training for module in made.modules()] == [module.training for module in plain.modules()]
    files = sorted((tmp_path / "maps").iterdir())  # without a logger
    assert [path.name for path in files] == ["epoch_0001.png", "epoch_0002.png"]
    first, last = (np.asarray(Image.open(path)) for path in files)
    assert not np.array_equal(first, last)  # the model has learnt between them


def test_lightning_maps_go_to_tensorboard(lightning, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    loggers = pytest.importorskip(f"{lightning.__name__}.loggers")
    logger = loggers.TensorBoardLogger(tmp_path)
    fit(lightning, tmp_path, callbacks=[mg.LightningMaps(X[:2], every_n_epochs=2, **OPTIONS)], logger=logger)
    steps, picture = logged_images(logger.log_dir)
    assert steps == [4]
    assert picture.size[0] > 300
    assert not (tmp_path / "maps").exists()


def test_only_the_first_process_draws(lightning):
    class Other:
        is_global_zero, current_epoch = False, 0

    callback = mg.LightningMaps(X[:2], **OPTIONS)
    callback.maps.record = lambda *given: pytest.fail("a second process drew")
    callback.on_train_epoch_end(Other(), None)


def test_a_lightning_callback_can_be_sent_to_another_process(lightning):
    again = pickle.loads(pickle.dumps(mg.LightningMaps(X[:2], **OPTIONS)))
    assert isinstance(again, lightning.Callback)
    assert torch.equal(again.maps.batch, X[:2])


def test_an_error_is_logged_once_and_the_training_goes_on(lightning, tmp_path, caplog):
    broken = mg.from_function(lambda model, x, target: 1 / 0)
    plain, _ = fit(lightning, tmp_path)
    with caplog.at_level(logging.WARNING, "moreaugrad"):
        made, _ = fit(lightning, tmp_path, callbacks=[mg.LightningMaps(X[:2], broken)])
    assert equal_states(plain.state_dict(), made.state_dict())
    assert [module.training for module in made.modules()] == [module.training for module in plain.modules()]
    said = [record.message for record in caplog.records if "maps cannot be drawn" in record.message]
    assert len(said) == 1
    assert "ZeroDivisionError" in said[0]


def logged_images(folder):
    """Steps and last picture of what TensorBoard would show."""
    from io import BytesIO

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    found = events.Images("maps")
    return [each.step for each in found], Image.open(BytesIO(found[-1].encoded_image_string))


@pytest.fixture
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")
        return pytest.importorskip("transformers", reason="transformers is not installed")


def train(transformers, folder, callbacks=(), report_to="none"):
    config = transformers.ResNetConfig(
        num_channels=3, embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic", num_labels=3
    )
    data = [{"pixel_values": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = transformers.ResNetForImageClassification(config)
        args = transformers.TrainingArguments(
            str(folder), num_train_epochs=2, per_device_train_batch_size=4, report_to=report_to, seed=0,
            save_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        transformers.Trainer(model, args, train_dataset=data, callbacks=list(callbacks)).train()
        after = torch.rand(3)
    return model, after


def test_a_training_of_hugging_face_ends_with_the_same_bits(transformers, tmp_path, capsys):
    plain, numbers = train(transformers, tmp_path)
    callback = mg.TrainerMaps({"pixel_values": X[:2], "labels": Y[:2]}, **OPTIONS)
    made, same = train(transformers, tmp_path, [callback])
    assert equal_states(plain.state_dict(), made.state_dict())
    assert torch.equal(numbers, same)
    assert [path.name for path in sorted((tmp_path / "maps").iterdir())] == ["epoch_0001.png", "epoch_0002.png"]


def test_maps_of_hugging_face_go_to_tensorboard(transformers, tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    train(transformers, tmp_path, [mg.TrainerMaps(X[:2], "gradient")], report_to="tensorboard")
    steps, _ = logged_images(tmp_path / "logs" / "maps")
    assert steps == [2, 4]
    assert not (tmp_path / "maps").exists()


class FakeImage:
    def __init__(self, pixels):
        self.pixels = pixels


def test_maps_of_hugging_face_go_to_the_run_of_wandb(monkeypatch, tmp_path):
    class Wandb:
        run, Image, sent = object(), FakeImage, []

        @classmethod
        def log(cls, values):
            cls.sent.append(values)

    class Args:
        report_to, output_dir = ["wandb"], tmp_path

    monkeypatch.setitem(callbacks.sys.modules, "wandb", Wandb)
    assert callbacks._send_to_reports(Args, "maps", np.zeros((4, 4, 3), np.uint8), 7)
    (sent,) = Wandb.sent
    assert sent["train/global_step"] == 7
    assert sent["maps"][0].pixels.shape == (4, 4, 3)


def test_modes_are_restored_module_by_module_also_after_an_error():
    net = network()
    net[1].eval()
    before = [module.training for module in net.modules()]
    seen = []

    def fail():
        with evaluation_mode(net):
            seen.extend(module.training for module in net.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen == [False] * len(before)
    assert [module.training for module in net.modules()] == before


def test_the_picture_shows_the_labels_and_leaves_no_gradient(tmp_path):
    net = network()
    maps = TrainingMaps((X[:2], Y[:2]), "gradient", {})
    figure = maps.draw(net)
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.partition(",")[0] for title in titles[1:4:2]] == ["class 0", "class 1"]
    pixels = X[1].permute(1, 2, 0)
    shown = torch.as_tensor(figure.axes[2].images[0].get_array())
    torch.testing.assert_close(shown.float(), (pixels - pixels.min()) / (pixels.max() - pixels.min()))
    assert all(weight.grad is None for weight in net.parameters())
    assert net.training


def test_a_model_spread_over_processes_is_not_run(tmp_path, caplog):
    net = network()
    net[0].weight.ds_id = 3  # as DeepSpeed marks what lies elsewhere
    net.register_forward_pre_hook(lambda *given: pytest.fail("the model was run"))
    with caplog.at_level(logging.WARNING, "moreaugrad"):
        TrainingMaps(X[:2], "gradient", {}).record(net, 1, lambda picture: True, tmp_path)
    assert "spread over several processes" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (torch.rand(3, 8, 8), {}, r"images \(N, C, H, W\), got \(3, 8, 8\)"),
        ("photo.jpg", {}, "got str"),
        (X, {"every_n_epochs": 0}, "every_n_epochs must be at least 1"),
        (X, {"sparsty": 0.1}, "Did you mean 'sparsity'"),
        (X, {"method": "sparse_moro"}, "Did you mean 'sparse_moreau'"),
    ],
)
def test_mistakes_are_found_before_the_training(given, options, words):
    own = {"method": options.pop("method", "sparse_moreau"), "every_n_epochs": options.pop("every_n_epochs", 1)}
    with pytest.raises((ValueError, KeyError), match=words):
        TrainingMaps(given, options=options, **own)


@pytest.mark.parametrize(("name", "library"), [("LightningMaps", "Lightning"), ("TrainerMaps", "transformers")])
def test_a_missing_library_is_named(name, library, monkeypatch):
    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    for module in (*callbacks.LIGHTNING, "transformers"):
        monkeypatch.delitem(callbacks.sys.modules, module, raising=False)
    monkeypatch.setitem(callbacks.sys.modules, "transformers", None)
    callbacks._trainer_class.cache_clear()
    with pytest.raises(ImportError, match=f"{name} needs {library}"):
        getattr(mg, name)(X[:2])


@pytest.mark.parametrize("folder", [1e-8, (0.1, 2), [], torch.zeros(0), ...], ids=str)
def test_a_folder_is_a_path(folder):
    with pytest.raises(TypeError, match="folder must be a path"):
        mg.LightningMaps(torch.rand(2, 3, 8, 8), "gradient", folder=folder)
    for name in ("", "a\0b"):
        with pytest.raises(ValueError, match="folder must be the name"):
            mg.TrainerMaps(torch.rand(2, 3, 8, 8), "gradient", folder=name)

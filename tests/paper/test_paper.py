"""The paper's figures: what a run is told, data in every layout, samples, figures on small networks, exit codes."""

import csv
import json
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paper_path  # noqa: F401
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from small_network import Linear

import moreaugrad as mg
from paper import __main__ as command
from paper import attacked, compact, datasets, layouts, tiles
from paper.datasets import sample
from paper.recipes import RECIPES, method
from paper.settings import DATASETS, Settings, by_dataset
from paper.tiles import Grid, Tile

SMALL = "paper_network:Small"
random = np.random.default_rng(5)


def pictures(count, side):
    return random.integers(0, 255, (count, side, side, 3), dtype=np.uint8)


def jpeg(pixels):
    stored = BytesIO()
    Image.fromarray(pixels).save(stored, "JPEG", quality=95)
    return stored.getvalue()


def make_npz(folder, count=12, classes=10):
    folder.mkdir(parents=True, exist_ok=True)
    x, y = pictures(count, 32), np.arange(count, dtype=np.uint8) % classes
    np.savez(folder / "cifar10.npz", x_train=x[:1], y_train=y[:1], x_test=x, y_test=y)
    return x


def make_strips(folder, strips=3, each=4):
    (folder / "test").mkdir(parents=True)
    x = pictures(strips * each, 32)
    for number, some in enumerate(np.split(x, strips)):
        Image.fromarray(some.reshape(-1, 32, 3)).save(folder / "test" / f"{number:03d}.webp", lossless=True)
    np.save(folder / "test_labels.npy", (np.arange(len(x)) % 10).astype(np.uint8))
    np.save(folder / "test_index.npy", 2 * np.arange(len(x)))
    (folder / "classes.txt").write_text("\n".join("abcdefghij"))
    return x


def boxed(box, side=64):
    """White in the box (its last pixels count), black elsewhere."""
    found = np.zeros((side, side, 3), np.uint8)
    found[box[1] : box[3] + 1, box[0] : box[2] + 1] = 255
    return found


RANDOM = {"tiny_imagenet": Path("random")}
BOXES = [(8, 16, 39, 55), (0, 0, 63, 20), (20, 4, 30, 12)]


def make_tiny(folder, boxes=BOXES):
    (folder / "val" / "images").mkdir(parents=True)
    wnids = [f"n{number:08d}" for number in range(len(boxes))]
    (folder / "wnids.txt").write_text("\n".join(wnids))
    (folder / "words.txt").write_text("".join(f"{wnid}\tthing {wnid}\n" for wnid in wnids))
    lines = []
    for number, box in enumerate(boxes):
        (folder / "val" / "images" / f"val_{number}.JPEG").write_bytes(jpeg(boxed(box)))
        lines.append("\t".join([f"val_{number}.JPEG", wnids[number], *map(str, box)]) + "\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))


def make_archive(folder, boxes=BOXES):
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "val.zip", "w") as archive:
        for number, box in enumerate(boxes):
            archive.writestr(f"n{number:08d}/val_{number}.JPEG", jpeg(boxed(box)))
    rows = [f"n{n:08d}/val_{n}.JPEG,n{n:08d},{n},thing,{','.join(map(str, box))}\n" for n, box in enumerate(boxes)]
    (folder / "labels.csv").write_text("file,wnid,class_index,name,box_x0,box_y0,box_x1,box_y1\n" + "".join(rows))
    classes = [f"{n},n{n:08d},thing n{n:08d},{n}\n" for n in range(len(boxes))]
    (folder / "classes.csv").write_text("class_index,wnid,name,imagenet1k_index\n" + "".join(classes))


def make_photos(folder, count=4):
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        (folder / f"photo_{number}.JPEG").write_bytes(jpeg(pictures(1, 40)[0]))
        rows.append(f"photo_{number}.JPEG,n{number},{number},name {number}\n")
    (folder / "labels.csv").write_text("file,wnid,class_index,name\n" + "".join(rows))


@pytest.fixture
def told(tmp_path):
    """Settings for small CIFAR-10 and photos, on a small network."""
    make_npz(tmp_path / "data")
    make_photos(tmp_path / "data" / "photos")

    def settings(**more):
        models = {"cifar10": SMALL, "imagenet": SMALL}
        given = {"quick": True, "device": "cpu", "models": models, "datasets": ("cifar10", "imagenet")}
        return Settings(tmp_path / "data", tmp_path / "out", **given | more)

    return settings


@pytest.fixture
def run(capsys):
    """The command in this process: exit code, stdout, stderr."""

    def go(*words):
        code = command.main([str(word) for word in words])
        found = capsys.readouterr()
        return code, found.out, found.err

    return go


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


# what a run is told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"datasets": ("cifar1",)}, "Did you mean 'cifar10'"),
        ({"models": {"imagnet": "x"}}, "Did you mean 'imagenet'"),
        ({"weights": {"tiny": "x"}}, "must be one of"),
        ({"datasets": ()}, "at least one"),
        ({"minutes": 0.0}, "--minutes"),
        ({"minutes": float("nan")}, "--minutes"),
    ],
)
def test_settings_refuse_what_they_do_not_know(tmp_path, given, words):
    with pytest.raises(ValueError, match=words):
        Settings(tmp_path, tmp_path, **given)


def test_a_device_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ValueError, match="--device must be"):
        _ = Settings(tmp_path, tmp_path, device="cuda:99").place
    with pytest.raises(ValueError, match="--device must be"):
        _ = Settings(tmp_path, tmp_path, device="toaster").place


def test_options_go_by_data_set_and_to_photos_by_themselves():
    assert by_dataset("--model", ["timm/resnet50", "cifar10=a:b"]) == {"imagenet": "timm/resnet50", "cifar10": "a:b"}
    with pytest.raises(ValueError, match="twice"):
        by_dataset("--model", ["x", "imagenet=y"])
    with pytest.raises(ValueError, match="Did you mean 'imagenet'"):
        by_dataset("--weights", ["imagenets=y"])
    with pytest.raises(ValueError, match="without a value"):
        by_dataset("--weights", ["imagenet="])


# where the data lie

MADE = {
    "cifar10": {"npz": make_npz, "strips": make_strips},
    "tiny_imagenet": {"published": make_tiny, "archive": make_archive},
    "imagenet": {"photos": make_photos},
}
CASES = [(name, form) for name, forms in MADE.items() for form in forms]


@pytest.mark.parametrize(("name", "form"), CASES)
@pytest.mark.parametrize("below", ["", "some folder"])
def test_every_layout_is_found_in_the_folder_and_one_below(tmp_path, name, form, below):
    MADE[name][form](tmp_path / "data" / below)
    folder, layout = layouts.find(name, Settings(tmp_path / "data", tmp_path))
    found = layout.read(folder)
    assert folder == tmp_path / "data" / below
    assert len(found.pictures) == len(found.labels) == len(found.keys) == len(set(found.keys)) > 2
    assert found.classes[int(found.labels[1])]


def test_both_layouts_of_a_data_set_tell_the_same(tmp_path):
    make_tiny(tmp_path / "a")
    make_archive(tmp_path / "b")
    one, other = (
        layouts.find("tiny_imagenet", Settings(tmp_path / each, tmp_path))[1].read(tmp_path / each) for each in "ab"
    )
    assert list(one.keys) == list(other.keys)
    assert list(one.classes) == list(other.classes)
    np.testing.assert_array_equal(one.boxes, other.boxes)
    np.testing.assert_array_equal(one.labels, other.labels)


def test_torchvisions_folder_is_known_by_its_files(tmp_path):
    batches = tmp_path / "data" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    for name in layouts.BATCHES:
        (batches / name).touch()
    for place in (tmp_path / "data", batches):
        folder, layout = layouts.find("cifar10", Settings(place, tmp_path))
        assert folder == place
        with pytest.raises(ValueError, match="cifar-10-batches-py"):  # empty files: torchvision's check fails
            layout.read(folder)


@pytest.mark.parametrize("name", DATASETS)
def test_what_is_missing_is_told_with_all_that_helps(tmp_path, name):
    (tmp_path / "letters").mkdir()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="must lie in") as caught:
        layouts.find(name, Settings(tmp_path, tmp_path))
    text = str(caught.value)
    assert all(layout.words in text for layout in layouts.LAYOUTS[name])
    assert layouts.GET[name] in text
    assert "letters/, notes.txt" in text


def test_half_of_a_data_set_is_told_by_what_it_lacks(tmp_path):
    make_tiny(tmp_path / "tiny")
    (tmp_path / "tiny" / "val" / "val_annotations.txt").unlink()
    with pytest.raises(ValueError, match=r"tiny looks like the published .* lacks val/val_annotations\.txt"):
        layouts.find("tiny_imagenet", Settings(tmp_path, tmp_path))


def test_the_table_of_another_data_set_is_no_half(tmp_path):
    make_photos(tmp_path / "photos")
    with pytest.raises(ValueError, match="must lie in") as caught:
        layouts.find("tiny_imagenet", Settings(tmp_path, tmp_path))
    assert "looks like" not in str(caught.value)


def test_an_archive_of_tiny_imagenet_is_not_taken_for_photos(tmp_path):
    make_archive(tmp_path / "a")
    with pytest.raises(ValueError, match="photos with labels"):
        layouts.find("imagenet", Settings(tmp_path, tmp_path))


def test_damaged_files_are_told(tmp_path):
    make_strips(tmp_path / "cifar")
    np.save(tmp_path / "cifar" / "test_labels.npy", np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="got 3 labels and 12 places"):
        sample("cifar10", Settings(tmp_path, tmp_path, models={"cifar10": SMALL}), 1)


# samples


def test_fewer_images_are_the_first_of_more(told):
    few, many = (sample("cifar10", told(), count) for count in (3, 9))
    assert few.keys == many.keys[:3]
    assert torch.equal(few.x, many.x[:3])
    assert torch.equal(few.labels, many.labels[:3])
    assert sample("cifar10", told(), 9, seed=1).keys != many.keys
    assert len(set(many.keys)) == 9


def test_a_sample_holds_what_the_network_sees(told, tmp_path):
    x = np.load(tmp_path / "data" / "cifar10.npz")["x_test"]
    found = sample("cifar10", told(models={}), 4)
    for key, tensor, pixels, label in zip(found.keys, found.x, found.pixels, found.labels, strict=True):
        place = int(key.removeprefix("test_"))
        np.testing.assert_array_equal(pixels, x[place])
        assert label == place % 10
        back = tensor * found.classifier.std + found.classifier.mean
        np.testing.assert_allclose(255 * back.permute(1, 2, 0).numpy(), pixels, atol=1e-3)


def test_only_the_chosen_images_are_read(tmp_path):
    make_photos(tmp_path / "photos", 6)
    make_strips(tmp_path / "cifar", strips=3)
    make_archive(tmp_path / "tiny")
    given = Settings(tmp_path, tmp_path, models=dict.fromkeys(DATASETS, SMALL))
    keys = {name: sample(name, given, 1).keys[0] for name in DATASETS}
    for path in (tmp_path / "photos").glob("*.JPEG"):
        if path.stem != keys["imagenet"]:
            path.write_bytes(b"no image")
    strip = int(keys["cifar10"].removeprefix("test_")) // 2 // 4
    for number in {0, 1, 2} - {strip}:
        (tmp_path / "cifar" / "test" / f"{number:03d}.webp").write_bytes(b"no image")
    compact._strip.cache_clear()
    datasets._labelled.cache_clear()
    assert all(sample(name, given, 1).keys == [keys[name]] for name in ("cifar10", "imagenet"))
    with pytest.raises(ValueError, match="image"):
        sample("imagenet", given, 6)


@pytest.mark.parametrize("form", ["published", "archive"])
@pytest.mark.parametrize(
    ("model", "weights"), [("efficientnet_lite0_tiny_imagenet", {}), ("torchvision/resnet18", RANDOM)]
)
def test_boxes_lie_where_the_object_is_in_what_the_network_sees(tmp_path, form, model, weights):
    MADE["tiny_imagenet"][form](tmp_path)
    given = Settings(tmp_path, tmp_path, models={"tiny_imagenet": model}, weights=weights)
    found = sample("tiny_imagenet", given, 3)
    for box, pixels in zip(found.boxes, found.pixels, strict=True):
        bright = pixels.mean(2) > 127
        columns, rows = np.flatnonzero(bright.any(0)), np.flatnonzero(bright.any(1))
        seen = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        np.testing.assert_allclose(box.numpy(), seen, atol=1)


def test_boxes_are_doubled_by_a_network_of_twice_the_size(tmp_path):
    make_tiny(tmp_path)
    found = sample("tiny_imagenet", Settings(tmp_path, tmp_path), 3)
    wanted = [[2 * left, 2 * top, 2 * right + 2, 2 * bottom + 2] for left, top, right, bottom in BOXES]
    places = [int(key.removeprefix("val_")) for key in found.keys]
    assert found.boxes.tolist() == [wanted[place] for place in places]
    assert found.x.shape[1:] == (3, 128, 128)


def test_more_images_than_there_are_and_classes_that_are_not_there_are_told(told):
    with pytest.raises(ValueError, match="at least 13 images, got 12"):
        sample("cifar10", told(), 13)
    with pytest.raises(ValueError, match=r"a class for each label.*--model cifar10="):
        sample("cifar10", told(models={"cifar10": "small_network:Linear"}), 12)


def test_weights_of_another_network_are_told_as_the_library_does(told, tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "net.pt")
    given = told(models={}, weights={"cifar10": tmp_path / "net.pt"})
    with pytest.raises(ValueError, match="weights must fit the model"):
        sample("cifar10", given, 1)


def test_the_digest_knows_images_and_weights(told):
    first, same, more = (sample("cifar10", told(), count).digest for count in (2, 2, 3))
    other = sample("cifar10", told(models={"cifar10": "paper_network:Gated"}), 2).digest
    assert first == same
    assert len({first, more, other}) == 3


# pictures


def drawn(grid):
    stored = BytesIO()
    figure = grid.draw()
    figure.savefig(stored, format="png", dpi=figure.dpi)
    return figure, np.asarray(Image.open(stored).convert("RGB")).astype(int)


def test_one_entry_of_a_large_map_is_one_bright_pixel():
    single = torch.zeros(3, 224, 224)
    single[1, 100, 7] = 2.0
    _, pixels = drawn(Grid([[Tile(single, "words")]], ["head"], ["row"], "title", "note"))
    bright = (pixels[..., 0] > 240) & (pixels[..., 2] < 200)  # the upper end of inferno; white is bright in blue too
    assert bright.sum() == 1


def test_no_text_leaves_the_picture_or_meets_other_text():
    side, names = 172, list(RECIPES)
    row = [Tile(torch.rand(3, 8, 8), "99.9 %, Gini 0.99") for _ in names]
    grid = Grid(
        [row, row], [tiles.head(name) for name in names], ["ImageNet: a name"] * 2, "title " * 30, "note " * 90, side
    )
    figure, _ = drawn(grid)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts if text.get_text()]
    width, height = figure.bbox.width, figure.bbox.height
    assert all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= width and b.y1 <= height for b in boxes)
    clashes = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
    assert not clashes


def test_a_map_of_zeros_is_black_and_says_nothing():
    assert not tiles.heat(torch.zeros(3, 4, 4)).any()


def test_pictures_stay_small(tmp_path):
    row = [Tile(torch.randn(3, 224, 224)) for _ in range(7)]
    tiles.write(Grid([row] * 3, [""] * 7, [""] * 3).draw(), tmp_path / "a.jpg")
    assert 50_000 < (tmp_path / "a.jpg").stat().st_size <= 400_000
    assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]


# figures


def test_rho_on_a_linear_network_is_known_in_closed_form(told):
    from paper import rho

    make_npz(told().data, classes=3)
    assert rho.make(told(models={"cifar10": "small_network:Linear"}, datasets=("cifar10",)))
    lines = [line for line in rows_of(told().out / "rho.csv") if not line["way"]]
    assert [float(line["rho"]) for line in lines] == list(rho.RHOS)
    weight = Linear().weight.detach()
    square = {name: float(row.square().sum()) for name, row in zip(Linear.labels, weight, strict=True)}
    for line in lines[1:]:  # delta = -rho w: the score falls by rho |w|^2, and the map is w for every rho
        size = square[line["class"]]
        assert float(line["distance_to_first"]) < 1e-3
        assert float(line["score_drop"]) == pytest.approx(float(line["rho"]) * size, rel=1e-3)
        assert float(line["map_norm"]) == pytest.approx(size**0.5, rel=1e-4)
        assert line["converged"] == "1"


@pytest.mark.parametrize(("figure", "column"), [("eta", "nonzero_share"), ("groups", "active_groups")])
def test_more_weight_leaves_less_of_a_map(told, figure, column):
    from importlib import import_module

    assert import_module(f"paper.{figure}").make(told())
    lines = rows_of(told().out / f"{figure}.csv")
    assert {line["dataset"] for line in lines} == {"imagenet", "cifar10"}
    for image in {line["image"] for line in lines}:
        shares = [float(line[column]) for line in lines if line["image"] == image]
        assert shares[0] == 1
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] < 1


def test_a_figure_that_is_there_is_not_made_again(told, monkeypatch):
    from paper import eta

    counted = []
    solve = eta._solve
    monkeypatch.setattr(eta, "_solve", lambda sample, budget: counted.append(sample.name) or solve(sample, budget))
    eta.make(told())
    assert eta.make(told())
    assert len(counted) == 2  # two images, once
    assert {"command", "date", "device", "versions", "settings"} == set(
        json.loads((told().out / "eta.json").read_text())
    )
    eta.make(told(restart=True))
    assert len(counted) == 4
    monkeypatch.setattr(eta, "QUICK", 80)  # other settings
    eta.make(told())
    assert len(counted) == 6
    (told().out / "eta.csv").unlink()
    eta.make(told())
    assert len(counted) == 8
    (told().out / "eta.json").write_text('{"settings":')  # cut off
    eta.make(told())
    assert len(counted) == 10


def test_a_figure_that_fails_while_it_is_stored_does_not_count_as_there(told, monkeypatch):
    from paper import eta, records

    eta.make(told())
    monkeypatch.setattr(records, "write", lambda *given: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        eta.make(told(restart=True))
    monkeypatch.undo()
    assert not (told().out / "eta.json").exists()


def test_nothing_of_this_machine_is_stored(told, tmp_path):
    from paper import eta

    eta.make(told())
    assert str(tmp_path) not in (told().out / "eta.json").read_text() + (told().out / "eta.csv").read_text()


def test_compare_says_which_method_does_not_serve_a_network(told):
    from paper import compare

    compare.make(told(models={"imagenet": "paper_network:Gated"}, datasets=("imagenet",)))
    lines = {line["method"]: line for line in rows_of(told().out / "compare.csv")}
    assert set(lines) == set(compare.BUDGETS)
    assert "got silu" in lines["deeplift"]["note"]
    assert not lines["deeplift"]["gini"]
    assert all(float(line["gini"]) > 0 for name, line in lines.items() if name != "deeplift")
    assert float(lines["sparse_moreau"]["nonzero_share"]) < 1
    assert all(int(line["gradients"]) <= compare.QUICK for name, line in lines.items() if name != "deeplift")


@pytest.mark.parametrize("name", ["gradient", "smoothgrad", "sparse_moreau"])
def test_attacked_maps_are_judged_with_noise_that_the_attack_has_not_seen(told, name):
    given = told(datasets=("imagenet",))
    pair = attacked.pairs(given, name, 3.0)
    photos, hit = attacked.photos(given), pair.found
    judge = method(name, photos.classifier, attacked.QUICK.judged, seed=1)
    assert torch.equal(pair.before, judge.attribute(photos.x, target=hit.target))
    assert torch.equal(pair.after, judge.attribute(hit.x, target=hit.target))
    assert bool(hit.kept.all())
    assert float(hit.l2.max()) <= 3.0 * (1 + 1e-5)
    seen = method(name, photos.classifier, attacked.QUICK.judged, seed=0).attribute(photos.x, target=hit.target)
    assert torch.equal(seen, pair.before) == (name == "gradient")
    assert (pair.figures["floor_normalised_distance"] == 0).all() == (name == "gradient")
    assert attacked.pairs(given, name, 3.0) is pair


def test_attack_and_intro_tell_the_same(told):
    from paper import attack, intro

    given = told(datasets=("imagenet",))
    assert attack.make(given)
    assert intro.make(given)
    every, some = (rows_of(given.out / f"{name}.csv") for name in ("attack", "intro"))
    assert [line["method"] for line in every] == list(attacked.METHODS)
    assert [line["method"] for line in some] == list(intro.METHODS)
    assert all(line in every for line in some)
    assert all(0 <= float(line["normalised_distance"]) <= 2 for line in every)


def test_recipes_are_those_of_the_paper():
    made = {name: method(name, Linear().eval(), 100, 4) for name in RECIPES}
    assert made["integrated_gradients"].steps == 50
    assert made["smoothgrad"].noise == mg.Smoothing(0.1, samples=100)
    assert (made["sparse_moreau"].rho, made["sparse_moreau"].eta) == (1.0, 0.005)
    assert (made["group_sparse_moreau"].eta, made["group_sparse_moreau"].groups) == (0.05, 16)
    assert {each.seed for each in made.values() if hasattr(each, "seed")} == {4}


# the command


def quick(told, *more):
    data = ["--data", told().data, "--out", told().out, "--quick", "--device", "cpu", "--datasets", "cifar10,imagenet"]
    return [*data, "--model", SMALL, "--model", f"cifar10={SMALL}", *more]


def test_the_command_makes_a_figure_and_says_so(run, told):
    code, out, err = run("--figure", "groups", *quick(told))
    assert (code, err) == (0, "")
    assert "groups: done" in out
    assert {path.name for path in told().out.iterdir()} == {"groups.jpg", "groups.csv", "groups.json"}
    code, out, _ = run("--figure", "groups", *quick(told))
    assert code == 0
    assert "there already" in out


def test_unknown_names_are_told_with_the_nearest(run, told):
    code, _, err = run("--figure", "rhoo", *quick(told))
    assert code == 2
    assert "Did you mean 'rho'" in err
    code, _, err = run("--figure", "rho", *quick(told), "--datasets", "cifar10,imagenett")
    assert code == 2
    assert "Did you mean 'imagenet'" in err
    assert "Traceback" not in err


def test_missing_data_are_told_before_any_work(run, told, monkeypatch):
    begun = []
    monkeypatch.setattr(command, "_made", lambda *given: begun.append(given) or 0)
    code, _, err = run("--figure", "all", *quick(told), "--datasets", "cifar10,tiny_imagenet")
    assert code == 2
    assert "Tiny-ImageNet must lie in" in err
    assert "Traceback" not in err
    assert not begun
    code, _, err = run("--figure", "all", *quick(told), "--model", "tiny_imagenet=timm/resnet5000")
    assert code == 0  # a data set that is not asked for is not looked at
    assert len(begun) == len(command.FIGURES)


def test_a_network_that_cannot_be_had_is_told_before_any_work(run, told, monkeypatch):
    monkeypatch.setattr(command, "_made", lambda *given: pytest.fail("work was begun"))
    code, _, err = run("--figure", "compare", *quick(told)[:-4], "--model", "timm/resnet5000")
    assert code == 2
    assert "timm/resnet5000" in err


def test_figures_of_photos_need_no_other_data(run, tmp_path):
    make_photos(tmp_path / "photos")
    given = ["--data", tmp_path, "--out", tmp_path / "out", "--quick", "--device", "cpu", "--model", SMALL]
    assert run("--figure", "compare", *given)[0] == 0
    code, _, err = run("--figure", "rho", *given)
    assert code == 2
    assert "CIFAR-10 must lie in" in err


@pytest.fixture
def fake(monkeypatch):
    """Figures that do what they are told; the names of those that were made."""
    made = []

    def put(**figures):
        def make(name, do):
            def go(settings):
                made.append((name, settings.minutes))
                return do(settings) if callable(do) else do

            return SimpleNamespace(make=go)

        for name, do in figures.items():
            monkeypatch.setitem(sys.modules, f"paper.{name}", make(name, do))
        monkeypatch.setattr(command, "FIGURES", {name: command.Figure("made up") for name in figures})
        return made

    return put


def raising(error):
    def do(settings):
        raise error

    return do


def test_an_interrupt_says_how_to_go_on(run, told, fake):
    made = fake(one=True, two=raising(KeyboardInterrupt()), three=True)
    code, _, err = run("--figure", "all", *quick(told))
    assert code == 130
    assert "the same command goes on" in err
    assert [name for name, _ in made] == ["one", "two"]


def test_a_figure_that_fails_does_not_keep_others_from_being_made(run, told, fake):
    made = fake(one=True, two=raising(RuntimeError("no luck")), three=False)
    code, out, err = run("--figure", "all", *quick(told))
    assert code == 2
    assert err == "error: two: RuntimeError: no luck (--debug shows where)\n"
    assert [name for name, _ in made] == ["one", "two", "three"]
    assert "three: not finished yet" in out
    assert "Traceback" in run("--figure", "two", *quick(told), "--debug")[2]


def test_what_is_not_finished_has_an_exit_code_of_its_own(run, told, fake):
    fake(one=True, two=False)
    assert run("--figure", "two", *quick(told))[0] == 1
    assert run("--figure", "one", *quick(told))[0] == 0


def test_minutes_are_those_of_the_whole_command(run, told, fake, monkeypatch):
    clock = [0.0]

    def work(settings):
        clock[0] += 90
        return True

    made = fake(one=work, two=work, three=work)
    monkeypatch.setattr(command.time, "monotonic", lambda: clock[0])
    code, out, _ = run("--figure", "all", *quick(told), "--minutes", "2.5")
    assert made == [("one", 2.5), ("two", 1.0)]
    assert code == 1
    assert "three: not begun" in out


def test_a_figure_whose_file_is_not_there_is_told(run, told, monkeypatch):
    monkeypatch.setitem(command.FIGURES, "nowhere", command.Figure("made up"))
    code, _, err = run("--figure", "nowhere", *quick(told))
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


def test_there_is_a_file_for_every_figure():
    from paper_path import ROOT

    assert all((ROOT / "paper" / f"{name}.py").is_file() for name in command.FIGURES)

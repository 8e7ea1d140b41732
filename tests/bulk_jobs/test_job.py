"""Jobs in this process: the same rows however the work is cut, stopped and resumed; and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import moreaugrad as mg
from moreaugrad.bulk_jobs import job as jobs
from moreaugrad.bulk_jobs import worker
from moreaugrad.bulk_jobs.folder import JOB, LOCK, hold_parts
from moreaugrad.bulk_jobs.worker import row_seed
from moreaugrad.locks import is_held

KEYS = ["cats/0.png", "cats/1.png", "cats/2.png", *(f"dogs/{number}.png" for number in range(3, 8)), "dogs/bad.png"]


def test_a_map_is_what_the_method_makes_of_the_image_alone_with_its_seed(serial, photos):
    maps = serial(seed=5)
    assert maps.keys == KEYS
    assert list(maps.errors) == ["dogs/bad.png"]
    model = mg.load_model("small_network:Curved")
    method = mg.SparseMoreauGrad(model, sparsity=0.2, budget=16, preset="published")
    for key in KEYS[:-1]:
        alone = replace(method, seed=row_seed(5, key)).explain(model.preprocess(Image.open(photos / key))[None])
        row = maps[key]
        assert np.array_equal(row.map, alone.map[0].numpy())
        assert (row.target, row.label) == (int(alone.target), alone.labels[0])
        assert [row.score, row.eta, row.gradients] == [float(alone.score), float(alone.eta), int(alone.gradients)]
        assert row.kept == float(alone.kept)
        assert (row.seed, row.converged) == (row_seed(5, key), bool(alone.converged))


def test_a_row_is_drawn_on_its_photo_as_the_model_cut_it(serial, photos):
    row, path = serial(model="lipschitz_cifar10")["dogs/7.png"], photos / "dogs" / "7.png"
    found, alone = row.explanation(path), mg.explain(mg.load_model("lipschitz_cifar10"), path, "gradient")
    np.testing.assert_allclose(found.source.picture(0, 0), alone.source.picture(0, 0), atol=1e-6)
    assert found.source.photos[0].region == alone.source.photos[0].region
    assert found.labels == alone.labels


def test_a_photo_that_cannot_be_cut_as_the_model_did_is_refused(serial, photos):
    row = serial()["dogs/7.png"]  # of a network with a function of its own
    with pytest.raises(ValueError, match="image must be the picture as the model saw it, 8 x 8 pixels, got 10 x 12"):
        row.explanation(photos / "dogs" / "7.png")


def test_seeds_differ_by_key_and_by_job():
    assert len({row_seed(seed, key) for seed in range(50) for key in map(str, range(50))}) == 2500
    assert all(0 <= row_seed(0, str(key)) < 2**62 for key in range(1000))


def test_rows_do_not_depend_on_parts_batches_or_the_other_images(serial, photos, monkeypatch):
    wanted = serial("one", part_size=1).digest()
    assert serial("four", part_size=4).digest() == wanted
    monkeypatch.setattr(worker, "BATCH", {"cpu": 3})
    assert serial("whole", part_size=100).digest() == wanted
    assert serial("other", seed=1).digest() != wanted
    fewer = serial("fewer", source=photos / "cats")
    whole = mg.open_maps(serial("again").folder)
    monkeypatch.undo()
    assert fewer.keys == ["0.png", "1.png", "2.png"]
    assert not np.array_equal(fewer["0.png"].map, whole["cats/0.png"].map)  # another key, other noise


def test_a_folder_with_missing_cut_and_foreign_parts_is_filled_again(serial):
    maps = serial(part_size=2)
    wanted, paths = maps.digest(), maps.parts
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-20])
    paths[2].write_bytes(b"")
    kept = paths[3].stat().st_mtime_ns
    (maps.folder / ".0123456789abcdef0123456789abcdef.tmp").write_bytes(b"half")
    assert serial(part_size=2).digest() == wanted
    assert paths[3].stat().st_mtime_ns == kept
    assert not list(maps.folder.glob(".*.tmp"))
    assert len(mg.open_maps(maps.folder).job["runs"]) == 2


def test_a_finished_job_is_left_alone_and_keeps_its_size_of_parts(serial):
    before = {path.name: path.stat().st_mtime_ns for path in serial(part_size=2).parts}
    again = serial()
    assert {path.name: path.stat().st_mtime_ns for path in again.parts} == before
    assert again.finished


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"seed": 1}, "seed = 1"),
        ({"budget": 24}, "options.budget = 24"),
        ({"half": True}, "half = true"),
        ({"target": "dog"}, 'target = "dog"'),
        ({"method": "moreau", "sparsity": None}, "method"),
        ({"model": "small_network:Moody"}, "model"),
        ({"part_size": 3}, "part_size = 3"),
        ({"threads": 2}, "threads = 2"),
    ],
)
def test_another_job_in_the_folder_is_refused_with_what_differs(serial, given, name):
    serial(part_size=2)
    with pytest.raises(ValueError, match="must hold the same job") as refused:
        serial(**given)
    assert name in str(refused.value)


def test_other_images_are_another_job(serial, photos):
    serial()
    (photos / "cats" / "0.png").rename(photos / "cats" / "00.png")
    with pytest.raises(ValueError, match=r"source\.digest"):
        serial()


def test_images_that_moved_are_the_same_job(serial, photos):
    serial(part_size=2, limit=2)
    moved = photos.rename(photos.with_name("elsewhere"))
    maps = serial(source=moved)
    assert maps.finished
    assert maps.job["configuration"]["source"]["path"] == str(moved)


def test_shards_fill_one_folder_together(serial):
    wanted = serial("alone", part_size=2).digest()
    lengths = [len(serial("together", part_size=2, shard=(number, 3))) for number in (2, 1, 3)]
    assert lengths == sorted(lengths)
    assert mg.open_maps(serial("together").folder).digest() == wanted
    with pytest.raises(ValueError, match="shard must leave a part"):
        serial("together", shard=(1, 9))


def test_a_limit_ends_a_run_and_another_goes_on(serial):
    first = serial(part_size=2, limit=3)
    assert (len(first), first.finished) == (4, False)
    assert repr(first).endswith("4 of 9 images by sparse_moreau)")
    assert serial().finished


def test_errors_are_tried_again_when_asked(serial, photos):
    assert len(serial(part_size=2).errors) == 1
    (photos / "dogs" / "bad.png").write_bytes(b"JUNK")  # of the same size: the same job
    assert len(serial().errors) == 1
    Image.new("RGB", (2, 2)).save(photos / "fixed.png")
    content = (photos / "fixed.png").read_bytes()
    (photos / "fixed.png").unlink()
    (photos / "dogs" / "bad.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"source\.digest"):
        serial(retry_errors=True)


def test_two_runs_on_one_folder_are_refused_but_not_on_different_shards(serial):
    folder = serial(part_size=2).folder
    with hold_parts(folder, range(2, 3)):
        assert is_held(folder / LOCK)
        with pytest.raises(BlockingIOError, match="one run at a time"):
            serial()
    assert not is_held(folder / LOCK)
    serial()


@pytest.mark.parametrize("broken", ["{}", "[]", "junk", '{"format": "other", "version": 1}'])
def test_a_folder_with_something_else_is_refused(tmp_path, serial, broken):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / JOB).write_text(broken)
    for use in (serial, lambda: mg.open_maps(tmp_path / "job")):
        with pytest.raises(ValueError, match="must describe a job"):
            use()


def test_a_folder_of_a_newer_version_is_refused(serial):
    path = serial().folder / JOB
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    for use in (serial, lambda: mg.open_maps(path.parent)):
        with pytest.raises(ValueError, match="newer moreaugrad"):
            use()
    with pytest.raises(ValueError, match="must hold a job"):
        mg.open_maps(path.parent / "nowhere")


def test_parts_without_a_job_are_not_taken_over(serial):
    maps = serial()
    (maps.folder / JOB).unlink()
    with pytest.raises(ValueError, match=r"parts without job\.json"):
        serial()


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"workers": 0}, "workers"),
        ({"part_size": 0}, "part_size"),
        ({"limit": 0}, "limit"),
        ({"limit_seconds": float("nan")}, "limit_seconds"),
        ({"engine": "spark"}, "engine must be one of"),
        ({"address": "auto"}, "address must be left out"),
        ({"shard": (3, 2)}, "shard"),
        ({"shard": (0, 2)}, "shard"),
        ({"threads": 0}, "threads"),
        ({"seed": -1}, "seed"),
        ({"sparsity": [0.1, 0.2]}, "one map per image"),
        ({"method": "sparse_moreaux"}, "Did you mean"),
        ({"target": "horse"}, "horse"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(serial, tmp_path, given, word):
    with pytest.raises(ValueError, match=word):
        serial(**given)
    assert not (tmp_path / "job" / JOB).exists()


def test_what_cannot_be_sent_to_workers_is_refused_with_a_way_out(photos, tmp_path):
    net = mg.load_model("small_network:Linear")
    net.network.forward = lambda x: x
    with pytest.raises(ValueError, match=r"model='module:factory'.*engine='serial'"):
        mg.bulk(net, str(photos), tmp_path / "job", budget=16)


def test_a_class_of_the_program_itself_is_refused():
    class Local:
        pass

    Local.__module__ = "__main__"
    with pytest.raises(ValueError, match="defined in the program itself"):
        jobs.pack(Local())


def test_truth_and_targets_of_a_manifest(serial, photos, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(
        f"path,key,target,truth\n{photos}/cats/0.png,a,dog,cat\n{photos}/cats/1.png,b,,2\n{photos}/cats/2.png,c,2,\n"
    )
    maps = serial(source=table)
    assert [(row.key, row.truth) for row in maps] == [("a", 0), ("b", 2), ("c", None)]
    assert (maps["a"].target, maps["a"].label, maps["c"].target) == (1, "dog", 2)
    told = serial("truth", source=table, target="truth")
    assert (told["b"].target, told["a"].target) == (2, 1)  # what a row asks for itself comes first
    assert serial("bird", source=table, target="bird")["b"].label == "bird"


def test_a_truth_that_is_missing_is_that_image_s_error(serial, photos):
    maps = serial(target="truth")
    assert len(maps.errors) == len(maps)
    assert "needs the true class" in maps.errors["cats/0.png"]


def test_nothing_is_left_behind(serial):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    serial(threads=1)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_the_job_tells_what_it_depends_on(serial):
    about = json.loads((serial().folder / JOB).read_text())
    found = about["configuration"]
    assert {"source", "weights", "method", "options", "seed", "target", "half", "threads", "part_size"} <= found.keys()
    assert (found["options"]["budget"], found["seed"], found["source"]["images"]) == (16, 0, 9)
    assert set(about["runs"][0]["versions"]) == {"python", "moreaugrad", "torch"}

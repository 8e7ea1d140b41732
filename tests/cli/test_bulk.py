"""The command `bulk`: what it writes, says and refuses."""

import json
import shutil
import signal
from pathlib import Path

import duckdb
import pytest

import moreaugrad as mg
from moreaugrad.bulk_jobs.run import RunState
from moreaugrad.cli.bulk import describe_progress, describe_seconds

SMALL = ["--model", "own_small:Curved", "--budget", "16", "--engine", "serial"]


@pytest.fixture
def many(folder):
    """Ten files, of which three are broken."""
    place = folder / "many"
    place.mkdir()
    for number in range(10):
        shutil.copy(folder / ("bad.png" if number % 3 == 2 else "a.png"), place / f"{number}.png")
    return place


def test_a_folder_is_explained_with_the_errors_told(many, run):
    code, out, err = run("bulk", "many", *SMALL, "--out", "maps")
    assert (code, err) == (1, "")
    assert "7 explained, 3 with errors" in out
    maps = mg.open_maps("maps")
    assert (len(maps), sorted(maps.errors)) == (10, ["2.png", "5.png", "8.png"])
    assert maps.job["runs"][0]["command"].startswith("moreaugrad")


def test_nothing_is_written_beside_the_job(many, run):
    run("bulk", "many", *SMALL, "--out", "maps", "--part-size", "4")
    names = sorted(path.name for path in Path("maps").iterdir())
    assert names == ["job.json", *(f"part-{number:06d}.parquet" for number in range(3))]


def test_an_interruption_before_the_first_part_is_told_once(many, run, monkeypatch):
    monkeypatch.setattr("moreaugrad.bulk_jobs.job.run_job", lambda *given: signal.raise_signal(signal.SIGINT))
    code, _, err = run("bulk", "many", *SMALL, "--out", "maps")
    assert (code, err.count("interrupted"), len(err.splitlines())) == (130, 1, 1)


def test_images_without_errors_end_well_and_errors_alone_badly(folder, run):
    assert run("bulk", "a.png", *SMALL, "--out", "good")[0] == 0
    for out, quiet in (("poor", []), ("silent", ["--quiet"])):
        code, _, err = run("bulk", "bad.png", *SMALL, "--out", out, *quiet)
        assert (code, len(err.splitlines())) == (2, 1)
        assert err.startswith("error: every image has an error, as bad.png: ")


def test_json_has_a_line_per_part_and_the_counts_at_the_end(many, run):
    code, out, _ = run("bulk", "many", *SMALL, "--out", "maps", "--part-size", "4", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == ["part"] * 3 + ["end"]
    assert [line["images"] for line in lines] == [4, 8, 10, 10]
    end = lines[-1]
    assert (code, end["errors"], end["total"], end["left"], end["gradients"]) == (1, 3, 10, 0, 7 * 16)


def test_a_limit_leaves_the_rest_to_the_same_command(many, run):
    typed = ["bulk", "many", *SMALL, "--out", "maps", "--part-size", "2"]
    code, out, _ = run(*typed, "--limit", "3")
    assert code == 1
    assert "6 left" in out
    assert "the same command goes on" in out
    code, out, _ = run(*typed)
    assert "4 were there before" in out
    assert mg.open_maps("maps").finished
    code, out, _ = run(*typed)  # nothing to do
    assert code == 1
    assert "10 were there before (3 with errors)" in out


def test_status_tells_how_far_a_job_is(many, run, refuses):
    run("bulk", "many", *SMALL, "--out", "maps", "--part-size", "2", "--limit", "4")
    code, out, _ = run("bulk", "--status", "maps")
    assert (code, out) == (0, "4 of 10 images, 1 with errors, no run is at work\n")
    told = json.loads(run("bulk", "--status", "maps", "--json")[1])
    assert (told["images"], told["total"], told["running"]) == (4, 10, False)
    refuses("must hold a job", "bulk", "--status", "many")


def test_a_dry_run_writes_nothing_and_tells_the_cost(many, run):
    code, out, _ = run("bulk", "many", *SMALL, "--out", "maps", "--dry-run")
    assert code == 0
    assert "10 images to explain" in out
    assert "160 gradients" in out
    assert not Path("maps").exists()
    facts = json.loads(run("bulk", "many", *SMALL, "--out", "maps", "--dry-run", "--json")[1])
    assert (facts["images"], facts["gradients"], facts["configuration"]["method"]) == (10, 160, "sparse_moreau")


def test_a_manifest_with_targets_and_a_query_on_the_parts(folder, run):
    Path("table.csv").write_text("path,key,target,truth\na.png,first,dog,cat\nb[1].png,second,,1\n")
    assert run("bulk", "table.csv", *SMALL, "--out", "maps")[0] == 0
    found = duckdb.sql("select key, label, truth from 'maps/part-*.parquet' order by row").fetchall()
    assert found[0] == ("first", "dog", 0)
    assert found[1][2] == 1


def test_modules_named_by_import_are_known_to_processes_too(folder, run):
    Path("mine.py").write_text(
        "import moreaugrad as mg\n"
        "@mg.register('method', 'doubled_gradient')\n"
        "class Doubled(mg.Gradient):\n"
        "    def compute(self, call):\n"
        "        _, grad = call.score.value_and_grad(call.x)\n"
        "        return mg.Explanation(map=2 * grad, gradients=call.each(1))\n"
    )
    typed = ["bulk", "a.png", "--model", "own_small:Linear", "--import", "mine.py", "--method", "doubled_gradient"]
    code, _, err = run(*typed, "--out", "maps", "--workers", "1")
    assert (code, err) == (0, "")
    row = mg.open_maps("maps")["a.png"]
    weight = mg.load_model("own_small:Linear").network.weight[row.target]
    assert row.map.flatten().tolist() == pytest.approx((2 * weight).tolist())


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["many"], "must hold images"),
        (["nowhere"], "nothing there"),
        ([], "SOURCE must name images"),
        (["a.png", "--workers", "0"], "workers must be at least 1"),
        (["a.png", "--shard", "3"], "--shard must be I/N"),
        (["a.png", "--shard", "0/2"], "--shard must be I/N"),
        (["a.png", "--shard", "5/4"], "--shard must be I/N"),
        (["a.png", "--engine", "spark"], "engine must be one of"),
        (["a.png", "--address", "auto"], "address must be left out"),
        (["a.png", "--target", "horse"], "horse"),
        (["a.png", "--sparsity", "2"], "sparsity must be in"),
        (["https://example.org/a.png"], "nothing is downloaded"),
        (["table.csv"], "columns"),
        (["double.csv"], "unique"),
    ],
)
def test_wrong_input_is_refused_in_a_line(folder, refuses, typed, words):
    (folder / "many").mkdir()
    (folder / "table.csv").write_text("file,name\na.png,a\n")
    (folder / "double.csv").write_text("path\na.png\na.png\n")
    refuses(words, "bulk", *typed, "--model", "own_small:Linear", "--out", "maps")


def test_another_job_in_the_folder_is_refused(folder, run, refuses):
    run("bulk", "a.png", *SMALL, "--out", "maps")
    refuses("seed = 3", "bulk", "a.png", *SMALL, "--out", "maps", "--seed", "3")
    refuses("must be new without resume", "bulk", "a.png", *SMALL, "--out", "maps", "--no-resume")


def test_a_run_is_told_in_a_line():
    state = RunState(total=1000, images=100, errors=1, gradients=16000, started=0.0)
    state.began -= 10
    assert (
        describe_progress(state) == "100 of 1,000 images, 10.00 images/s, 1,600 gradients/s, 1 error, about 90.0 s left"
    )
    assert [describe_seconds(each) for each in (3, 130, 7200, 2e6)] == ["3.0 s", "2.2 min", "2.0 h", "23.1 days"]


def test_a_study_takes_the_images_of_a_job(many, run, refuses):
    run("bulk", "many", *SMALL, "--out", "maps")
    study = "--model own_small:Curved --methods gradient --attacks topk --norms 1 --steps 1"
    study = [*study.split(), "--metrics", "normalised_distance"]
    code, _, err = run("robustness", "--job", "maps", "--images", "3", *study, "--out", "study")
    assert (code, err) == (0, "")
    rows = Path("study/rows.csv").read_text()
    assert all(name in rows for name in ("0.png", "1.png", "3.png"))
    assert "2.png" not in rows  # the broken one
    refuses("one of them", "robustness", "a.png", "--job", "maps", *study)
    shutil.rmtree("many")
    refuses("still where they were", "robustness", "--job", "maps", *study, "--out", "other")

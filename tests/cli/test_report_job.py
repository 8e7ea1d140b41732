"""`report`: the page of a job, from the folder alone."""

from bulk_folder import make_row, write_job
from PIL import Image

from moreaugrad.bulk_jobs.sources import open_source


def test_report_writes_the_page_of_a_job(tmp_path, run):
    write_job(tmp_path / "job", [make_row(0), make_row(1, error="it is broken")])
    code, out, err = run("report", tmp_path / "job")
    assert (code, err) == (0, "")
    assert "1 with an error" in out
    assert str(tmp_path / "job" / "report.html") in out
    assert "image 0.png" in (tmp_path / "job" / "report.html").read_text(encoding="utf-8")


def test_images_that_moved_are_found(tmp_path, run):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8), "red").save(tmp_path / "photos" / "a.png")
    (key,) = open_source(str(tmp_path / "photos"), tmp_path / "job").keys
    write_job(tmp_path / "job", [make_row(0, key=key)])
    page = tmp_path / "job" / "report.html"
    assert run("report", tmp_path / "job", "--quiet") == (0, "", "")
    assert '"alone": true' in page.read_text(encoding="utf-8")
    assert run("report", tmp_path / "job", "--quiet", "--source", tmp_path / "photos")[0] == 0
    assert '"alone": false' in page.read_text(encoding="utf-8")


def test_what_cannot_be_reported_is_refused(tmp_path, refuses):
    refuses("must hold a job", "report", tmp_path)
    write_job(tmp_path / "job", [make_row(0)])
    refuses("images must be at least 1", "report", tmp_path / "job", "--images", "0")

"""The page of the reproduction: every number comes from a table, and the committed page is what the tables say."""

import re
import shutil

import pytest

from paper.data import records
from paper.figures import robustness
from paper.report import bimodality, ordering, readme, summaries, tables
from paper.report.markdown import Results

TEMPLATE = readme.TEMPLATE.read_text(encoding="utf-8")


@pytest.fixture
def results(tmp_path):
    """A copy of the committed results without the rows."""
    folder = tmp_path / "results"
    skip = shutil.ignore_patterns("*.png", "*.jpg", "*rows.csv", "table.csv")
    return shutil.copytree(readme.RESULTS, folder, ignore=skip)


def test_the_committed_page_is_what_the_committed_results_say():
    assert readme.README.read_text(encoding="utf-8") == readme.render(TEMPLATE, readme.RESULTS)


def test_a_changed_result_changes_the_page(results):
    before = readme.render(TEMPLATE, results)
    assert "{{" not in before
    assert not re.search(r"\n{3}", before)
    path = results / "theory.csv"
    path.write_text(re.sub(r"(\d)\n", r"\g<1>77\n", path.read_text()))
    assert readme.render(TEMPLATE, results) != before


def test_a_part_stands_where_its_data_set_has_results(results):
    text = "{{if noise.csv dataset=imagenet}}\nphotos\n{{end}}\n{{if noise.csv dataset=other}}\nothers\n{{end}}\n"
    assert "photos" in readme.render(text, results)
    assert "others" not in readme.render(text, results)
    assert "photos" not in readme.render(text.replace("noise.csv", "missing.csv"), results)


def test_the_command_writes_the_page_whole_or_not_at_all(results, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page" / "README.md"
    monkeypatch.setattr(readme, "RESULTS", results)
    monkeypatch.setattr(readme, "README", page)
    assert readme.main() == 0
    before = page.read_bytes()
    (results / "theory.csv").unlink()
    assert readme.main() == 2
    assert "theory.csv" in capsys.readouterr().err
    assert page.read_bytes() == before
    assert str(readme.HERE.parent) not in before.decode()


def test_placeholders_take_numbers_intervals_and_entries_of_json(tmp_path):
    table = "dataset,epsilon,mean,mean_low,mean_high,share\ncifar10,3,0.456,0.4,0.5,0.07\ncifar10,10,1.25,1,2,0.5\n"
    (tmp_path / "a.csv").write_text(table)
    (tmp_path / "b.json").write_text('{"runs": [{"device": "a chip"}], "count": 1234}')

    def filled(text):
        return readme.render(text, tmp_path).removeprefix(readme.NOTE).strip()

    assert filled("{{number a.csv epsilon=3.0 column=mean format=.1f}}") == "0.5"
    assert filled("{{number a.csv epsilon=3 column=share format=.0%}}") == "7 %"
    assert filled("{{interval a.csv dataset=cifar10 epsilon=10}}") == "1.25 [1.00, 2.00]"
    assert filled("{{json b.json runs.0.device}}, {{json b.json count format=,}}") == "a chip, 1,234"
    assert filled("a{{if a.csv}}\nb{{end}}{{if c.csv}}\nc{{end}}") == "ab"
    for text in ("MoreauGrad reaches 0.45 here", "| a | 3 |", "CIFAR-100 is another set"):
        with pytest.raises(ValueError, match="take every number from the results"):
            filled(text)
    assert filled("{{table plain file=a.csv columns=epsilon,share epsilon=3}}").splitlines()[-1] == "| 3 | 0.07 |"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("number a.csv column=mean", "one line"),  # two lines fit
        ("number a.csv epsilon=7 column=mean", "got 0"),
        ("number a.csv epsilon=3 column=none", "none"),
        ("number missing.csv column=mean", "make its figure first"),
        ("sum a.csv", "must begin with"),
        ("table plan file=a.csv", "a table must be one of"),
        ("table plain file=a.csv", "columns"),
        ("end", "must begin with"),
    ],
)
def test_a_placeholder_that_cannot_be_filled_says_which_and_why(asked, words, tmp_path):
    (tmp_path / "a.csv").write_text("epsilon,mean\n3,0.4\n10,0.5\n")
    with pytest.raises(ValueError, match=re.escape(f"{{{{{asked}}}}}")) as caught:
        readme.render(f"{{{{{asked}}}}}", tmp_path)
    assert words in str(caught.value)


# tables


def line(method, epsilon, mode, metric, value, **more):
    identity = {"dataset": "imagenet", "protocol": "made up", "method": method, "attack": "topk", "epsilon": epsilon}
    given = {"mode": mode, "metric": metric, "n": 7, "valid_share": 0.86, "counted": 6, "undefined": 0}
    return identity | given | dict(zip(summaries.MIDDLE, (value, value - 0.01, value + 0.01), strict=True)) | more


def test_the_table_of_orders_names_pairs_that_differ_and_how_sure_that_is(tmp_path):
    """All that was published came out a hundredth higher, but for the order of one pair."""
    published = summaries.read_published()
    lines = [
        line(p["method"], p["epsilon"], "strongest", p["metric"], p["value"] + 0.01)
        | {"dataset": p["dataset"], "median": 0, "median_low": 0, "median_high": 0}
        for p in published
    ]
    found = ordering.compare_orders(lines, published)
    (pair,) = [
        each
        for each in found
        if [each[name] for name in ("dataset", "metric", "epsilon", "statistic", "method", "other")]
        == ["imagenet", "ssim", 20, "mean", "gradient", "moreau"]
    ]
    pair |= {"order": "differs", "ours": 0.9, "ours_other": 0.8, "ours_apart": True}
    records.write(tmp_path / "ordering.csv", found, ordering.COLUMNS)
    text = tables.make(Results(tmp_path), "ordering", {"largest": "1"})
    (row,) = [row for row in text.splitlines() if row.startswith("| ImageNet | SSIM | 20 ")]
    assert row.endswith("| 14 of 15 | **Simple gradient before MoreauGrad** |")
    assert len(text.splitlines()) == 2 + 9


def test_the_fair_table_says_who_won_what_was_valid_and_the_floor(tmp_path):
    lines = [line("smoothgrad", 0, "floor", "normalised_distance", 0.05)]
    for metric, value, other in (
        ("normalised_distance", 0.67, 0.9),
        ("topk_intersection", 0.3, 0.4),
        ("ssim", 0.2, 0.1),
    ):
        lines.append(line("smoothgrad", 10, "strongest", metric, value, won_exact=0.25, won_transfer=0.75))
        lines.append(line("smoothgrad", 10, "exact", metric, value - 0.1))
        lines.append(line("smoothgrad", 0, "chance", metric, other))
    summaries.write(tmp_path / "fair.csv", lines)
    row = tables.make(Results(tmp_path), "strongest", {"dataset": "imagenet"}).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["SmoothGrad", "10", "0.67 [0.66, 0.68]"]
    assert cells[5:] == ["transfer 75 %, exact 25 %", "86 %", "0.05 [0.04, 0.06]", "0.90 / 0.40 / 0.10"]
    modes = tables.make(Results(tmp_path), "modes", {"method": "smoothgrad"})
    assert modes.splitlines()[-1] == "| ImageNet | 10 | 0.57 [0.56, 0.58] | 0.67 [0.66, 0.68] |"


def test_published_values_stand_in_brackets_and_failures_beside(tmp_path):
    lines = [
        line(method, 10.0, "strongest", metric, value)
        for method in ("gradient", "moreau")
        for metric, value in zip(
            (*summaries.names.COMPARED, *summaries.AS_PUBLISHED), (0.3, 0.3, 0.3, 0.5, 0.5, 0.5), strict=True
        )
    ]
    summaries.write(tmp_path / "robustness.csv", lines)
    summaries.write(tmp_path / "robustness_all.csv", [each | {"mean": each["mean"] - 0.05} for each in lines])
    wanted = ("imagenet", "moreau", "normalised_distance", 10.0)
    (value,) = [p["value"] for p in summaries.read_published() if tables._point(p) == wanted]
    text = tables.make(Results(tmp_path), "published", {"dataset": "imagenet"})
    wanted = f"| MoreauGrad | 0.30 [0.29, 0.31]; 0.25 with 14 % failed ({value:.2f}) |"
    assert text.split("\n\n")[0].splitlines()[-1] == wanted
    signed = tables.make(Results(tmp_path), "published", {"dataset": "imagenet", "variant": "signed"})
    first, second = signed.split("\n\n")[0].splitlines()[2:]
    assert first.startswith("| Simple gradient | 0.30 ")  # signed maps are those of MoreauGrad alone
    assert second.startswith("| MoreauGrad | 0.50 ")


def test_sweeps_are_means_over_the_images_of_a_data_set(tmp_path):
    lines = ["dataset,image,rho,distance,converged", "cifar10,a,0.1,0.2,1", "cifar10,b,0.1,0.4,0", "cifar10,a,1,,1"]
    (tmp_path / "rho.csv").write_text("\n".join(lines) + "\n")
    text = tables.make(Results(tmp_path), "sweep", {"file": "rho.csv", "by": "rho", "columns": "distance,converged"})
    assert text.splitlines()[2:] == ["| CIFAR-10 | 0.1 | 0.3 | 0.5 | 2 |", "| CIFAR-10 | 1 | - | 1 | 1 |"]


def test_the_floor_says_how_many_samples_would_differ_by_the_published_value():
    """A mean over a quarter of the samples has twice the error; another solution is no noise."""
    published = [
        {"dataset": "cifar10", "method": "smoothgrad", "metric": "normalised_distance", "epsilon": 1.0, "value": 0.3}
    ]
    published += [published[0] | {"epsilon": 0.3, "value": 0.2}, published[0] | {"metric": "ssim", "epsilon": 0.1}]
    floor = {"method": "smoothgrad", "mode": "floor"}
    rows = [floor | {"key": str(key), "normalised_distance": each} for key, each in enumerate(("0.05", "0.05", "0.2"))]
    rows += [{"method": "smoothgrad", "mode": "strongest", "key": "0", "normalised_distance": "9"}]
    rows += [{"method": "gradient", "mode": "floor", "key": "0", "normalised_distance": "0"}]
    (found,) = robustness.compare_floors(bimodality.floors(rows, "cifar10"), published)
    assert (found["epsilon"], found["published"], found["samples"]) == (0.3, 0.2, 8192)
    assert found["mean"] == pytest.approx(0.1)
    assert found["samples_of_published"] == pytest.approx(8192 / 4)
    assert (found["median"], found["largest"], found["far"], found["n"]) == (0.05, 0.2, 1, 3)

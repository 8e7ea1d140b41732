"""The README of the reproduction: every number comes from a table, and the committed page is what the tables say."""

import json
import re

import paper_path
import pytest

from paper import accuracy, curves, jumps, names, readme, records, robustness, stronger, tables
from paper.markdown import Results

FIGURES = ("mean", "mean_low", "mean_high")
MEDIANS = ("median", "median_low", "median_high")


def line(dataset, method, epsilon, mode, metric, value, **more):
    identity = {"dataset": dataset, "protocol": "made up", "method": method, "attack": "topk", "epsilon": epsilon}
    told = {"mode": mode, "metric": metric, "n": 7, "valid_share": 0.86, "counted": 6, "undefined": 0}
    middle = (value, value - 0.01, value + 0.01)
    return identity | told | dict(zip((*FIGURES, *MEDIANS), 2 * middle, strict=True)) | more


def two_seeds():
    """What two maps without an attack differ by: one image of three has another solution."""
    methods = ("smoothgrad", "sparsified_smoothgrad", "moreau", "sparse_moreau")
    floor = [
        {"method": name, "mode": "floor", "key": str(key), "normalised_distance": str(value)}
        for name in methods
        for key, value in enumerate((1, 1, 4))
    ]
    return [line for dataset in names.DATASETS for line in jumps.floors(floor, dataset)]


def unpublished():
    """Lines that have no published value: fewer samples, single attacks of the fair test, another image."""
    lines = []
    for of, norm in (("cifar10", 0.3), ("imagenet", 1.0)):  # no published value
        for metric in ("normalised_distance", "topk_intersection", "ssim"):
            lines.append(line(of, "smoothgrad_400", norm, "strongest", metric, 0.3))
            lines.append(line(of, "smoothgrad_400", 0.0, "floor", metric, 0.2, attack="none"))
    for norm, mode in ((0.0, "floor"), (3.0, "strongest"), (10.0, "strongest")):
        lines += [line("cifar10", "smoothgrad_quiet", norm, mode, metric, 0.3) for metric in curves.DRAWN]
    for of in names.DATASETS:  # single attacks of the fair test
        for norm in (1.0, 3.0, 10.0):
            lines.append(line(of, "moreau", norm, "implicit:4x16", "normalised_distance", 0.3))
            lines.append(line(of, "smoothgrad", norm, "exact", "normalised_distance", 0.3))
            votes = ("sparsified_smoothgrad", norm)
            modes = ("exact", "transfer", "first")
            lines += [line(of, *votes, mode, "normalised_distance", 0.3) for mode in modes]
    for metric, value in zip(curves.DRAWN, (0.9, 0.4, 0.1), strict=True):
        lines.append(line("imagenet", "smoothgrad", 0.0, "chance", metric, value, attack="none"))
        lines += [line(of, "moreau", 0.0, "chance", metric, value, attack="none") for of in names.DATASETS]
    return lines


def pairs():
    """Differences of two methods under attack."""
    told = {"method": "moreau", "other": "smoothgrad", "n": 7, "positive": 0.5}
    told |= dict(zip(FIGURES, (0.1, 0.0, 0.2), strict=True))
    sizes = [(of, size) for of in names.DATASETS for size in (0.3, 1.0)]
    return [told | {"dataset": of, "epsilon": size, "metric": metric} for of, size in sizes for metric in curves.DRAWN]


def apart():
    """Differences of the accuracy of two methods."""
    told = {"over": "all", "method": "moreau", "other": "smoothgrad", "n": 5}
    told |= dict(zip(FIGURES, (0.1, 0.0, 0.2), strict=True))
    return [told | {"dataset": of, "metric": metric} for of in names.DATASETS for metric in accuracy.FAITHFUL]


@pytest.fixture
def results(tmp_path):
    """A whole set of results in which all that was published came out, a hundredth higher."""
    lines = []
    for point in curves.read_published():
        of, metric, value = (
            (point["dataset"], point["method"], point["epsilon"]),
            point["metric"],
            point["value"] + 0.01,
        )
        won = {"won_exact": 0.25, "won_transfer": 0.75}
        lines.append(line(*of, "strongest", metric, value, **won))
        lines.append(line(*of, "frozen", metric, value - 0.1))
        signed = next(name for name in names.BASE if names.BASE[name] == metric)
        lines.append(line(*of, "strongest", signed, value + 0.2))
        if point["epsilon"] == 3:
            lines.append(line(point["dataset"], point["method"], 0.0, "floor", metric, 0.05, attack="none"))
    lines += unpublished()
    terms = {"budget": 1600, "attack_budget": 64, "scout": 320, "attacks": {"topk": {"steps": 4}}}
    for name in ("fair", "fair_sign"):
        (tmp_path / f"studies/{name}_cifar10_1").mkdir(parents=True)
        description = tmp_path / f"studies/{name}_cifar10_1/study.json"
        description.write_text(json.dumps({"configuration": {"study": terms}}))
    records.write(tmp_path / "paired.csv", pairs(), stronger.PAIRED)
    for name in ("robustness", "fair", "noise"):
        curves.write(tmp_path / f"{name}.csv", lines)
    curves.write(tmp_path / "robustness_all.csv", [each | {"mean": each["mean"] - 0.05} for each in lines])
    records.write(tmp_path / "floors.csv", robustness.floors(two_seeds(), curves.read_published()), robustness.FLOORS)
    records.write(tmp_path / "fair_floors.csv", two_seeds(), jumps.FLOORS)
    records.write(tmp_path / "jumps.csv", [{"dataset": "imagenet", "method": "moreau", "mean": 0.5}], jumps.WITHOUT)
    records.write(tmp_path / "way.csv", [line("imagenet", "moreau", 3.0, "", "", 0.5)], stronger.WAY)
    curves.write_orderings(tmp_path / "ordering.csv", lines, curves.read_published())
    merits = [
        {"dataset": dataset, "method": method, "metric": metric, "over": over, "n": 5, "gradients": 1600}
        | dict(zip(FIGURES, (0.5, 0.4, 0.6), strict=True))
        for dataset in names.DATASETS
        for over in ("all", "correct")
        for method, metrics in [
            *((method, accuracy.METRICS) for method in accuracy.METHODS),
            ("network", ["correct"]),
            ("chance", ["box_share"]),
        ]
        for metric in metrics
    ]
    records.write(tmp_path / "accuracy.csv", merits, accuracy.SUMMARY)
    records.write(tmp_path / "accuracy_paired.csv", apart(), accuracy.PAIRED)
    (tmp_path / "accuracy.json").write_text(json.dumps({name: {"trained": "by hand"} for name in names.DATASETS}))
    asked = re.findall(r"theory\.csv name=(\S+) case=(\S+)", readme.TEMPLATE.read_text(encoding="utf-8"))
    theory = [{"name": name, "case": case, "value": 2.0} for name, case in dict.fromkeys(asked)]
    records.write(tmp_path / "theory.csv", theory, ("name", "case", "value"))
    return tmp_path


def test_the_committed_page_is_what_the_committed_results_say():
    if not readme.README.is_file():
        pytest.skip("paper/README.md is not there yet; `python -m paper.readme` makes it")
    template = readme.TEMPLATE.read_text(encoding="utf-8")
    assert readme.README.read_text(encoding="utf-8") == readme.render(template, readme.RESULTS)


def test_the_pictures_that_the_page_shows_are_there():
    if not readme.README.is_file():
        pytest.skip("paper/README.md is not there yet; `python -m paper.readme` makes it")
    shown = re.findall(r"\]\(([^)#]+)\)", readme.README.read_text(encoding="utf-8"))
    missing = [path for path in shown if "://" not in path and not (readme.HERE / path).exists()]
    assert not missing


def test_the_template_has_no_number_of_its_own():
    assert readme.stray_numbers(readme.TEMPLATE.read_text(encoding="utf-8")) == []


def test_the_template_is_filled_from_a_whole_set_of_results(results):
    text = readme.render(readme.TEMPLATE.read_text(encoding="utf-8"), results)
    assert "{{" not in text
    assert "}}" not in text
    assert "Smoothness and sparsity" not in text  # rho.csv is not there
    assert text.startswith("<!-- Made from README.in.md")
    assert not re.search(r"\n{3}", text)
    # CIFAR-10 at norm 3: 0.45 was published of MoreauGrad
    assert " | 0.46 [0.45, 0.47]; 0.41 with 14 % failed (0.45) |" in text


def test_a_part_stands_where_its_data_set_has_results(results):
    text = "{{if noise.csv dataset=imagenet}}\nphotos\n{{end}}\n{{if noise.csv dataset=other}}\nothers\n{{end}}\n"
    assert "photos" in readme.render(text, results)
    assert "others" not in readme.render(text, results)
    assert "photos" not in readme.render(text.replace("noise.csv", "missing.csv"), results)


def test_a_changed_result_changes_the_page(results):
    template = readme.TEMPLATE.read_text(encoding="utf-8")
    before = readme.render(template, results)
    path = results / "theory.csv"
    path.write_text(path.read_text().replace(",2\n", ",3\n"))
    assert readme.render(template, results) != before


@pytest.mark.parametrize(
    "text",
    [
        "MoreauGrad reaches 0.45 here",
        "over 200 images",
        "| a | 3 |",
        "CIFAR-100 is another set",  # CIFAR-10 is a known name, this is not
        "[see 4](there)",
    ],
)
def test_numbers_of_the_text_are_refused(text, tmp_path):
    assert readme.stray_numbers(f"first\n{text}\n")
    with pytest.raises(ValueError, match="take every number from the results"):
        readme.render(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "ResNet-18 on CIFAR-10, 95 % intervals, L2 norms",
        "`rho = 1` and ```\npython 3\n```",
        "[the table](results/table1.csv)",
        "{{number a.csv column=x epsilon=3}} of it",
        "<!-- 12 -->",
    ],
)
def test_names_code_links_and_placeholders_may_hold_digits(text):
    assert readme.stray_numbers(text) == []


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


def test_the_table_of_orders_names_pairs_that_differ_and_how_sure_that_is(results):
    lines = records.read(results / "ordering.csv")
    for each in lines:
        if (each["dataset"], each["metric"], each["epsilon"]) == ("imagenet", "ssim", "20"):
            first, second = each["method"], each["other"]
            if (first, second) == ("gradient", "moreau"):
                each |= {"order": "differs", "ours": "0.9", "ours_other": "0.8", "ours_apart": "1"}
    records.write(results / "ordering.csv", lines, lines[0])
    text = tables.make(Results(results), "ordering", {"largest": "1"})
    (row,) = [row for row in text.splitlines() if row.startswith("| ImageNet | SSIM | 20 ")]
    assert row.endswith("| 14 of 15 | **Simple gradient before MoreauGrad** |")
    assert len(text.splitlines()) == 2 + 9


def test_the_fair_table_says_who_won_what_was_valid_and_the_floor(results):
    text = tables.make(Results(results), "strongest", {"dataset": "imagenet"})
    (row,) = [row for row in text.splitlines() if row.startswith("| SmoothGrad | 10 ")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2] == "0.67 [0.66, 0.68]"
    assert cells[5:] == ["transfer 75 %, exact 25 %", "86 %", "0.05 [0.04, 0.06]", "0.90 / 0.40 / 0.10"]
    modes = tables.make(Results(results), "modes", {"method": "sparse_moreau"})
    assert "| ImageNet | 20 | 0.31 [0.30, 0.32] | 0.41 [0.40, 0.42] |" in modes


def test_signed_figures_are_those_of_moreau_maps_alone(results):
    text = tables.make(Results(results), "published", {"dataset": "cifar10", "variant": "signed"})
    distance = text.split("\n\n")[0].splitlines()
    assert distance[2].startswith("| Simple gradient | 0.22 ")
    assert distance[-1].startswith("| Sparse MoreauGrad | 0.29 ")


def test_sweeps_are_means_over_the_images_of_a_data_set(tmp_path):
    lines = ["dataset,image,rho,distance,converged", "cifar10,a,0.1,0.2,1", "cifar10,b,0.1,0.4,0", "cifar10,a,1,,1"]
    (tmp_path / "rho.csv").write_text("\n".join(lines) + "\n")
    text = tables.make(Results(tmp_path), "sweep", {"file": "rho.csv", "by": "rho", "columns": "distance,converged"})
    assert text.splitlines()[2:] == ["| CIFAR-10 | 0.1 | 0.3 | 0.5 | 2 |", "| CIFAR-10 | 1 | - | 1 | 1 |"]


def test_the_command_writes_the_page_whole_or_not_at_all(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(readme, "RESULTS", results)
    monkeypatch.setattr(readme, "README", tmp_path / "page" / "README.md")
    assert readme.main() == 0
    page = (tmp_path / "page" / "README.md").read_text(encoding="utf-8")
    (results / "theory.csv").unlink()
    assert readme.main() == 2
    assert "theory.csv" in capsys.readouterr().err
    assert (tmp_path / "page" / "README.md").read_text(encoding="utf-8") == page
    assert str(paper_path.ROOT) not in page


def test_the_floor_tells_how_many_samples_would_differ_by_the_published_value():
    """A mean over a quarter of the samples has twice the error; another solution is no noise."""
    published = [
        {"dataset": "cifar10", "method": "smoothgrad", "metric": "normalised_distance", "epsilon": 1.0, "value": 0.3}
    ]
    published += [published[0] | {"epsilon": 0.3, "value": 0.2}, published[0] | {"metric": "ssim", "epsilon": 0.1}]
    floor = {"method": "smoothgrad", "mode": "floor"}
    rows = [floor | {"key": str(key), "normalised_distance": each} for key, each in enumerate(("0.05", "0.05", "0.2"))]
    rows += [{"method": "smoothgrad", "mode": "strongest", "key": "0", "normalised_distance": "9"}]
    rows += [{"method": "gradient", "mode": "floor", "key": "0", "normalised_distance": "0"}]
    (found,) = robustness.floors(jumps.floors(rows, "cifar10"), published)
    assert (found["epsilon"], found["published"], found["samples"]) == (0.3, 0.2, 8192)
    assert found["mean"] == pytest.approx(0.1)
    assert found["samples_of_published"] == pytest.approx(8192 / 4)
    assert (found["median"], found["largest"], found["far"], found["n"]) == (0.05, 0.2, 1, 3)

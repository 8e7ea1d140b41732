"""Studies of robustness: equal terms, honest floors, the strongest attack, and folders that can be resumed."""

import csv
import io
import json
import math
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn

import moreaugrad as mg
from moreaugrad.metrics import METRICS
from moreaugrad.model import surgery
from moreaugrad.studies import run, runner, summary
from moreaugrad.studies.plan import Cell, Study
from moreaugrad.studies.resumable_csv import ResumableCsv, format_value, parse_value
from moreaugrad.studies.run import run_study
from moreaugrad.studies.setup import BudgetedMethod, assign_options, make_attack
from moreaugrad.studies.sources import TensorSource

EPSILON = 2.0
DISTANCE = METRICS["normalised_distance"]


class Counted(nn.Module):
    """A smooth network for pictures of 12 x 12 that counts its calls."""

    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(144, 16), nn.Softplus(), nn.Linear(16, 3))
        for parameter in self.layers.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5
        self.eval()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layers(x)


X = torch.randn(3, 1, 12, 12, generator=torch.Generator().manual_seed(1))
SPARSE = {"method": "sparse_moreau", "sparsity": 0.2}


def small(**changes):
    terms = {"methods": {"gradient": {}, "smoothgrad": {}, "sparse": SPARSE}, "attacks": {"topk": {"steps": 2}}}
    terms |= {"epsilons": (EPSILON,), "modes": ("frozen", "implicit:2x8"), "budget": 32, "attack_budget": 16}
    return Study(**terms | changes)


@pytest.fixture(autouse=True, scope="module")
def _blocks_of_two():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "TOGETHER", (2, 2))
        yield


@pytest.fixture
def _undrawn(monkeypatch):
    """Curves cost more time than these small studies."""
    monkeypatch.setattr(run, "curves", lambda *args, **options: None)
    monkeypatch.setattr(run.pictures, "write", lambda figure, path: path.touch())


@pytest.fixture(scope="module")
def finished(_blocks_of_two, tmp_path_factory):
    """A folder with a whole study, and its result."""
    out = tmp_path_factory.mktemp("study")
    return out, run_study(small(), Counted(), X, out)


def lines(text):
    return list(csv.DictReader(io.StringIO(text)))


def untimed(path):
    """The bytes of a table but for its last column."""
    return "\n".join(line.rpartition(",")[0] for line in path.read_text().splitlines())


def chosen(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_one_row_per_image_and_cell_in_a_fixed_order(finished):
    out, result = finished
    assert result.finished
    found = lines((out / "rows.csv").read_text())
    cells = list(small().cells())
    assert cells[-4:] == [
        Cell("sparse"),
        *(Cell("sparse", "topk", EPSILON, mode) for mode in ("frozen", "implicit:2x8", "strongest")),
    ]
    blocks = ["01", "2"]
    wanted = [
        (number, number, cell.method, cell.attack, "l2", repr(cell.epsilon), cell.mode)
        for block in blocks
        for cell in cells
        for number in block
    ]
    assert [tuple(row[name] for name in runner.IDENTITY) for row in found] == wanted
    assert list(found[0]) == [*runner.COLUMNS, *small().metrics, *runner.COSTS]
    assert result.total == len(cells) * len(blocks)


def test_rows_say_what_the_model_and_the_attack_say(finished):
    rows = finished[1].rows
    logits = Counted()(X).detach()
    for row in rows:
        predicted = int(logits[row["image"]].argmax())
        assert row["target"] == row["predicted"] == predicted
        assert row["probability"] == pytest.approx(float(logits[row["image"]].double().softmax(0)[predicted]))
        assert row["l2"] <= EPSILON * (1 + 1e-6)
        if row["mode"] != "floor":
            assert row["valid"] == (row["success"] and row["kept"])
            assert row["kept"] == (row["predicted_after"] == predicted)
            assert (row["objective"] < row["objective_before"]) == row["success"]


def test_budgets_are_equal_and_reported(finished):
    rows = finished[1].rows
    spent = {label: {row["map_gradients"] for row in chosen(rows, method=label)} for label in small().methods}
    assert spent == {"gradient": {1}, "smoothgrad": {32}, "sparse": {32}}
    one = chosen(rows, method="smoothgrad", mode="exact")[0]["attack_gradients"]
    direct = mg.ATTACKS["topk"](smoothgrad(16, 0), EPSILON, steps=2, seed=3).perturb(X[:1])
    assert one == int(direct.gradients)


def smoothgrad(samples, seed):
    return mg.SmoothGrad(Counted(), mg.Smoothing(noise_level=0.15, samples=samples), seed=seed)


def test_a_row_is_the_attack_on_that_image_alone_judged_with_fresh_noise(finished):
    number = 2
    attacked = mg.ATTACKS["topk"](smoothgrad(16, 0), EPSILON, steps=2, seed=3).perturb(X[number : number + 1])
    judge = smoothgrad(32, 1)
    before, after = (judge.attribute(x, attacked.target) for x in (X[number : number + 1], attacked.x))
    (row,) = chosen(finished[1].rows, method="smoothgrad", mode="exact", image=number)
    for name in small().metrics:
        assert row[name] == pytest.approx(float(METRICS[name](before, after)), abs=1e-5)
    assert row["l2"] == pytest.approx(float(attacked.l2), rel=1e-5)


def test_the_floor_is_two_seeds_without_an_attack(finished):
    rows = chosen(finished[1].rows, attack="none")
    assert {row["epsilon"] for row in rows} == {0.0}
    assert {row["normalised_distance"] for row in chosen(rows, method="gradient")} == {0.0}
    target = Counted()(X).argmax(1)
    wanted = DISTANCE(smoothgrad(32, 1).attribute(X, target), smoothgrad(32, 2).attribute(X, target))
    found = torch.tensor([row["normalised_distance"] for row in chosen(rows, method="smoothgrad")])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert bool((found > 0.01).all())


def test_strongest_rows_are_made_of_the_modes(finished):
    rows = chosen(finished[1].rows, method="sparse")
    for best in chosen(rows, mode="strongest"):
        modes = [row for row in chosen(rows, image=best["image"], attack="topk") if row["mode"] != "strongest"]
        assert len(modes) == 2
        assert best["normalised_distance"] == max(row["normalised_distance"] for row in modes)
        assert best["ssim"] == min(row["ssim"] for row in modes)
        assert best["attack_gradients"] == sum(row["attack_gradients"] for row in modes)


# the strongest, by hand


def row(mode, distance, shared, valid=True, **more):
    facts = {"mode": mode, "normalised_distance": distance, "topk_intersection": shared, "valid": valid}
    return facts | {"attack_gradients": 10, "seconds": 1.0, "l2": distance, "winner": None} | more


PAIR = ("normalised_distance", "topk_intersection")


@pytest.mark.parametrize(
    ("rows", "winner", "distance", "shared", "valid"),
    [
        ([row("a", 0.2, 0.9), row("b", 0.5, 0.7)], "b", 0.5, 0.7, True),
        ([row("a", 0.2, 0.4), row("b", 0.5, 0.7)], "b", 0.5, 0.4, True),  # each metric by itself
        ([row("a", 0.2, 0.9), row("b", 0.5, 0.1, valid=False)], "a", 0.2, 0.9, True),  # what is not valid cannot win
        ([row("a", 0.0, 1.0, valid=False), row("b", 0.1, 0.8, valid=False)], "b", 0.1, 0.8, False),
        ([row("a", math.nan, 0.9), row("b", 0.1, math.nan)], "b", 0.1, 0.9, True),  # NaN says nothing
        ([row("a", 0.3, 0.9), row("b", 0.3, 0.8)], "a", 0.3, 0.8, True),  # the first of equal ones
        ([row("a", math.nan, 1.0), row("b", math.nan, 0.5)], "a", math.nan, 0.5, True),
    ],
)
def test_strongest_by_hand(rows, winner, distance, shared, valid):
    best = summary.choose_strongest(rows, PAIR)
    assert [best[name] for name in PAIR] == pytest.approx([distance, shared], rel=0, abs=0, nan_ok=True)
    assert (best["winner"], best["mode"], best["valid"]) == (winner, "strongest", valid)
    assert best["attack_gradients"] == 20
    assert best["l2"] is next(each["l2"] for each in rows if each["mode"] == winner)


def test_table_by_hand():
    where = {"method": "m", "attack": "topk", "norm": "l2", "epsilon": 1.0, "map_gradients": 4}
    figures = [(0.1, True, "a"), (0.2, True, "b"), (0.6, True, "b"), (9.0, False, "b"), (math.nan, True, "a")]
    rows = [row("strongest", value, 1.0, valid, winner=who, **where) for value, valid, who in figures]
    rows += [row("a", value / 2, 1.0, valid, **where) for value, valid, _ in figures]
    found = {(line["mode"], line["over"]): line for line in summary.summarise(rows, PAIR[:1])}
    every, sound = found["strongest", "all"], found["strongest", "valid"]
    assert (every["n"], every["undefined"], every["valid_share"]) == (5, 1, 0.8)
    assert every["median"] == pytest.approx(0.4)
    assert (sound["n"], sound["undefined"], sound["median"]) == (4, 1, 0.2)
    assert sound["mean"] == pytest.approx(0.3)
    assert 0.1 <= sound["low"] <= 0.2 <= sound["high"] <= 0.6
    assert found["a", "all"]["won_share"] == 0.4
    assert every["won_share"] is None
    assert (every["attack_gradients"], every["map_gradients"]) == (10, 4)


def test_tables_hold_what_the_rows_say(finished):
    out, result = finished
    found = lines((out / "table.csv").read_text())
    assert list(found[0]) == list(summary.TABLE)
    for line in found:
        if line["metric"] == "ssim" and line["over"] == "all":
            some = chosen(result.rows, method=line["method"], mode=line["mode"])
            values = torch.tensor([each["ssim"] for each in some], dtype=torch.float64)
            assert float(line["median"]) == pytest.approx(float(values.median()))  # three images: an odd number
            assert int(line["n"]) == 3


# resuming


def resume(finished, out, text):
    """Runs the study in a folder whose rows are `text`; the rows must end as those of the whole study."""
    (out / "study.json").write_bytes((finished[0] / "study.json").read_bytes())
    (out / "rows.csv").write_text(text)
    assert run_study(small(), Counted(), X, out).finished
    assert untimed(out / "rows.csv") == untimed(finished[0] / "rows.csv")


def cells_of(finished, done):
    """The text of the first cells: ten of two images, then ten of one."""
    lines = (finished[0] / "rows.csv").read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 2 * 10 + 10
    return "".join(lines[: 1 + min(2 * done, 10 + done)])


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("done", range(20))
def test_a_study_killed_after_any_cell_ends_the_same(finished, tmp_path, done, monkeypatch):
    measured = []
    plain = runner.StudyRunner.measure
    monkeypatch.setattr(
        runner.StudyRunner, "measure", lambda self, *args: measured.append(args[1]) or plain(self, *args)
    )
    resume(finished, tmp_path, cells_of(finished, done + 1))
    assert len(measured) == 19 - done
    assert (tmp_path / "table.csv").read_bytes() == (finished[0] / "table.csv").read_bytes()


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("cut", [5, -1, -40, -400, 0.5, 0.77])
def test_half_written_lines_are_repaired(finished, tmp_path, cut):
    text = cells_of(finished, 20)
    resume(finished, tmp_path, text[: int(cut * len(text)) if isinstance(cut, float) else cut])


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("junk", ["\0\0\0\n", "1,2\n", "9,9,gradient\n", '"open,quote\n'])
def test_what_is_no_row_of_the_plan_is_dropped(finished, tmp_path, junk):
    resume(finished, tmp_path, cells_of(finished, 13) + junk)


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("column", ["normalised_distance", "seconds", "attack_gradients"])
def test_a_row_with_text_in_place_of_a_number_is_measured_again(finished, tmp_path, column):
    text = cells_of(finished, 20).splitlines()
    cells = text[-1].split(",")
    cells[text[0].split(",").index(column)] = "text"
    resume(finished, tmp_path, "\n".join([*text[:-1], ",".join(cells), ""]))


@pytest.mark.usefixtures("_undrawn")
def test_an_interrupted_study_keeps_its_cells_and_a_table_comes_at_the_end(tmp_path, finished, monkeypatch):
    plain = ResumableCsv.append
    calls = []

    def append(self, rows):
        calls.append(rows)
        if len(calls) == 4:
            raise KeyboardInterrupt
        plain(self, rows)

    monkeypatch.setattr(ResumableCsv, "append", append)
    with pytest.raises(KeyboardInterrupt):
        run_study(small(), Counted(), X, tmp_path)
    assert len(lines((tmp_path / "rows.csv").read_text())) == 6
    assert not (tmp_path / "table.csv").exists()
    assert not list(tmp_path.glob(".*"))
    assert run_study(small(), Counted(), X, tmp_path).finished
    assert untimed(tmp_path / "rows.csv") == untimed(finished[0] / "rows.csv")
    assert len(json.loads((tmp_path / "study.json").read_text())["runs"]) == 2


@pytest.mark.usefixtures("_undrawn")
def test_minutes_stop_it_after_a_cell_and_every_run_gets_on(tmp_path):
    study = small(methods={"gradient": {}})
    result = [run_study(study, Counted(), X[:2], tmp_path, minutes=1e-9) for _ in range(3)]
    assert [(each.done, each.total, each.finished) for each in result] == [(1, 3, False), (2, 3, False), (3, 3, True)]
    assert (tmp_path / "curves.png").is_file()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"study": {"epsilons": (1.0,)}}, "study.epsilons"),
        ({"study": {"budget": 40}}, "study.budget"),
        ({"study": {"seed": 1}}, "study.seed"),
        ({"study": {"methods": {"gradient": {}}}}, "study.methods.smoothgrad"),
        ({"study": {"attacks": {"topk": {"steps": 3}}}}, "study.attacks.topk.steps"),
        ({"model": Counted(seed=5)}, "model.weights"),
        ({"x": X + 0.1}, "images.digest"),
        ({"x": X[:2]}, "images.count"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_configuration_is_refused_and_nothing_is_touched(finished, changed, words):
    before = {path.name: path.read_bytes() for path in finished[0].iterdir()}
    with pytest.raises(ValueError, match="must be resumed with the configuration it began with") as error:
        run_study(small(**changed.get("study", {})), changed.get("model", Counted()), changed.get("x", X), finished[0])
    assert f"got {words} = " in str(error.value)
    assert {path.name: path.read_bytes() for path in finished[0].iterdir()} == before


@pytest.mark.usefixtures("_undrawn")
def test_a_study_of_an_earlier_version_is_resumed_though_an_option_was_renamed(tmp_path):
    study = small(methods={"gradient": {"hessian_step": 0.5}})
    run_study(study, Counted(), X[:2], tmp_path, minutes=1e-9)
    file = tmp_path / "study.json"
    file.write_text(file.read_text().replace("hessian_step", "apart"))
    assert run_study(study, Counted(), X[:2], tmp_path).finished


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("mine,yours\n1,2\n")
    with pytest.raises(ValueError, match=r"with rows.csv but without study.json"):
        run_study(small(), Counted(), X, tmp_path)
    (tmp_path / "study.json").write_text("[]")
    with pytest.raises(ValueError, match="must describe a study"):
        run_study(small(), Counted(), X, tmp_path)
    (tmp_path / "study.json").write_text("[" * 10**5)
    with pytest.raises(ValueError, match="must describe a study"):
        run_study(small(), Counted(), X, tmp_path)
    assert (tmp_path / "rows.csv").read_text() == "mine,yours\n1,2\n"
    (tmp_path / "other" / "rows.csv").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match="got a folder"):
        run_study(small(), Counted(), X, tmp_path / "other")


def test_study_json_says_how_it_was_made(finished):
    found = json.loads((finished[0] / "study.json").read_text())
    assert found["configuration"]["study"]["methods"]["sparse"] == SPARSE
    (run,) = found["runs"]
    assert run["versions"]["torch"] == version("torch")
    assert run["device"].startswith("cpu")
    assert run["methods"]["sparse"]["rho"] == mg.SparseMoreauGrad(None).rho  # a default, which the study leaves out
    assert run["methods"]["sparse"]["budget"] == small().budget
    assert found["configuration"]["device"] == "cpu"


@pytest.mark.parametrize("value", [None, 0, 7, -3, 0.1, 1 / 3, 1e-300, math.inf, "007", "1e3", "tench, left", 'a "b"'])
def test_cells_of_a_table_come_back_as_they_were(value):
    assert parse_value(format_value(value)) == value
    assert format_value(parse_value(format_value(value))) == format_value(value)


# what is refused, and when


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilons": (1.0, 0.0)}, "epsilon must be a positive finite number"),
        ({"epsilons": (-1.0,)}, "epsilon must be a positive finite number"),
        ({"epsilons": (math.inf,)}, "epsilon must be a positive finite number"),
        ({"epsilons": ()}, "epsilons must be a list of at least one"),
        ({"epsilons": (1.0, 1.0)}, "epsilons must differ"),
        ({"norm": "l1"}, "norm must be one of"),
        ({"metrics": ("simm",)}, "Did you mean 'ssim'"),
        ({"metrics": ("gini",)}, "metrics must compare two maps"),
        ({"attacks": {"topq": {}}}, "Did you mean 'topk'"),
        ({"attacks": {"topk": {"k": 0}}}, "k must be at least 1 entry"),
        ({"attacks": {"topk": {"kk": 1}}}, "an option of topk must be one of"),
        ({"methods": {"gradiant": {}}}, "Did you mean 'gradient'"),
        ({"methods": {"gradient": {"rho": 1}}}, "an option of gradient must be one of"),
        ({"methods": {"sparse_moreau": {"budget": 8}}}, "budget must be the same for all"),
        ({"methods": {"gradient": {}, "deeplift": {}}}, "cannot be differentiated, so this attack cannot be led"),
        ({"methods": {"sparse_moreau": {"sparsity": [0.1, 0.2]}}}, "got a list of eta or sparsity"),
        ({"modes": ("implicit", "exakt")}, "derivative must be one of"),
        ({"modes": ("implicit:3",)}, "NAME:STEPSxSAMPLES"),
        ({"budget": 0}, "budget must be at least 1"),
        ({"attack_budget": 4}, "budget must be at least samples"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"epsilons": 1.0}, "epsilons must be a tuple"),
        ({"epsilons": [[1.0], [2.0]]}, "epsilon must be a number"),
        ({"metrics": None}, "metrics must be a tuple"),
        ({"metrics": "ssim"}, "metrics must be a tuple"),
        ({"metrics": (1,)}, "metrics must be names"),
        ({"modes": (0.1,)}, "a mode must be a name"),
        ({"methods": ["gradient"]}, "methods must be a dict"),
        ({"methods": {"gradient": None}}, "dicts of options by name"),
        ({"attacks": {1: {}}}, "dicts of options by name"),
    ],
    ids=str,
)
def test_bad_terms_are_refused_before_any_work(tmp_path, changes, words):
    model = Counted()
    with pytest.raises((ValueError, TypeError), match=words):
        run_study(small(**changes), model, X, tmp_path / "out")
    assert model.calls == 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"study": 0.0}, r"study must be a mg\.Study"),
        ({"out": None}, "out must be a path"),
        ({"out": ""}, "out must be the name"),
        ({"minutes": -1}, "minutes must be a positive"),
        ({"watch": 3}, "watch must be a function"),
        ({"name": 3}, "name must be a text"),
        ({"command": b"x"}, "command must be a text"),
    ],
    ids=str,
)
def test_a_study_begins_with_what_it_needs(tmp_path, changes, words):
    model = Counted()
    given = {"study": small(), "model": model, "images": X, "out": tmp_path / "out"} | changes
    with pytest.raises((ValueError, TypeError), match=words):
        run_study(**given)
    assert model.calls == 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("names", [True, 1e-8, "ab", {"a", "b"}])
def test_names_of_images_are_a_list(names):
    with pytest.raises(TypeError, match="names must be a list with one name per image"):
        TensorSource(X[:2], names)


def test_maps_too_small_for_a_metric_are_refused_before_any_work(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    with pytest.raises(ValueError, match="11"):
        run_study(small(methods={"gradient": {}}), model, torch.zeros(1, 1, 8, 8), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("_undrawn")
def test_a_study_prepares_the_network_once(tmp_path, monkeypatch):
    folds = []
    fold = surgery.fold_batch_norms
    monkeypatch.setattr(surgery, "fold_batch_norms", lambda *args: folds.append(args) or fold(*args))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Softplus(), nn.Flatten(), nn.Linear(400, 3))
    assert run_study(small(), model.eval().requires_grad_(False), X, tmp_path).finished
    assert len(folds) == 1


# terms


def test_noises_of_attack_and_judges_never_meet():
    one = BudgetedMethod("smoothgrad", 64, 16, seed=10)
    model = Counted()
    seeds = [one.make_attacked(model).seed, one.make_judge(model).seed, one.make_judge(model, second=True).seed]
    seeds.append(make_attack("topk", one.make_attacked(model), 1.0, "l2", 10, {}).seed)
    assert seeds == [10, 11, 12, 13]
    assert (one.make_attacked(model).smoothing.samples, one.make_judge(model).smoothing.samples) == (16, 64)
    smoothing = mg.Smoothing(sigma=0.3)
    own = BudgetedMethod("smoothgrad", 64, 16, options={"smoothing": smoothing}).make_judge(model).smoothing
    assert (own.sigma, own.samples) == (0.3, 64)
    assert BudgetedMethod("moreau", 64, 16).make_attacked(model, "unrolled:3x8").slope == mg.Unrolled(3, 8)


def test_a_method_is_attacked_along_every_derivative_it_has():
    study = Study({"gradient": {}, "moreau": {}}, {"topk": {}, "noise": {}}, epsilons=(1, 2))
    assert study.modes_of("gradient", "topk") == ("exact",)
    assert study.modes_of("moreau", "topk") == ("frozen", "unrolled", "implicit")
    assert study.modes_of("moreau", "noise") == ("none",)
    assert len([cell for cell in study.cells() if cell.method == "moreau"]) == 1 + 2 * 4 + 2 * 2


def test_options_find_their_owner():
    methods, attacks = ["gradient", "moreau", "sparse_moreau"], ["topk"]
    given = {"rho": 2.0, "k": 0.1, "sparse_moreau.eta": 0.3, "topk.beta": 9.0}
    mine, theirs = assign_options(given, methods, attacks)
    assert mine == {"gradient": {}, "moreau": {"rho": 2.0}, "sparse_moreau": {"rho": 2.0, "eta": 0.3}}
    assert theirs == {"topk": {"k": 0.1, "beta": 9.0}}
    for wrong in ("rhoo", "gradient.rho", "nobody.rho"):
        with pytest.raises(ValueError, match="an option of gradient, moreau, sparse_moreau, topk must be one of"):
            assign_options({wrong: 1}, methods, attacks)


@pytest.mark.usefixtures("_undrawn")
def test_images_are_loaded_block_by_block(tmp_path):
    asked = []

    class Watched(TensorSource):
        def load(self, some):
            asked.append(some.stop - some.start)
            return super().load(some)

    run_study(small(methods={"gradient": {}}), Counted(), Watched(X), tmp_path)
    assert max(asked) == 2


def test_a_plain_function_can_be_studied_and_the_watcher_sees_it_all(tmp_path):
    model, steps = Counted().forward, []
    study = small(methods={"gradient": {}}, metrics=("ssim",))
    result = run_study(study, model, X[:2], tmp_path, watch=lambda step, total, info: steps.append((step, total)))
    assert result.finished
    assert [step for step, _ in steps] == sorted(step for step, _ in steps)
    assert {total for _, total in steps} == {300}
    assert study.metrics == ("normalised_distance", "ssim")
    assert Path(tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")

"""Measures the cells of a study: attack, judge, rows. Everything is made, and so checked, before the first call.

Holds one block of images and its clean maps at a time. Writes no file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from moreaugrad.attacks.base import Attack, predict_logits
from moreaugrad.attacks.result import AttackResult
from moreaugrad.methods.base import Method
from moreaugrad.methods.options import describe_options
from moreaugrad.model import STATISTICS
from moreaugrad.model.prepared import prepare
from moreaugrad.studies.plan import EXACT, FLOOR, NO_DERIVATIVE, STRONGEST, TRANSFER, Cell, Study
from moreaugrad.studies.resumable_csv import Row, format_value
from moreaugrad.studies.setup import compare_maps, is_valid, make_attack
from moreaugrad.studies.sources import Source, fingerprint
from moreaugrad.studies.summary import choose_strongest
from moreaugrad.types import Counts, Images, Watch

IDENTITY = ("image", "key", "method", "attack", "norm", "epsilon", "mode")
COLUMNS = (
    *IDENTITY,
    *("valid", "success", "kept", "target", "predicted", "predicted_after", "probability", "probability_after"),
    *("l2", "linf", "pixels_l2", "pixels_linf", "objective_before", "objective"),
)
COSTS = ("attack_gradients", "map_gradients", "winner", "seconds")
ENTRIES = 8 * 3 * 224 * 224  # about so many entries in a block of images
TOGETHER = (8, 64)  # fewest and most images of a block


@dataclass(frozen=True, eq=False)
class Block:
    """Images that are attacked together, and the model's outputs for them."""

    some: slice
    x: Images
    logits: Float[Tensor, "n k"]

    @property
    def predicted(self) -> Int[Tensor, "n"]:
        return self.logits.argmax(1)


class StudyRunner:
    """A study on a model and images, measured cell by cell in the order of the plan."""

    def __init__(self, study: Study, model: Any, source: Source) -> None:
        self.study, self.model, self.source = study, model, source
        ready = prepare(model)  # shared, so that the network is made ready once for all methods
        methods = {label: study.budgeted(label) for label in study.methods}
        self._judges = {label: each.make_judge(ready) for label, each in methods.items()}
        self._seconds = {label: each.make_judge(ready, second=True) for label, each in methods.items()}
        self._scouts = {label: each.make_scout(ready) for label, each in methods.items()}
        self._attacks: dict[Cell, Attack] = {}
        attacked = cache(lambda label, mode: methods[label].make_attacked(ready, mode))
        for cell in study.cells():
            if cell.mode not in (FLOOR, STRONGEST):
                slope = {"slope": cell.mode} if cell.mode in STATISTICS else {}
                own = slope or cell.mode in (EXACT, NO_DERIVATIVE, TRANSFER)
                method = attacked(cell.method, None if own else cell.mode)
                options = {**study.attacks[cell.attack], **slope}
                self._attacks[cell] = make_attack(cell.attack, method, cell.epsilon, study.norm, study.seed, options)
        first = source.load(slice(0, 1))
        nothing = torch.zeros_like(first)
        compare_maps(study.metrics, nothing, nothing)  # a metric that cannot judge such maps says so now
        fewest, most = TOGETHER
        self.together = max(fewest, min(most, ENTRIES // first[0].numel()))
        self._block: Block | None = None
        self._clean: dict[tuple[Any, ...], tuple[Images, Counts]] = {}  # maps of the block
        self._points: dict[Cell, Images] = {}  # of the block, where they are needed again
        part = next(model.parameters(), first) if isinstance(model, nn.Module) else first
        self.device = part.device

    def judge_options(self) -> dict[str, dict[str, Any]]:
        """All options of the judged methods, defaults included."""
        return {label: describe_options(method) for label, method in self._judges.items()}

    def describe(self, name: str | None) -> dict[str, Any]:
        """What must be the same for a folder to be resumed."""
        return {
            "study": self.study.as_json(),
            "model": {"name": name or type(self.model).__name__, "weights": fingerprint(self.model)},
            "images": {"count": len(self.source.keys), "digest": self.source.digest(), "together": self.together},
            "device": self.device.type,
        }

    def plan(self) -> Iterator[tuple[slice, Cell]]:
        """Block by block, so that an unfinished study has all methods on fewer images."""
        for start in range(0, len(self.source.keys), self.together):
            some = slice(start, min(start + self.together, len(self.source.keys)))
            yield from ((some, cell) for cell in self.study.cells())

    def identify_rows(self, some: slice, cell: Cell) -> list[Row]:
        """The columns that tell the rows of a cell from all others."""
        of = {"method": cell.method, "attack": cell.attack, "norm": self.study.norm, "epsilon": cell.epsilon}
        return [
            {"image": number, "key": self.source.keys[number], **of, "mode": cell.mode}
            for number in range(some.start, some.stop)
        ]

    def measure(self, some: slice, cell: Cell, before: Sequence[Row], watch: Watch) -> list[Row]:
        """The rows of a cell; `before` are all rows of the plan up to it."""
        began = time.perf_counter()
        if cell.mode == STRONGEST:
            rows = self._choose_strongest(some, cell, before)
            if self.study.scout is None:
                return rows
            facts = self._judge_winners(some, cell, rows, watch)
        else:
            rows = [row | {"seconds": 0.0} for row in self.identify_rows(some, cell)]
            facts = self._measure_floor(some, cell) if cell.mode == FLOOR else self._measure_attack(some, cell, watch)
        seconds = (time.perf_counter() - began) / len(rows)
        columns = {
            name: each.tolist() if isinstance(each, Tensor) else [each] * len(rows) for name, each in facts.items()
        }
        return [
            row
            | {name: column[place] for name, column in columns.items()}
            | {"seconds": round(row["seconds"] + seconds, 4)}
            for place, row in enumerate(rows)
        ]

    def _choose_strongest(self, some: slice, cell: Cell, before: Sequence[Row]) -> list[Row]:
        """The strongest mode of each image; the rows of its block are the last."""
        block = before[-(some.stop - some.start) * len(list(self.study.cells())) :]
        # as text: a label that looks like a number comes back from the file as one
        of = {name: format_value(getattr(cell, name)) for name in ("method", "attack", "epsilon")}
        mine = [row for row in block if all(format_value(row[name]) == value for name, value in of.items())]
        return [
            choose_strongest([row for row in mine if row["image"] == number], self.study.metrics)
            for number in range(some.start, some.stop)
        ]

    def _judge_winners(self, some: slice, cell: Cell, best: list[Row], watch: Watch) -> dict[str, Any]:
        """The metrics of the judge for the winners that the scout has named."""
        block = self._load_block(some)
        x = block.x.clone()
        for mode in {row["winner"] for row in best}:
            mine = torch.tensor([row["winner"] == mode for row in best], device=x.device)
            x[mine] = self._find_point(block, replace(cell, mode=mode), watch)[mine]
        target = torch.tensor([row["target"] for row in best], device=x.device)
        return self._compare(block, cell.method, x, target)

    def _compare(
        self, block: Block, label: str, x: Images, target: Int[Tensor, "n"], scout: Method | None = None
    ) -> dict[str, Any]:
        """The metrics of the map at x against the clean one, and what it cost: by the scout, or by the judge."""
        clean, _ = self._explain_clean(block, label, target, scout)
        judge = scout or (self._judges if self.study.common_noise else self._seconds)[label]
        found = judge.explain(x, target)
        return {"map_gradients": found.gradients} | compare_maps(self.study.metrics, clean, found.map)

    def _measure_floor(self, some: slice, cell: Cell) -> dict[str, Any]:
        """The clean map against one with other noise: what no attack can be blamed for."""
        block = self._load_block(some)
        clean, cost = self._explain_clean(block, cell.method, block.predicted)
        other = self._seconds[cell.method].explain(block.x, block.predicted).map
        none = dict.fromkeys((*COLUMNS[len(IDENTITY) :], *COSTS))
        return none | {
            "valid": True,
            "kept": True,
            **self._predict(block, block.x, block.predicted),
            **dict.fromkeys(("l2", "linf"), 0.0),
            "attack_gradients": 0,
            "map_gradients": cost,
            **compare_maps(self.study.metrics, clean, other),
        }

    def _measure_attack(self, some: slice, cell: Cell, watch: Watch) -> dict[str, Any]:
        block = self._load_block(some)
        found = self._attack(block, cell, watch)
        fields = ("success", "kept", "l2", "linf", "pixels_l2", "pixels_linf", "objective")
        return {
            **{name: getattr(found, name) for name in fields},
            "objective_before": found.trace[0],
            "valid": is_valid(cell.attack, found),
            **self._predict(block, found.x, found.target),
            "attack_gradients": found.gradients,
            "winner": None,
            **self._compare(block, cell.method, found.x, found.target, self._scouts[cell.method]),
        }

    def _attack(self, block: Block, cell: Cell, watch: Watch) -> AttackResult:
        """Run the attack of a cell, or try the points of others."""
        attack: Any = self._attacks[cell]
        found: AttackResult
        if cell.mode == TRANSFER:
            sources = self.study.transfer_sources(cell)
            found = attack.transfer(block.x, [self._find_point(block, each, watch) for each in sources])
        else:
            found = attack.perturb(block.x, callback=watch)
        if self.study.transfers or self.study.scout is not None:
            self._points[cell] = found.x
        return found

    def _find_point(self, block: Block, cell: Cell, watch: Watch) -> Images:
        """Where the attack of another cell ended; an attack that an earlier run made is run again."""
        if cell not in self._points:
            self._points[cell] = self._attack(block, cell, watch).x
        return self._points[cell]

    def _predict(self, block: Block, after: Images, target: Int[Tensor, "n"]) -> dict[str, Tensor]:
        """Predictions for the images and for the attacked ones; probabilities are those of the target."""
        logits = predict_logits(self.model, after)
        chances = [each.double().softmax(1).gather(1, target[:, None]).squeeze(1) for each in (block.logits, logits)]
        return {
            "target": target,
            "predicted": block.predicted,
            "predicted_after": logits.argmax(1),
            "probability": chances[0],
            "probability_after": chances[1],
        }

    def _load_block(self, some: slice) -> Block:
        if self._block is None or self._block.some != some:
            x = self.source.load(some).to(self.device).contiguous()
            self._points.clear()
            self._clean.clear()
            self._block = Block(some, x, predict_logits(self.model, x))
        return self._block

    def _explain_clean(
        self, block: Block, label: str, target: Int[Tensor, "n"], scout: Method | None = None
    ) -> tuple[Images, Counts]:
        """Clean maps by the judge or the scout, kept from cell to cell."""
        key = (label, scout is None, tuple(target.tolist()))
        if key not in self._clean:
            found = (scout or self._judges[label]).explain(block.x, target)
            self._clean[key] = (found.map, found.gradients)
        return self._clean[key]

"""How a mask network is trained: the numbers of both phases, and their checks."""

from __future__ import annotations

from dataclasses import dataclass

from moreaugrad import validate
from moreaugrad.methods.mask_network.loss import LOSSES

PHASES = ("selector", "decoder")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Adam in two phases: first the class selector, then, with it fixed, the decoder. Half a cosine down in each."""

    loss: str = "paper"  # or code
    steps_selector: int = 2000
    steps_decoder: int = 3000
    batch: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-4
    fake_selector: float = 0.5  # share of images asked for a class that they do not show
    fake_decoder: float = 0.3
    width: int = 32  # channels of the decoder at its finest resolution
    seed: int = 0
    log_every: int = 50  # steps per line of the log; a checkpoint lies between two lines

    def __post_init__(self) -> None:
        validate.one_of("loss", self.loss, LOSSES)
        for name in ("steps_selector", "steps_decoder", "batch", "width", "log_every"):
            validate.at_least(name, getattr(self, name), 1)
        validate.positive("lr", self.lr)
        validate.at_least("seed", self.seed, 0)

    def steps(self, phase: str) -> int:
        return self.steps_selector if phase == "selector" else self.steps_decoder

"""One photo: Sparse MoreauGrad and the gradient methods before and after the same kind of attack."""

from __future__ import annotations

from paper.figures.attack_pairs import AttackFigure

METHODS = ("gradient", "integrated_gradients", "smoothgrad", "sparse_moreau")
TITLE = "Gradient maps and Sparse MoreauGrad before and after an attack"
make = AttackFigure("intro", METHODS, TITLE, side=300, single=True).make

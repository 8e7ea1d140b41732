"""The methods before and after the L2 top-k attack of the paper."""

from __future__ import annotations

from paper.figures.attack_pairs import METHODS, AttackFigure

make = AttackFigure("attack", METHODS, "Maps before and after the top-k attack", side=192).make

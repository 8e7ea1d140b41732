"""Rows of the frontier -> its curves, the goal line by line, and which attack won. Runs no model."""

COLUMNS = GOAL = ATTACKS = ("dataset",)


def summarise(rows): return []
def compare(rows): return []
def rank_attacks(rows): return []

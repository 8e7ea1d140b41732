"""Checks of the shares of entries that a sparse map keeps."""

from __future__ import annotations

from moreaugrad.validate import number


def shares(tau: float, gamma: float, ordered: bool) -> None:
    """The share that is kept, and the share of it that is made 1."""
    number("tau", tau)
    number("gamma", gamma)
    if not 0 < tau <= 1:
        raise ValueError(f"tau must be in (0, 1], the share of entries to keep, got {tau!r}; 0.1 is the usual choice")
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], the share of entries made 1, got {gamma!r}; 0.01 is usual")
    if ordered and gamma > tau:
        raise ValueError(
            f"gamma must not exceed tau, for only kept entries are made 1, got gamma={gamma} and tau={tau}; "
            "lower gamma or raise tau"
        )


def kept_something(keep: int, tau: float, entries: int) -> None:
    if keep < 1:
        raise ValueError(
            f"tau must keep at least one entry, got tau={tau} of {entries} entries; take tau={1 / entries:.2g} or more"
        )

"""Maps without pixels: rows of a table as bars, tokens in colour, signals along the time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import FigureBase
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from moreaugrad.plotting.pictures import Array, Panel, ScaledMap, make_tiles

_WIDE = 9.0  # inches
_COLOURS = {False: "Reds", True: "RdBu_r"}  # by signed; zero is white, so that dark text can be read
_MOST_BARS = 30
_MOST_STEPS = 1000  # about the pixels of an axis
_LETTERS = 92  # in a line of tokens
_ABOVE, _BELOW = "tab:red", "tab:blue"


def make_steps(drawn: ScaledMap) -> Panel:
    """A row (D) without names: one step per position."""

    def draw(place: FigureBase) -> None:
        axes = place.subplots()
        _draw_steps(axes, drawn.values, np.arange(drawn.values.size + 1) - 0.5)
        axes.set(xlabel="position", ylabel=drawn.name)

    return Panel(_WIDE, 2.7, draw)


def make_bars(drawn: ScaledMap, names: Sequence[str], row: Array | None = None) -> Panel:
    """A row (D) with names: a bar each, the largest of many. `row`: the values that are explained."""
    values = drawn.values
    order, note = list(range(values.size)), ""
    if values.size > _MOST_BARS:
        order = np.argsort(-np.abs(values), kind="stable")[:_MOST_BARS].tolist()
        note = f"the {_MOST_BARS} largest of {values.size}"
    texts = [names[i] if row is None else f"{names[i]} = {row[i]:.4g}" for i in order]

    def draw(place: FigureBase) -> None:
        axes = place.subplots()
        colours = [_ABOVE if value > 0 else _BELOW for value in values[order]]
        axes.barh(range(len(order)), values[order], color=colours)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(order)), texts)
        for text in axes.get_yticklabels():
            text.set_parse_math(False)  # a dollar sign in a name is no formula
        axes.invert_yaxis()
        axes.set(xlabel=drawn.name)
        axes.set_title(note, fontsize=10, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)

    return Panel(_WIDE, 0.8 + 0.24 * len(order), draw)


def make_tokens(drawn: ScaledMap, words: Sequence[str]) -> Panel:
    """Words in reading order on the colour of their value; in a notebook as text that can be selected."""
    shown = [word.replace("\n", "\N{DOWNWARDS ARROW WITH TIP LEFTWARDS}") or " " for word in words]
    scale = (1 + drawn.heat) / 2 if drawn.signed else drawn.heat
    colours = [to_hex(each) for each in colormaps[_COLOURS[drawn.signed]](0.85 * scale if not drawn.signed else scale)]
    places, lines = _break_lines(shown)

    def draw(place: FigureBase) -> None:
        (axes,) = make_tiles(place, 1, 1)
        for (line, start), word, colour in zip(places, shown, colours, strict=True):
            axes.add_patch(Rectangle((start, line + 0.12), len(word) + 0.6, 0.76, facecolor=colour))
            middle = start + len(word) / 2 + 0.3
            text = axes.text(middle, line + 0.5, word, ha="center", va="center", color=_ink(colour), parse_math=False)
            text.set(family="monospace", fontsize=10)
        axes.set(xlim=(0, _LETTERS + 2), ylim=(lines, 0))

    spans = (
        f'<span title="{value:.4g}" style="background:{colour};color:{_ink(colour)};padding:2px 3px;'
        f'border-radius:3px;line-height:2">{escape(word)}</span>'
        for word, value, colour in zip(shown, drawn.values, colours, strict=True)
    )
    return Panel(_WIDE, 0.2 + 0.32 * lines, draw, html=f'<div style="font-family:monospace">{" ".join(spans)}</div>')


def make_signal(drawn: ScaledMap, signal: Array | None = None) -> Panel:
    """A map (T) along the time axis, below the signal (C, T) on the colour of the map."""
    length = drawn.values.size
    peaks = _pool(drawn.values)
    edges = np.linspace(-0.5, length - 0.5, peaks.size + 1)
    colours = replace(drawn, values=peaks)

    def draw(place: FigureBase) -> None:
        count = 1 if signal is None else 2
        *upper, lower = place.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
        _draw_steps(lower, peaks, edges)
        lower.set(xlabel="sample", ylabel=drawn.name)
        if signal is not None:
            _draw_wave(upper[0], signal, colours)

    return Panel(_WIDE, 2.7 if signal is None else 4.2, draw)


def _draw_wave(axes: Axes, signal: Array, colours: ScaledMap) -> None:
    low, high = float(signal.min()), float(signal.max())
    margin = 0.05 * (high - low) or 1.0
    length = signal.shape[-1]
    extent = (-0.5, length - 0.5, low - margin, high + margin)
    limits = (-1, 1) if colours.signed else (0, 1)
    name = _COLOURS[colours.signed]
    axes.imshow(colours.heat[None], cmap=name, aspect="auto", extent=extent, vmin=limits[0], vmax=limits[1])
    lines = signal if len(signal) <= 4 else signal.mean(0, keepdims=True)
    for line in lines:
        axes.plot(line, color="black", linewidth=0.7)
    axes.set(ylabel="input" if len(lines) == len(signal) else f"mean of {len(signal)} channels")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_steps(axes: Axes, values: Array, edges: NDArray[Any]) -> None:
    for part, colour in ((values.clip(min=0), _ABOVE), (values.clip(max=0), _BELOW)):
        axes.stairs(part, edges, fill=True, color=colour)  # one patch, however many bars
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlim=(edges[0], edges[-1]))
    axes.spines[["top", "right"]].set_visible(False)


def _pool(values: Array) -> Array:
    """The largest value of each short stretch: a single sample of a long signal must not be averaged away."""
    stretches = np.array_split(values, min(values.size, _MOST_STEPS))
    return np.array([stretch[np.abs(stretch).argmax()] for stretch in stretches])


def _break_lines(words: Sequence[str]) -> tuple[list[tuple[int, float]], int]:
    """Line and column of each word, and the number of lines."""
    places: list[tuple[int, float]] = []
    line, column = 0, 0.0
    for word in words:
        if column and column + len(word) > _LETTERS:
            line, column = line + 1, 0.0
        places.append((line, column))
        column += len(word) + 1.2
    return places, line + 1


def _ink(background: str) -> str:
    """Black or white, whichever can be read on a colour."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#ffffff"

"""SSTQ at a glance: a vector before and after its representation, both codebooks, and the two channels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import sstq
from sstq.frames.kashin import represent
from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

DIM = 200
EPSILON = 3.0
BITS = 4


def draw_glance(path: str | os.PathLike[str]) -> None:
    """Draw the four steps of a message for d = 200, ε = 3 and b = 4, all from the implemented mechanisms."""
    figure = new_figure(11.6, 6.6)
    grid = figure.add_gridspec(2, 12)
    vector = 0.03 * np.random.default_rng(0).standard_normal(DIM)
    vector[[20, 90, 150]] = 0.8, -0.5, 0.33
    vector /= np.linalg.norm(vector)
    flat = sstq.SSTQ(DIM, EPSILON, bits=BITS)
    uniform = sstq.SSTQ(DIM, EPSILON, bits=BITS, codebook="uniform")
    metric = sstq.SSTQ(DIM, EPSILON, bits=BITS, channel="metric-aware")
    coefficients, _ = represent(
        flat.frame, flat.kashin, vector[None].astype(np.float32)
    )
    bound = flat.kashin.level / flat.frame.size**0.5
    _draw_coordinates(figure.add_subplot(grid[0, :5]), vector)
    _draw_coefficients(
        figure.add_subplot(grid[0, 5:]),
        coefficients[0] * bound,
        bound,
        seen=int(np.argmin(np.abs(coefficients[0] - 0.6))),
    )
    _draw_codebooks(
        figure.add_subplot(grid[1, :5]), uniform.codebook.values, flat.codebook.values
    )
    _draw_channel(
        figure.add_subplot(grid[1, 5:8]), flat, "4a. Flat: itself, or any other"
    )
    _draw_channel(
        figure.add_subplot(grid[1, 8:]), metric, "4b. Metric-aware: near ones"
    )
    save(figure, path)


def _draw_coordinates(axes: Any, vector: Any) -> None:
    axes.stem(np.arange(len(vector)), vector, linefmt=INK, markerfmt=" ", basefmt=" ")
    axes.set(xlabel="coordinate", ylim=(-1.05, 1.05))
    _title(axes, f"A vector, d = {len(vector)}: three large entries")


def _draw_coefficients(axes: Any, values: Any, bound: float, seen: int) -> None:
    axes.plot(np.arange(len(values)), values, ".", color=SECOND, markersize=3)
    axes.plot(
        [seen],
        values[seen],
        "o",
        color=ACCENT,
        markersize=9,
        markerfacecolor="none",
        markeredgewidth=2,
    )
    for sign in (-1, 1):
        axes.axhline(sign * bound, color=FAINT, linestyle="--", linewidth=1.2)
    axes.annotate(
        "±B",
        (len(values), bound),
        (-14, 4),
        textcoords="offset points",
        color=FAINT,
        annotation_clip=False,
    )
    axes.set(
        xlabel=f"one of N = {len(values)} coefficients",
        ylim=(-1.6 * bound, 1.6 * bound),
    )
    _title(axes, "1. Spread it evenly, none beyond ±B   2. Take one at random (red)")


def _draw_codebooks(axes: Any, uniform: Any, optimized: Any) -> None:
    for height, values, name, colour in (
        (1, uniform, "uniform", "#a06cd5"),
        (0, optimized, "optimized", "#5b2a86"),
    ):
        axes.plot(
            values,
            np.full(len(values), height),
            "|",
            color=colour,
            markersize=34,
            markeredgewidth=2,
        )
        axes.text(0, height + 0.3, name, ha="center", fontsize=9, color=colour)
    axes.set(yticks=[], ylim=(-0.5, 1.6), xlabel="codewords, in units of B")
    _title(axes, f"3. Round it to one of 2ᵇ = {len(uniform)} codewords, at random")
    axes.spines["left"].set_visible(False)


def _draw_channel(axes: Any, mechanism: sstq.SSTQ, title: str) -> None:
    weights = np.asarray(mechanism.channel.matrix, dtype=np.float64) / 2.0**62
    axes.imshow(weights, cmap="Purples", vmin=0, vmax=weights.max())
    note = f"code sent (dark: probability {weights.max():.2f}); spends ε = {mechanism.privacy_loss():g}"
    axes.set(ylabel="codeword", xticks=[0, 15], yticks=[0, 15])
    axes.set_xlabel(note, fontsize=9)
    _title(axes, title)


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, fontsize=10, color=INK, loc="left")
    tidy(axes)

"""Draws a channel: its probabilities and the decoded value of each code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from sstq.plots.canvas import ACCENT, FAINT, INK, new_figure, save, tidy

if TYPE_CHECKING:
    from sstq.mechanisms import SSTQ

# Up to this many codes every number of a channel is written into its cell, and every code gets a tick.
_FEW, _SOME = 8, 16


def draw_channel(mechanism: SSTQ, path: str | os.PathLike[str]) -> None:
    """Draw the transition probabilities of a mechanism's channel and its decoding values to a .png, .svg or .pdf."""
    figure = new_figure(9.6, 4.6, layout="constrained")
    heat, decoding = figure.subplots(1, 2, width_ratios=(1.2, 1.0))
    _draw_probabilities(figure, heat, mechanism)
    _draw_decoding(decoding, mechanism)
    kind = f"{mechanism.channel.name} channel with {mechanism.channel.outputs} codes"
    privacy = f"nominal ε = {mechanism.epsilon:g}, spends {mechanism.privacy_loss():.10g}"
    figure.suptitle(f"{kind}, {privacy}", fontsize=12, color=INK)
    save(figure, path)


def _draw_probabilities(figure: Any, axes: Any, mechanism: SSTQ) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    probabilities, used = mechanism.channel.probabilities(), mechanism.channel.used
    tokens, codes = probabilities.shape
    shades = LogNorm(vmin=probabilities[:, used].min(), vmax=probabilities.max())
    picture = axes.imshow(np.ma.masked_less_equal(probabilities, 0), cmap="magma", norm=shades, interpolation="nearest")
    axes.set(xlabel="code sent", ylabel="token of the coordinate")
    axes.set_title("Probability of a code given the token", color=INK, fontsize=10.5)
    if codes <= _SOME:
        axes.set_xticks(range(codes))
    if tokens <= _SOME:
        axes.set_yticks(range(tokens))
    if max(tokens, codes) <= _FEW:
        for (token, code), value in np.ndenumerate(probabilities):
            if used[code]:
                colour = "white" if shades(value) < 0.6 else "black"
                axes.text(code, token, f"{value:.3f}", ha="center", va="center", fontsize=8, color=colour)
    axis = figure.colorbar(picture, ax=axes, shrink=0.85).ax.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def _draw_decoding(axes: Any, mechanism: SSTQ) -> None:
    used, values = mechanism.channel.used, mechanism.decoding_values
    size, width = len(used), max(2.0, 14 - len(used) / 8)
    axes.axhline(0, color=FAINT, linewidth=0.6)
    # There may be more or fewer tokens than codes: they are spread over the same width.
    places = np.linspace(0, size - 1, len(mechanism.codebook.values))
    axes.plot(places, mechanism.codebook.values, "_", color=INK, markersize=width, label="codeword")
    axes.plot(np.flatnonzero(used), values[used], "o", color=ACCENT, markersize=width / 2, label="decoded")
    axes.set(xlabel="code", ylabel="in units of the bound B")
    axes.set_title("Decoded value of each code", color=INK, fontsize=10.5)
    axes.legend(frameon=False, loc="upper left")
    if size <= _SOME:
        axes.set_xticks(range(size))
    tidy(axes)

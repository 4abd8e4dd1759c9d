"""Pictures: a channel, mechanisms side by side, and the digits of the demo. Needs the [plots] extra."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sstq.atomic import atomic_file

if TYPE_CHECKING:
    from sstq.comparison import Comparison
    from sstq.demo import Demo
    from sstq.schemes import SSTQ

__all__ = ["draw_channel", "draw_comparison", "draw_digits"]

_INK = "#222222"
_FAINT = "#777777"
_ACCENT = "#b3400f"

# Up to this many codes every number of a channel is written into its cell, and every code gets a tick.
_FEW, _SOME = 8, 16

# Names beside marks: the height of a line and the width of a letter, as fractions of the axes.
_LINE_HEIGHT, _LETTER_WIDTH = 0.024, 0.0068
_ROUNDING, _FAR_BEYOND = 1e-12, 1e3


def draw_channel(mechanism: SSTQ, path: str | os.PathLike[str]) -> None:
    """Draw the transition probabilities of a mechanism's channel and its decoding values to a .png, .svg or .pdf."""
    figure = _figure(9.6, 4.6, layout="constrained")
    heat, decoding = figure.subplots(1, 2, width_ratios=(1.2, 1.0))
    _draw_probabilities(figure, heat, mechanism)
    _draw_decoding(decoding, mechanism)
    figure.suptitle(
        f"{mechanism.channel.name} channel with {mechanism.channel.outputs} codes, made for ε = {mechanism.epsilon:g}: "
        f"spends {mechanism.privacy_loss():.10g}",
        fontsize=12,
        color=_INK,
    )
    _save(figure, path)


def _draw_probabilities(figure: Any, axes: Any, mechanism: SSTQ) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    probabilities = mechanism.channel.probabilities()
    used = mechanism.channel.used
    size = len(probabilities)
    shades = LogNorm(vmin=probabilities[:, used].min(), vmax=probabilities.max())
    shown = np.ma.masked_less_equal(probabilities, 0)
    picture = axes.imshow(shown, cmap="magma", norm=shades, interpolation="nearest")
    axes.set_xlabel("code sent")
    axes.set_ylabel("token of the coordinate")
    axes.set_title("Probability of a code given the token", color=_INK, fontsize=10.5)
    if size <= _SOME:
        axes.set_xticks(range(size))
        axes.set_yticks(range(size))
    if size <= _FEW:
        for token, code in np.ndindex(probabilities.shape):
            if used[code]:
                colour = "white" if shades(probabilities[token, code]) < 0.6 else "black"
                text = f"{probabilities[token, code]:.3f}"
                axes.text(code, token, text, ha="center", va="center", fontsize=8, color=colour)
    bar = figure.colorbar(picture, ax=axes, shrink=0.85)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def _draw_decoding(axes: Any, mechanism: SSTQ) -> None:
    used = mechanism.channel.used
    size = len(used)
    width = max(2.0, 14 - size / 8)
    axes.axhline(0, color=_FAINT, linewidth=0.6)
    axes.plot(range(size), mechanism.codebook.values, "_", color=_INK, markersize=width, label="codeword")
    axes.plot(
        np.arange(size)[used], mechanism.decoder.values[used], "o", color=_ACCENT, markersize=width / 2, label="decoded"
    )
    axes.set_xlabel("code")
    axes.set_ylabel("in units of the bound B")
    axes.set_title("What a code stands for", color=_INK, fontsize=10.5)
    axes.legend(frameon=False, loc="upper left")
    if size <= _SOME:
        axes.set_xticks(range(size))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw_comparison(
    rows: Sequence[Comparison], path: str | os.PathLike[str], *, dim: int, epsilon: float, clients: int
) -> None:
    """Draw the error of the mean against the bits of a message, one mark a mechanism.

    A mechanism whose error is far beyond the others' is drawn at the upper edge with its error beside it.
    """
    figure = _figure(10.8, 6.6, layout="constrained")
    axes = figure.subplots()
    # No error but the rounding of single precision (Clean) has no place on a logarithmic axis.
    drawn = [row for row in rows if row.mse > _ROUNDING]
    ceiling = _FAR_BEYOND * min((row.mse for row in drawn if row.trust == "local"), default=drawn[0].mse)
    kinds = {
        ("local", "private"): ("private coin", "o", _ACCENT),
        ("local", "public"): ("public coin", "s", "#1f5fa8"),
        ("aggregator", None): ("trusted aggregator", "^", "#3c7d3c"),
        ("none", None): ("no privacy", "D", _FAINT),
    }
    for (trust, coin), (label, marker, colour) in kinds.items():
        group = [row for row in drawn if row.trust == trust and coin in (None, row.coin)]
        for filled in (True, False):
            part = [row for row in group if row.unbiased == filled]
            axes.plot(
                [row.bits for row in part],
                [min(row.mse, ceiling) for row in part],
                marker,
                color=colour,
                markerfacecolor=colour if filled else "white",
                markersize=7,
                label=label + ("" if filled else ", biased") if part else None,
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(0.8, 30 * max(row.bits for row in drawn))
    axes.set_xlabel("bits a client sends")
    axes.set_ylabel(f"mean squared error of the mean of {clients:,}")
    axes.set_title(f"d = {dim:,}, ε = {epsilon:g}, unit vectors", color=_INK, fontsize=12)
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    names = [row.label + (f" ({row.mse:.1e}, beyond)" if row.mse > ceiling else "") for row in drawn]
    _label_marks(axes, [(row.bits, min(row.mse, ceiling), name) for row, name in zip(drawn, names, strict=True)])
    _save(figure, path)


def _label_marks(axes: Any, marks: Sequence[tuple[float, float, str]]) -> None:
    """Write names to the right of the marks, each at the nearest height where it touches no other name and no mark.

    Places are fractions of the (logarithmic) axes, so the limits must be final.
    """
    places = axes.transAxes.inverted().transform(axes.transData.transform([mark[:2] for mark in marks]))
    taken = [(across - 0.006, across + 0.006, up) for across, up in places]
    for (across, up), (bits, error, label) in sorted(zip(places.tolist(), marks, strict=True)):
        left, right = across + 0.02, across + 0.02 + _LETTER_WIDTH * len(label)
        steps = sorted(range(-80, 81), key=abs)
        heights = (up + step * _LINE_HEIGHT / 4 for step in steps)
        height = next((h for h in heights if 0 < h < 1 and not _touches(taken, left, right, h)), up)
        taken.append((left, right, height))
        axes.annotate(
            label,
            (bits, error),
            xytext=(left, height),
            textcoords="axes fraction",
            fontsize=8,
            color=_INK,
            va="center",
            arrowprops={"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.6, "relpos": (0.0, 0.5), "shrinkA": 1},
        )


def _touches(taken: Sequence[tuple[float, float, float]], left: float, right: float, height: float) -> bool:
    return any(abs(height - level) < _LINE_HEIGHT and left < stop and start < right for start, stop, level in taken)


def draw_digits(demo: Demo, path: str | os.PathLike[str]) -> None:
    """Draw the true mean images and every crowd's estimates of them, all on one scale of grey."""
    classes = len(demo.truth)
    blocks = [
        [row for row in demo.rows if row.copies == copies] for copies in sorted({row.copies for row in demo.rows})
    ]
    heights = [0.3, 1.0]
    for block in blocks:
        heights += [0.6] + [1.0] * len(block)
    inches = 0.62
    height = inches * (sum(heights) + 2.0)
    figure = _figure(inches * (classes + 6.2), height)
    grid = figure.add_gridspec(
        len(heights),
        classes + 2,
        width_ratios=[2.6] + [1.0] * classes + [2.9],
        height_ratios=heights,
        wspace=0.06,
        hspace=0.08,
        left=0.01,
        right=0.99,
        top=1 - 0.72 / height,
        bottom=0.36 / height,
    )
    for digit in range(classes):
        _write(figure, grid[0, 1 + digit], str(digit), color=_FAINT)
    _draw_images(figure, grid, 1, demo.truth, "truth", "")
    line = 2
    for block in blocks:
        heading = _heading(block[0].copies, block[0].clients / classes)
        _write(figure, grid[line, :], heading, color=_ACCENT, size=10.5, y=0.3)
        for row in block:
            line += 1
            left = f"ε = {row.epsilon:g}\n{row.message_bits} bits a client"
            right = f"error {row.measured:.1%}\npredicted {row.predicted:.1%}"
            _draw_images(figure, grid, line, row.images, left, right)
        line += 1
    title = "Mean images of ten digits, from one private message a client"
    figure.text(0.5, 1 - 0.26 / height, title, ha="center", va="center", fontsize=14, color=_INK)
    subtitle = "Pure ε-local differential privacy. An image as 64 floats would take 2,048 bits."
    figure.text(0.5, 1 - 0.55 / height, subtitle, ha="center", va="center", fontsize=9.5, color=_FAINT)
    legend = "Black is 0, white is 1, estimates beyond are cut off. Errors are relative to the norm of the true means."
    figure.text(0.5, 0.16 / height, legend, ha="center", va="center", fontsize=8, color=_FAINT)
    _save(figure, path)


def _heading(copies: int, clients_a_class: float) -> str:
    about = f"about {float(f'{clients_a_class:.2g}'):,.0f} clients a digit"
    if copies == 1:
        return f"Each image is one client: {about}"
    return f"{copies} simulated clients hold each image: {about}"


def _draw_images(figure: Any, grid: Any, line: int, images: NDArray[np.float64], left: str, right: str) -> None:
    side = round(images.shape[1] ** 0.5)
    for place, image in enumerate(images):
        axes = figure.add_subplot(grid[line, 1 + place])
        axes.imshow(image.reshape(side, side), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
    _write(figure, grid[line, 0], left, align="right")
    _write(figure, grid[line, -1], right, align="left")


def _write(
    figure: Any, place: Any, text: str, align: str = "center", color: str = _INK, size: float = 9, y: float = 0.5
) -> None:
    axes = figure.add_subplot(place)
    axes.set_axis_off()
    x = {"left": 0.06, "center": 0.5, "right": 0.94}[align]
    axes.text(x, y, text, ha=align, va="center", fontsize=size, color=color, transform=axes.transAxes)


def _figure(width: float, height: float, layout: Literal["constrained"] | None = None) -> Any:
    """Return an empty figure with its own canvas: no window, no global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'sstq[plots]'") from error
    figure = Figure(figsize=(width, height), dpi=160, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    with atomic_file(path) as file:
        figure.savefig(file, format=Path(path).suffix.lower().removeprefix("."))

"""The growth curves as a picture: time above, peak memory below, one column an axis."""

import os
from typing import Any

from benchmarks.growth import AXES, Point, curves, memory_growth, slope
from sstq.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

_STYLES = {
    "FrameUnit": (ACCENT, "o"),
    "SSTQ, certified": (SECOND, "s"),
    "vqSGD": ("#3c7d3c", "^"),
    "PrivUnitG": ("#8b5aa8", "D"),
    "FrameUnit, public coin": (ACCENT, "o"),
    "framed files": (INK, "o"),
    "Parquet": ("#c08a1e", "s"),
}
_FIGURES = (("seconds", "seconds", 1.0), ("peak_bytes", "peak memory, MiB", 2.0**-20))


def draw_growth(points: list[Point], path: str | os.PathLike[str]) -> None:
    """Draw all curves, each with its fitted exponent, to a .png, .svg or .pdf."""
    figure = new_figure(16.5, 7.4, layout="constrained")
    grid = figure.subplots(len(_FIGURES), len(AXES), sharey="row", squeeze=False)
    for row, (attribute, what, unit) in zip(grid, _FIGURES, strict=True):
        for (axis, title), axes in zip(AXES.items(), row, strict=True):
            for (of_axis, label), curve in curves(points).items():
                if of_axis == axis:
                    _draw_curve(axes, label, curve, attribute, unit)
            _finish(axes, axis, title, is_time=attribute == "seconds")
        row[0].set_ylabel(what)
        # Room for the legends above the curves; all axes of a row share their limits.
        shown = [getattr(point, attribute) * unit for point in points]
        row[0].set_ylim(min(shown) / 1.5, max(shown) * (max(shown) / min(shown)) ** 0.5)
    for axes, (axis, _) in zip(grid[-1], AXES.items(), strict=True):
        axes.set_xlabel(axis)
    figure.suptitle(
        "How time and memory grow (~ exponent fitted to the upper half of a curve; × most over least memory)", color=INK
    )
    save(figure, path)


def _draw_curve(axes: Any, label: str, curve: list[Point], attribute: str, unit: float) -> None:
    colour, marker = _STYLES[label]
    shown = sorted(curve, key=lambda point: point.value)
    growth = f"~ {slope(curve, attribute):.2f}" if attribute == "seconds" else f"× {memory_growth(curve):.2f}"
    axes.plot(
        [point.value for point in shown],
        [getattr(point, attribute) * unit for point in shown],
        marker=marker,
        color=colour,
        markersize=5,
        linewidth=1.4,
        label=f"{label}  {growth}",
    )


def _finish(axes: Any, axis: str, title: str, *, is_time: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

    axes.set_xscale("log", base=2 if axis in ("N", "b") else 10)
    axes.set_yscale("log")
    if axis == "b":
        axes.set_xticks([1, 2, 4, 8])
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    if not is_time:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_title(title, color=INK, fontsize=10)
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelcolor=INK)
    tidy(axes)
    axes.legend(frameon=False, fontsize=8, loc="upper left")

"""The digits of the demo: the true mean images and every crowd's estimates of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sstq.plots.canvas import ACCENT, FAINT, INK, new_figure, save

if TYPE_CHECKING:
    from sstq.lab.demo import Demo

__all__ = ["draw_digits"]


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
    figure = new_figure(inches * (classes + 6.2), height)
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
        _write(figure, grid[0, 1 + digit], str(digit), color=FAINT)
    _draw_images(figure, grid, 1, demo.truth, "truth", "")
    line = 2
    for block in blocks:
        heading = _heading(block[0].copies, block[0].clients / classes)
        _write(figure, grid[line, :], heading, color=ACCENT, size=10.5, y=0.3)
        for row in block:
            line += 1
            left = f"ε = {row.epsilon:g}\n{row.message_bits} bits per client"
            right = f"error {row.measured:.1%}\npredicted {row.predicted:.1%}"
            _draw_images(figure, grid, line, row.images, left, right)
        line += 1
    title = "Mean images of ten digits, from one private message per client"
    figure.text(0.5, 1 - 0.26 / height, title, ha="center", va="center", fontsize=14, color=INK)
    subtitle = "Pure ε-local differential privacy. An image as 64 floats would take 2,048 bits."
    figure.text(0.5, 1 - 0.55 / height, subtitle, ha="center", va="center", fontsize=9.5, color=FAINT)
    legend = "Black is 0, white is 1, estimates beyond are cut off. Errors are relative to the norm of the true means."
    figure.text(0.5, 0.16 / height, legend, ha="center", va="center", fontsize=8, color=FAINT)
    save(figure, path)


def _heading(copies: int, clients_a_class: float) -> str:
    about = f"about {float(f'{clients_a_class:.2g}'):,.0f} clients per digit"
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
    figure: Any, place: Any, text: str, align: str = "center", color: str = INK, size: float = 9, y: float = 0.5
) -> None:
    axes = figure.add_subplot(place)
    axes.set_axis_off()
    x = {"left": 0.06, "center": 0.5, "right": 0.94}[align]
    axes.text(x, y, text, ha=align, va="center", fontsize=size, color=color, transform=axes.transAxes)

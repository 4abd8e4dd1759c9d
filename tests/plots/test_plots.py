"""Whatever is written in a picture can be read: no other text, no mark and no arrow lies on it."""

from contextlib import suppress
from itertools import combinations

import pytest
from matplotlib.text import Text

from sstq import plots
from sstq.planning.comparison import all_variants, compare


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, instead of files."""
    figures = []
    monkeypatch.setattr("sstq.plots.comparison.save", lambda figure, path: figures.append(figure))
    return figures


def assert_legible(figure):
    figure.canvas.draw()
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    boxes = {
        text: Text.get_window_extent(text).padded(-1)  # without the arrow of an annotation
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible() and text not in hidden
    }
    overlaps = [
        (one.get_text(), other.get_text()) for one, other in combinations(boxes, 2) if boxes[one].overlaps(boxes[other])
    ]
    assert not overlaps
    arrows = {text: text.arrow_patch for text in boxes if getattr(text, "arrow_patch", None)}
    crossed = [
        (one.get_text(), other.get_text())
        for one, arrow in arrows.items()
        for other in boxes
        if other is not one and arrow.get_path().transformed(arrow.get_transform()).intersects_bbox(boxes[other])
    ]
    assert not crossed
    marks = [
        mark
        for axes in figure.axes
        for line in axes.lines
        if line.get_marker() != "None"
        for mark in line.get_transform().transform(line.get_xydata())
    ]
    assert not [text.get_text() for text, box in boxes.items() if box.count_contains(marks)]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes.values())


def compared(variants, *task):
    for variant in variants:
        with suppress(ValueError):
            yield compare(variant, *task)


@pytest.mark.slow
def test_mechanisms_side_by_side(drawn):
    dim = 1000
    rows = sorted(compared(all_variants(), dim, 3.0, 10_000), key=lambda row: row.mse)
    plots.draw_comparison(rows, "compare.png", dim=dim, epsilon=3.0, clients=10_000)
    assert_legible(drawn[0])

"""Whatever is written in a picture can be read: no other text and no mark lies on it."""

from contextlib import suppress
from itertools import combinations

import pytest
from matplotlib.text import Text

from sstq import plots
from sstq.planning.comparison import all_variants, compare


def assert_legible(figure):
    figure.canvas.draw()
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval())
        <= tick.get_loc()
        <= max(axis.get_view_interval())
    }
    boxes = {
        text: Text.get_window_extent(text).padded(-1)
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible() and text not in hidden
    }
    overlaps = [
        (one.get_text(), other.get_text())
        for one, other in combinations(boxes, 2)
        if boxes[one].overlaps(boxes[other])
    ]
    assert not overlaps
    marks = [
        mark
        for axes in figure.axes
        for line in axes.lines
        if line.get_marker() != "None"
        for mark in line.get_transform().transform(line.get_xydata())
    ]
    assert not [
        text.get_text() for text, box in boxes.items() if box.count_contains(marks)
    ]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes.values())


@pytest.mark.slow
def test_mechanisms_side_by_side():
    rows = []
    for variant in all_variants():
        with suppress(ValueError):
            rows.append(compare(variant, 100, 3.0, 10_000))
    rows.sort(key=lambda row: row.mse)
    assert_legible(plots.draw_comparison(rows, dim=100, epsilon=3.0, clients=10_000))

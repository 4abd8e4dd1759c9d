"""The growth curves: their points, fits and picture."""

import json
from dataclasses import replace

import pytest

from benchmarks import growth, growth_points
from benchmarks.growth import Point, memory_growth, message_plan, plan, slope, summary
from benchmarks.growth_picture import draw_growth


def test_slopes_of_power_laws():
    points = [Point("d", "SSTQ, certified", 10**k, {}, 3e-6 * 10 ** (1.5 * k), 1000.0) for k in range(2, 8)]
    assert slope(points, "seconds") == pytest.approx(1.5)
    assert memory_growth(points) == 1.0
    # What is constant at small sizes is not part of the fit.
    bent = [replace(points[0], seconds=1.0), *points[1:]]
    assert slope(bent, "seconds") == pytest.approx(1.5)


@pytest.mark.parametrize("form", ["sstq", "parquet"])
def test_messages_come_from_shards(form, tmp_path, monkeypatch):
    monkeypatch.setattr(growth_points, "SHARD", 1000)
    task = {"form": form, "messages": 2500, "folder": str(tmp_path)}
    growth_points.measure(task | {"task": "write_shards"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{k}.{form}" for k in range(3)]
    assert growth_points.measure(task | {"task": "aggregate"})["seconds"] > 0


def test_a_process_of_its_own_measures_a_point():
    point = Point("messages", "framed files", 100, {"task": "aggregate", "form": "sstq", "messages": 100})
    measured = growth.measure(point)
    assert measured.seconds > 0
    assert measured.peak_bytes > 10_000_000


@pytest.mark.slow
def test_all_curves_are_drawn_and_summed_up(tmp_path):
    points = [
        replace(point, seconds=1e-4 + 1e-7 * point.value, peak_bytes=2.0**27 + point.value)
        for point in [*plan(quick=False), *message_plan(quick=False)]
    ]
    draw_growth(points, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000
    rows = summary(points)
    assert {row["axis"] for row in rows} == set(growth.AXES)
    by_messages = [row for row in rows if row["axis"] == "messages"]
    assert [row["largest"] for row in by_messages] == [10**8, 10**8]
    assert by_messages[0]["computed_seconds_of_1e9"] == pytest.approx(100, rel=0.01)
    json.dumps(rows)

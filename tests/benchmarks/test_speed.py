"""The growth curves: their points and fits."""

from itertools import pairwise

import pytest

from benchmarks.speed import growth_curves, in_a_process, slope


def test_slopes_of_power_laws():
    sizes = [10**k for k in range(2, 8)]
    seconds = [3e-6 * size**1.5 for size in sizes]
    assert slope(sizes, seconds) == pytest.approx(1.5)
    # What is constant at small sizes is not part of the fit.
    assert slope(sizes, [1.0, *seconds[1:]]) == pytest.approx(1.5)


def test_every_point_of_a_curve_is_larger_than_the_one_before():
    for _, sizes, points in growth_curves():
        assert len(sizes) == len(points) >= 4
        assert all(before < after for before, after in pairwise(sizes))


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        {"form": "sstq", "messages": 2500},
        pytest.param({"form": "parquet", "messages": 2500}, marks=pytest.mark.soak),
        {"mechanism": "frameunit", "clients": 1001},
    ],
)
def test_a_process_of_its_own_measures_a_point(point):
    seconds, peak = in_a_process(point)
    assert seconds > 0
    assert peak > 10_000_000

"""Searches end on the safe side of the edge, at a value that was tried."""

import pytest

from sstq.accounting.bounds import furthest, greatest_count


def test_the_furthest_number_fits_in_both_directions():
    below, above = furthest(lambda x: x * x <= 2, 0.0, 2.0), furthest(lambda x: x * x >= 2, 2.0, 0.0)
    assert below**2 <= 2 <= above**2
    assert below == pytest.approx(above, rel=3e-12)
    assert furthest(lambda _: True, 0.0, 5.0) == 5.0
    assert furthest(lambda x: x == 3.0, 3.0, 5.0) == 3.0


@pytest.mark.parametrize("edge", [0, 1, 2, 7, 31, 32, 99, 100])
@pytest.mark.parametrize("low", [0, 1, 31])
def test_the_greatest_count_is_found_wherever_it_is(edge, low):
    tried = []

    def fits(count):
        tried.append(count)
        return count <= edge

    if low <= edge:
        assert greatest_count(fits, low, 100) == edge
        assert all(low < count <= 100 for count in tried)


def test_a_count_beyond_the_limit_is_left_as_it_is():
    assert greatest_count(lambda _: False, 200, 100) == 200

"""Sums of sparse aggregators: which are taken over, and which are refused although their counts add up."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import sstq
from sstq.aggregation import Aggregator
from sstq.aggregation.sparse_counts import tallied

# 36 messages in the pairs 0 to 17, and 55 in the pairs 0 to 27, of which the last has one.
EVEN = sstq.Frequencies(9, 1.0)
ODD = sstq.Frequencies(11, 1.0)


def restored(mechanism, rows, count):
    return Aggregator.from_sums(
        mechanism.aggregator().estimator,
        np.array(rows, dtype=np.int64).reshape(-1, 3),
        count,
    )


def test_the_sums_of_messages_are_taken_over(seed):
    aggregator = EVEN.aggregator().update(EVEN.encode(np.arange(500) % 9, seed))
    again = restored(EVEN, aggregator.sums(), 500)
    assert again.count == 500
    np.testing.assert_array_equal(again.mean().value, aggregator.mean().value)
    assert restored(EVEN, [], 0).count == 0
    assert restored(ODD, [[0, 1, 0], [27, 1, 0]], 2).count == 2


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([[3, 1, 1], [2, 1, 1]], 4),  # out of order
        ([[2, 1, 1], [2, 1, 1]], 4),  # twice
        ([[2, 1, 1], [3, 0, 0]], 2),  # a pair that nobody sent
        ([[2, -1, 3]], 2),
        ([[2, 3, -1]], 2),
        ([[-1, 1, 1]], 2),
        ([[18, 1, 0]], 1),  # beyond the last pair
        ([[2**62, 1, 0]], 1),
        ([[2, 2**32 + 1, 0]], 2**32 + 1),
        ([[2, 2**62, 2**62], [3, 2**62, 2**62]], 0),  # which wraps around
        ([[2, 1, 1]], 1),
        ([[2, 1, 1]], 3),
        ([], 1),
    ],
)
def test_other_sums_are_refused(rows, count):
    assert EVEN.aggregator().estimator.limit == 36
    with pytest.raises(ValueError, match=r"its sums"):
        restored(EVEN, rows, count)


def test_the_message_that_a_last_pair_does_not_have_is_refused():
    assert ODD.aggregator().estimator.limit == 55
    with pytest.raises(ValueError, match="does not have"):
        restored(ODD, [[27, 0, 1]], 1)


def test_tables_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="three columns"):
        Aggregator.from_sums(
            EVEN.aggregator().estimator, np.zeros((2, 2), dtype=np.int64), 0
        )


def test_equal_messages_add_up_in_any_partition(seed):
    rng = np.random.default_rng(seed)
    sent = EVEN.encode(rng.integers(9, size=400), rng)
    expected = np.bincount(sent.column("code"), minlength=36).reshape(18, 2)
    for sizes in ([400], [1] * 400, [7, 100, 93, 200]):
        ends = np.cumsum([0, *sizes])
        aggregator = EVEN.aggregator()
        for start, end in pairwise(ends):
            aggregator.merge(EVEN.aggregator().update(sent[start:end]))
        table = np.zeros((18, 2), dtype=np.int64)
        table[aggregator.sums()[:, 0]] = aggregator.sums()[:, 1:]
        np.testing.assert_array_equal(table, expected)
        assert np.all(np.diff(aggregator.sums()[:, 0]) > 0)


def test_who_keeps_sums_has_no_table_of_counts():
    mechanism = sstq.SSTQ(4, 1.0)
    sums = mechanism.aggregator().update(mechanism.encode(np.ones((3, 4)), 1)).counted()
    with pytest.raises(ValueError, match="keeps no counts of its messages"):
        mechanism.estimator.table(sums)


@pytest.mark.parametrize("limit", [3, 999, 1000, 1001, 10**12])
def test_codes_are_tallied_alike_with_and_without_sorting(seed, limit):
    """1,000 codes: fewer different ones are counted in their places, more are sorted."""
    codes = np.random.default_rng(seed).integers(limit, size=1000)
    codes[:2] = limit - 1, 0
    sent, times = tallied(codes, limit)
    counter = Counter(codes.tolist())
    assert dict(zip(sent.tolist(), times.tolist(), strict=True)) == counter
    assert np.all(np.diff(sent) > 0)


def test_messages_have_numbers_in_which_the_first_field_counts_fastest():
    mechanism = sstq.FrameUnit(4, 1.0, frames=3)
    estimator = mechanism.estimator
    rows = mechanism.choice.size
    row = np.array([0, rows - 1, 0, 5, rows - 1], dtype=np.uint16)
    frame = np.array([0, 0, 1, 2, 2], dtype=np.uint8)
    codes = estimator.codes(mechanism.messages_from_columns((row, frame), False))
    assert codes.tolist() == [0, rows - 1, rows, 2 * rows + 5, 3 * rows - 1]
    assert estimator.limit == 3 * rows
    again = estimator.columns(codes)
    assert [column.tolist() for column in again] == [row.tolist(), frame.tolist()]

"""`update_counts` gives the same bits as `update` on the same messages, in any order and any partition."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from tests.contract.cases import CASES, NOT_LOCAL, build, encode

UNCOUNTABLE = ("privunit", "projunit")
COUNTABLE = [
    case for case in CASES if not case.startswith(UNCOUNTABLE) and "dense" not in case
]
MECHANISM = sstq.SSTQ(dim=6, epsilon=2.0, bits=2)


def counted(mechanism, messages):
    """The distinct messages by field, and how often each occurs."""
    pairs = zip(messages.layout.fields, messages.columns, strict=True)
    flat = np.concatenate(
        [column.reshape(-1, field.count).astype(np.int64) for field, column in pairs],
        axis=1,
    )
    distinct, times = np.unique(flat, axis=0, return_counts=True)
    columns = {}
    start = 0
    for field in mechanism.layout.fields:
        columns[field.name] = distinct[:, start : start + field.count].reshape(
            field.shape(len(distinct))
        )
        start += field.count
    return columns, times


def same_bits(a, b):
    assert np.array_equal(a.sums(), b.sums())
    first = a.mean()
    second = b.mean()
    assert np.array_equal(first.value, second.value)
    assert np.array_equal(first.stderr, second.stderr)
    assert (first.count, first.simulated) == (second.count, second.simulated)


@pytest.mark.parametrize("case", COUNTABLE)
def test_counts_give_the_bits_of_messages(case):
    mechanism = build(case)
    messages = encode(
        mechanism, np.random.default_rng(3).standard_normal((700, mechanism.dim)), rng=3
    )
    aggregator = mechanism.aggregator()
    aggregator.update_counts(*counted(mechanism, messages), simulated=True)
    same_bits(aggregator, mechanism.aggregator().update(messages))


@given(
    st.sampled_from(
        ["sstq", "frameunit", "frameunit/many", "groupunit/shares", "vqsgd", "sqkr/two"]
    ),
    st.lists(st.tuples(st.integers(0, 80), st.booleans()), max_size=6),
    st.randoms(use_true_random=False),
)
def test_any_order_and_partition_into_counts_and_messages_gives_the_same_bits(
    case, cuts, random
):
    mechanism = build(case)
    messages = encode(
        mechanism, np.random.default_rng(1).standard_normal((80, mechanism.dim)), rng=1
    )
    cuts = sorted([(0, True), *cuts, (len(messages), False)])
    parts = [
        (messages[start:stop], by_counts)
        for (start, by_counts), (stop, _) in pairwise(cuts)
    ]
    random.shuffle(parts)
    aggregator = mechanism.aggregator()
    for part, by_counts in parts:
        if by_counts:
            columns, times = counted(mechanism, part)
            order = random.sample(range(len(times)), len(times))
            shuffled = {name: values[order] for name, values in columns.items()}
            aggregator.update_counts(shuffled, times[order], simulated=True)
        else:
            aggregator.update(part)
    same_bits(aggregator, mechanism.aggregator().update(messages))


@pytest.mark.parametrize(
    "case", [case for case in (*CASES, *NOT_LOCAL) if case not in COUNTABLE]
)
def test_what_counts_cannot_give_is_refused_with_the_reason(case):
    mechanism = build(case)
    wanted = "adds noise" if "csgm" in case else "hardly two are equal"
    with pytest.raises(ValueError, match=f"cannot be estimated from counts.*{wanted}"):
        mechanism.aggregator().update_counts({}, [])


@pytest.mark.parametrize(
    "table", [dict, pyarrow.table, polars.DataFrame, pandas.DataFrame]
)
def test_any_table_with_the_fields_and_a_count_will_do(table):
    messages = encode(MECHANISM, np.ones((300, 6)), rng=2)
    columns, times = counted(MECHANISM, messages)
    aggregator = MECHANISM.aggregator()
    aggregator.update_counts(table(columns | {"messages": times}), simulated=True)
    same_bits(aggregator, MECHANISM.aggregator().update(messages))


@pytest.mark.parametrize(
    "turn",
    [np.float64, lambda times: [Decimal(int(n)) for n in times], pyarrow.array, list],
)
def test_whole_numbers_of_any_type_are_counts(turn):
    messages = encode(MECHANISM, np.ones((300, 6)), rng=2)
    columns, times = counted(MECHANISM, messages)
    aggregator = MECHANISM.aggregator()
    aggregator.update_counts(columns, turn(times), simulated=True)
    same_bits(aggregator, MECHANISM.aggregator().update(messages))


def test_lists_of_coordinates_come_from_any_table():
    mechanism = sstq.SQKR(dim=6, epsilon=2.0, k=2)
    messages = encode(mechanism, np.ones((300, 6)), rng=2)
    columns, times = counted(mechanism, messages)
    lists = {"bits": columns["bits"], "index": columns["index"].tolist()}
    for table in (lists, pyarrow.table(lists), polars.DataFrame(lists)):
        aggregator = mechanism.aggregator()
        aggregator.update_counts(table, times, simulated=True)
        same_bits(aggregator, mechanism.aggregator().update(messages))


def test_lists_with_nulls_or_of_other_lengths_and_columns_of_one_name_are_refused():
    aggregator = sstq.SQKR(dim=6, epsilon=2.0, k=2).aggregator()
    for index in ([[0, 1], None], [[0, 1], [2]], [[0, 1], [2, None]]):
        with pytest.raises(ValueError, match="index must hold"):
            aggregator.update_counts(
                pyarrow.table({"bits": [0, 1], "index": index}), [1, 1]
            )
    twice = pyarrow.table([[0], [1], [5]], names=["code", "index", "index"])
    with pytest.raises(
        ValueError, match="must have every column once, got several called 'index'"
    ):
        MECHANISM.aggregator().update_counts(twice, [1])


GOOD = {"code": [0, 3], "index": [1, 15]}


@pytest.mark.parametrize(
    ("columns", "counts", "problem"),
    [
        (GOOD, [1, -1], "counts must be from 0 to 2\\^32, got -1"),
        (GOOD, [1, 2**32 + 1], "counts must be from 0 to 2\\^32"),
        (GOOD, [2**32, 1], "at most 2\\^32 messages"),
        (GOOD, [1, 1.5], "counts must hold integers without nulls, got float64"),
        (GOOD, [1, np.nan], "counts must hold integers without nulls"),
        (GOOD, [1, None], "counts must hold integers without nulls"),
        (GOOD, ["1", "2"], "counts must hold integers without nulls"),
        (GOOD, [True, False], "counts must hold integers without nulls"),
        (GOOD, [1], "code must have as many rows as counts, 1, got 2"),
        (GOOD, "messages", "got none called messages"),
        (
            {"code": [0, 3]},
            [1, 1],
            "must have the columns code, index, got none called index",
        ),
        (
            GOOD | {"code": [0, 4]},
            [1, 1],
            "message 1: code must be in \\[0, 4\\), got 4",
        ),
        (GOOD | {"index": [-1, 0]}, [1, 1], "message 0: index must be in"),
        (
            GOOD | {"index": [1, 2**63]},
            [1, 1],
            "index must hold integers|index must be in",
        ),
        (GOOD | {"index": [[1], [2]]}, [1, 1], "index must hold 1 per row"),
    ],
)
def test_a_bad_table_is_refused_and_adds_nothing(columns, counts, problem):
    aggregator = MECHANISM.aggregator()
    aggregator.update_counts(GOOD, [3, 4], source="before")
    before = aggregator.sums().copy()
    with pytest.raises(ValueError, match=problem):
        aggregator.update_counts(columns, counts, source="bad")
    assert np.array_equal(aggregator.sums(), before)
    assert aggregator.count == 7
    aggregator.update_counts(GOOD, [1, 1], source="bad")


def test_codes_that_are_never_sent_are_refused():
    shares = build("groupunit/shares")
    with pytest.raises(ValueError, match="on a frame for shares"):
        shares.aggregator().update_counts(
            {"row": [shares.choice.size - 1], "frame": [19]}, [1]
        )


def test_a_source_counts_once_also_after_saving_and_merging(tmp_path):
    aggregator = MECHANISM.aggregator()
    aggregator.update_counts(GOOD, [3, 4], source="day 1")
    aggregator.save(tmp_path / "state.npz")
    loaded = MECHANISM.load_aggregator(tmp_path / "state.npz")
    for again in (aggregator, loaded):
        with pytest.raises(ValueError, match="source 'day 1' is counted already"):
            again.update_counts(GOOD, [3, 4], source="day 1")
    with pytest.raises(ValueError, match="contain the same"):
        loaded.merge(aggregator)
    for bad in ("", "x" * 65, 7):
        with pytest.raises(
            ValueError, match="source must be a text of 1 to 64 characters"
        ):
            aggregator.update_counts(GOOD, [3, 4], source=bad)
    assert aggregator.count == 7


def test_rows_with_no_messages_and_empty_tables_change_nothing():
    for case in ("sstq", "frameunit/frames", "sqkr/two"):
        mechanism = build(case)
        columns, times = counted(
            mechanism, encode(mechanism, np.ones((20, mechanism.dim)), rng=1)
        )
        aggregator = mechanism.aggregator()
        aggregator.update_counts(columns, times * 0, simulated=True)
        aggregator.update_counts(
            {name: values[:0] for name, values in columns.items()}, []
        )
        assert aggregator.count == 0
        assert not aggregator.sums().any()

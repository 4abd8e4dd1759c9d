"""Bodies: joined bit by bit, and each malformed one found among many."""

import re

import numpy as np
import pytest

import sstq
from sstq.service import receiving

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


def packed(mechanism, count, seed):
    messages = mechanism.encode(
        np.full((count, mechanism.dim), 1 / mechanism.dim), rng=seed
    )
    return count, messages.to_bytes()


def sums(mechanism, some):
    aggregator = mechanism.aggregator()
    for count, body in some:
        aggregator.update(mechanism.messages_from_bytes(body, count))
    return aggregator.sums()


@pytest.mark.parametrize("counts", [[1] * 9, [8] * 3, [3, 1, 5, 3, 1, 1], [2]])
@pytest.mark.parametrize(
    "mechanism",
    [MECHANISM, sstq.SSTQ(dim=20, epsilon=2.0), sstq.PrivUnit(dim=3, epsilon=2.0)],
)
def test_joined_bodies_have_the_same_messages(mechanism, counts, seed):
    made = [
        packed(mechanism, count, seed + place) for place, count in enumerate(counts)
    ]
    joined, wrong = receiving.checked(mechanism, made)
    assert not wrong
    assert len(joined) == len(set(counts))
    assert np.array_equal(sums(mechanism, joined), sums(mechanism, made))


def test_few_bytes_are_joined_at_once(monkeypatch):
    monkeypatch.setattr(receiving, "_JOINED_BYTES", 10)
    made = [packed(MECHANISM, 1, place) for place in range(12)]  # of 9 bits, 2 bytes
    assert [count for count, _ in receiving.checked(MECHANISM, made)[0]] == [5, 5, 2]
    made[7] = 1, b"\xff\xff"
    joined, wrong = receiving.checked(MECHANISM, made)
    assert list(wrong) == [7]
    assert sum(count for count, _ in joined) == 11


@pytest.mark.parametrize("places", [[0], [99], [3, 4, 50], list(range(100))])
def test_each_malformed_body_is_found_with_its_reason(places):
    made = [packed(MECHANISM, 1 + place % 2, place) for place in range(100)]
    wrong = {
        place: [b"", b"\x00" * 4, b"\xff" * (2 + place % 2)][place % 3]
        for place in places
    }
    for place, body in wrong.items():
        made[place] = made[place][0], body
    joined, found = receiving.checked(MECHANISM, made)
    assert sorted(found) == places
    sound = [one for place, one in enumerate(made) if place not in wrong]
    assert np.array_equal(sums(MECHANISM, joined), sums(MECHANISM, sound))
    for place, reason in found.items():
        with pytest.raises(ValueError, match=re.escape(reason)):
            MECHANISM.messages_from_bytes(made[place][1], made[place][0])


def test_bodies_of_wrong_lengths_that_add_up_are_found():
    assert sorted(
        receiving.checked(MECHANISM, [(1, b"\x00"), (1, b"\x00" * 3)])[1]
    ) == [0, 1]


def test_numbers_that_only_the_sums_refuse_are_refused_on_arrival():
    mechanism = sstq.PrivUnit(70_000, 2.0)
    # Of norm 1, as it should be, but one coordinate is √70,000 times as large as honest ones are on average.
    spike = np.zeros(70_000, dtype="<f4")
    spike[0] = 1
    assert mechanism.messages_from_bytes(spike.tobytes(), 1)
    honest = packed(mechanism, 1, 0)
    _, found = receiving.checked(mechanism, [honest, (1, spike.tobytes()), honest])
    assert list(found) == [1]
    assert "no honest client sends larger ones" in found[1]

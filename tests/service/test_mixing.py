"""Mixing: nothing is lost, nothing is doubled, and every order is equally likely."""

import tempfile
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chi2

pytest.importorskip("fastapi")

from sstq.service.shuffler import crowds

SIZE = 8


def numbered(people, slots):
    """Envelopes that say whose they are and of which slot."""
    found = np.zeros((people, slots, 2), dtype="<u4")
    found[..., 0] = np.arange(people)[:, None]
    found[..., 1] = np.arange(slots)
    return found


def mixed(people, slots):
    """The numbers of the people in the order after mixing, one row per slot."""
    with tempfile.TemporaryFile() as file:
        file.write(numbered(people, slots).tobytes())
        file.flush()
        parts = [list(crowds.mixed(file, (people, slots, SIZE), slot, 5)) for slot in range(slots)]
    assert all(len(part) <= 5 * SIZE for of_slot in parts for part in of_slot)
    found = np.array([np.frombuffer(b"".join(of_slot), dtype="<u4").reshape(-1, 2) for of_slot in parts])
    assert np.array_equal(found[..., 1], np.broadcast_to(np.arange(slots)[:, None], found.shape[:2]))
    return found[..., 0]


def test_every_envelope_is_there_once_in_its_slot():
    found = mixed(1000, 3)
    assert np.array_equal(np.sort(found, axis=1), np.broadcast_to(np.arange(1000), (3, 1000)))
    # In 3000 places about one person is where it was in each slot; 20 in one are less likely than 1e-18.
    assert np.all((found == np.arange(1000)).sum(axis=1) < 20)
    assert np.all((found[0] == found[1:]).sum(axis=1) < 20)


def test_every_order_is_equally_likely():
    """Fails with probability 1e-9; each slot is mixed by itself, so that many slots are many runs."""
    runs = 20 * 24
    seen = Counter(map(tuple, mixed(4, runs).tolist()))
    expected = runs / 24
    statistic = sum((seen[order] - expected) ** 2 / expected for order in permutations(range(4)))
    assert sum(seen.values()) == runs
    assert statistic < chi2.isf(1e-9, 23)


def test_a_permutation_has_every_place_once():
    assert np.array_equal(np.sort(crowds.permutation(1000)), np.arange(1000))
    assert crowds.permutation(1).tolist() == [0]

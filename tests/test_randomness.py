import multiprocessing
import os

import numpy as np
import pytest

from sstq.randomness import SecureBits, bit_source, channel_words, unit_interval


def test_default_is_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or bytes(count))
    source = bit_source(None)
    assert not source.simulated
    assert not source.words(5).any()
    assert asked == [40]


def test_large_requests_are_whole():
    words = SecureBits().words((1 << 20) + 3)
    # 64 zero bits in a row come from a working generator with probability 2^-64 a word.
    assert len(words) == (1 << 20) + 3
    assert words.all()


def test_fresh_entropy_every_time():
    assert not np.array_equal(bit_source(None).words(4), bit_source(None).words(4))


def _child_words(queue):
    queue.put(bit_source(None).words(4).tolist())


def test_fork_does_not_repeat_words():
    context = multiprocessing.get_context("spawn" if not hasattr(os, "fork") else "fork")
    queue = context.Queue()
    children = [context.Process(target=_child_words, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    drawn = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    assert drawn[0] != drawn[1]


def test_seeds_and_generators_are_reproducible_and_marked():
    np.testing.assert_array_equal(bit_source(5).words(9), bit_source(np.random.default_rng(5)).words(9))
    assert bit_source(5).simulated
    # In pieces or at once: a chunked encoder draws the same words.
    pieces = bit_source(5)
    np.testing.assert_array_equal(np.concatenate([pieces.words(4), pieces.words(5)]), bit_source(5).words(9))


@pytest.mark.parametrize("bad", [-1, 1.5, "seed", True])
def test_other_rngs_are_refused(bad):
    with pytest.raises(ValueError, match="rng must be"):
        bit_source(bad)


def test_word_conversions():
    words = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert unit_interval(words).tolist() == [0.0, 1 - 2.0**-53]
    assert channel_words(words).tolist() == [0, 2**62 - 1]

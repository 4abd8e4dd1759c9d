import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sstq.randomness.secret import bit_source, channel_words, unit_interval
from tests.patience import PATIENCE


def test_default_is_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(
        os, "urandom", lambda count: asked.append(count) or bytes(count)
    )
    source = bit_source(None)
    assert not source.simulated
    assert not source.words(5).any()
    assert asked == [40]


def _child_words(queue, source):
    queue.put(source.words(64).tolist())


def test_fork_does_not_repeat_words():
    # The source is made and used before the fork, so that a buffer of its own would be copied.
    source = bit_source(None)
    seen = source.words(64).tolist()
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    queue = context.Queue()
    children = [
        context.Process(target=_child_words, args=(queue, source)) for _ in range(3)
    ]
    for child in children:
        child.start()
    for _ in children:
        seen += queue.get(timeout=PATIENCE)
    for child in children:
        child.join()
    seen += source.words(64).tolist()
    # 320 words of a working generator have an equal pair with probability 3e-15.
    assert len(set(seen)) == 5 * 64


def test_threads_do_not_share_words():
    source = bit_source(None)
    draws = 200
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: source.words(500), range(draws)))
    # 100,000 words of a working generator have an equal pair with probability 3e-10.
    assert len(np.unique(np.concatenate(drawn))) == draws * 500


def test_nothing_is_kept():
    source = bit_source(None)
    source.words(1000)
    assert vars(source) == {}


def test_requests_of_the_operating_system_are_bounded(monkeypatch):
    asked = []
    monkeypatch.setattr(
        os, "urandom", lambda count: asked.append(count) or bytes(count)
    )
    bit_source(None).words(100_001)
    assert sum(asked) == 8 * 100_001
    assert max(asked) <= 1 << 17


def test_seeds_and_generators_are_reproducible_and_marked():
    np.testing.assert_array_equal(
        bit_source(5).words(9), bit_source(np.random.default_rng(5)).words(9)
    )
    assert bit_source(5).simulated
    # In pieces or at once: a chunked encoder draws the same words.
    pieces = bit_source(5)
    np.testing.assert_array_equal(
        np.concatenate([pieces.words(4), pieces.words(5)]), bit_source(5).words(9)
    )


@pytest.mark.parametrize("bad", [-1, 1.5, "seed", True])
def test_other_rngs_are_refused(bad):
    with pytest.raises(ValueError, match="rng must be"):
        bit_source(bad)


def test_word_conversions():
    words = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert unit_interval(words).tolist() == [0.0, 1 - 2.0**-53]
    assert channel_words(words).tolist() == [0, 2**62 - 1]

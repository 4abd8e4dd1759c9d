import numpy as np
import pytest
from scipy.stats import chi2

from sstq.randomness import streams
from sstq.randomness.streams import _philox_block


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # Random123, kat_vectors, philox4x64 with 10 rounds.
        (
            (0, 0, 0, 0),
            (0, 0),
            (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
        ),
        (
            (2**64 - 1,) * 4,
            (2**64 - 1,) * 2,
            (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
        ),
        (
            (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
            (0x452821E638D01377, 0xBE5466CF34E90C6C),
            (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    seed = np.array(key[:1], dtype=np.uint64)
    assert tuple(_philox_block(np.array([counter], dtype=np.uint64), seed, key[1])[0].tolist()) == expected


def test_stream_is_the_blocks_of_consecutive_counters():
    counters = np.zeros((5, 4), dtype=np.uint64)
    counters[:, 0] = np.arange(1, 6)
    blocks = _philox_block(counters, np.array([9], dtype=np.uint64), int.from_bytes(b"test", "little"))
    np.testing.assert_array_equal(streams.words(9, "test", 20), blocks.ravel())
    np.testing.assert_array_equal(streams.words_of(9, "test", counters[:, 0]), blocks[:, 0])


def test_published_vectors():
    # docs/formats.md prints these values; they may never change.
    assert [hex(w) for w in streams.words(7, "signs1", 2).tolist()] == ["0x47ab0b3feaf83180", "0x7d633033282c8966"]
    signs = [1, 1, 1, 1, 1, 1, 1, -1, -1, 1, 1, 1, -1, -1, 1, 1]
    assert streams.signs(7, "signs1", 16).astype(int).tolist() == signs
    assert streams.choose(7, "columns", 5, 16).tolist() == [0, 1, 4, 6, 11]
    assert streams.indices_of(7, "assign", np.arange(6, dtype=np.uint64), 1000).tolist() == [
        381,
        391,
        214,
        777,
        170,
        39,
    ]
    assert streams.mix_seed(7, 3) == 2554627710845133597


@pytest.mark.parametrize("count", [1, 63, 256, 257, 1000])
def test_rows_of_signs_are_those_of_each_seed(count):
    seeds = np.array([0, 7, 2**64 - 1], dtype=np.uint64)
    rows = streams.sign_rows(seeds, "signs2", count)
    for seed, row in zip(seeds, rows, strict=True):
        np.testing.assert_array_equal(row, streams.signs(int(seed), "signs2", count))


def permuted_by_the_definition(word, place, bits):
    """The Feistel network of the module's docstring, in Python integers."""
    low_bits, high_bits = bits // 2, bits - bits // 2
    high, low = place >> low_bits, place % (1 << low_bits)
    for r in range(8 if bits >= 6 else 32):
        other, width = (low, high_bits) if r % 2 == 0 else (high, low_bits)
        z = (word + ((r + 1 << 32) + other) * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        z = (z ^ z >> 31) >> 64 - width
        high, low = (high ^ z, low) if r % 2 == 0 else (high, low ^ z)
    return high << low_bits | low


@pytest.mark.parametrize("bits", [0, 1, 2, 5, 8, 14])
def test_permutations_are_those_of_the_definition(bits):
    clients, places = np.array([0, 5, 2**64 - 1], dtype=np.uint64), np.arange(min(1 << bits, 300))
    images = streams.permuted(7, "rows", clients, np.tile(places, (3, 1)), bits)
    for client, row in zip(clients, images, strict=True):
        word = int(streams.words_of(7, "rows", np.array([client]))[0])
        assert row.tolist() == [permuted_by_the_definition(word, int(place), bits) for place in places]
        assert len(set(row.tolist())) == len(places)
    np.testing.assert_array_equal(streams.permuted(7, "rows", clients, places[[-1, 0, 0]], bits)[0], images[0, -1])


def test_pairs_of_a_permutation_are_uniform(seed):
    """All 240 ordered pairs of 16 places, 24,000 permutations: one χ² test, false failures below 1e-6."""
    clients = np.arange(24_000, dtype=np.uint64) + np.uint64(seed << 20)
    images = streams.permuted(3, "rows", clients, np.tile(np.arange(2), (24_000, 1)), bits=4)
    counts = np.bincount(16 * images[:, 0] + images[:, 1], minlength=256).reshape(16, 16)
    assert np.all(np.diag(counts) == 0)
    off_diagonal = counts[~np.eye(16, dtype=bool)]
    assert chi2.sf(np.sum((off_diagonal - 100.0) ** 2) / 100.0, 239) > 1e-6


def test_choices_of_four_of_eight_places_are_uniform(seed):
    """All 70 choices, 35,000 permutations: one χ² test, false failures below 1e-6 (eight rounds would fail it)."""
    clients = np.arange(35_000, dtype=np.uint64) + np.uint64(seed << 20)
    images = streams.permuted(3, "rows", clients, np.tile(np.arange(4), (35_000, 1)), bits=3)
    counts = np.bincount((1 << images).sum(axis=1), minlength=256)
    counts = counts[np.bitwise_count(np.arange(256, dtype=np.uint8)) == 4]
    assert counts.sum() == 35_000
    assert chi2.sf(np.sum((counts - 500.0) ** 2) / 500.0, 69) > 1e-6


def test_multiply_shift_is_exact():
    words = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0], dtype=np.uint64)
    for limit in (1, 2, 3, 1000, 65_536, 2**31 + 11):
        expected = [(int(word) * limit) >> 64 for word in words]
        assert streams.multiply_shift(words, limit).tolist() == expected


def test_choose_takes_the_smallest_words_in_ascending_order():
    keys = streams.words(3, "columns", 50)
    for chosen in (0, 1, 7, 49, 50):
        expected = np.sort(np.argsort(keys, kind="stable")[:chosen])
        np.testing.assert_array_equal(streams.choose(3, "columns", chosen, 50), expected)


def test_purposes_and_seeds_give_different_streams():
    streams_seen = {tuple(streams.words(s, p, 4).tolist()) for s in (0, 1, 2**64 - 1) for p in ("signs1", "columns")}
    assert len(streams_seen) == 6


def test_few_identifiers_and_seeds_have_the_words_of_many():
    identifiers = np.array([0, 1, 2, 5, 2**63, 2**64 - 1] * 2, dtype=np.uint64)
    together = streams.words_of(7, "frames", identifiers)
    assert [streams.words_of(7, "frames", identifiers[i : i + 1])[0] for i in range(12)] == together.tolist()
    for count in (1, 64, 65, 1000):
        rows = streams.sign_rows(identifiers, "signs2", count)
        np.testing.assert_array_equal(streams.sign_rows(identifiers[:6], "signs2", count), rows[:6])
    assert streams.words_of(7, "frames", identifiers[:0]).shape == (0,)


@pytest.mark.parametrize(("seed", "purpose"), [(-1, "test"), (2**64, "test"), (0, ""), (0, "nine chars")])
def test_other_seeds_and_purposes_are_refused(seed, purpose):
    with pytest.raises(ValueError, match="seed must be in" if purpose == "test" else "purpose"):
        streams.words(seed, purpose, 1)

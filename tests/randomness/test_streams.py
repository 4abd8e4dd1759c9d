import numpy as np
import pytest

from sstq.randomness import streams
from sstq.randomness.streams import _philox_block


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # Random123, kat_vectors, philox4x64 with 10 rounds.
        (
            (0, 0, 0, 0),
            (0, 0),
            (
                0x16554D9ECA36314C,
                0xDB20FE9D672D0FDC,
                0xD7E772CEE186176B,
                0x7E68B68AEC7BA23B,
            ),
        ),
        (
            (2**64 - 1,) * 4,
            (2**64 - 1,) * 2,
            (
                0x87B092C3013FE90B,
                0x438C3C67BE8D0224,
                0x9CC7D7C69CD777B6,
                0xA09CAEBF594F0BA0,
            ),
        ),
        (
            (
                0x243F6A8885A308D3,
                0x13198A2E03707344,
                0xA4093822299F31D0,
                0x082EFA98EC4E6C89,
            ),
            (0x452821E638D01377, 0xBE5466CF34E90C6C),
            (
                0xA528F45403E61D95,
                0x38C72DBD566E9788,
                0xA5A1610E72FD18B5,
                0x57BD43B5E52B7FE6,
            ),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    seed = np.array(key[:1], dtype=np.uint64)
    assert (
        tuple(
            _philox_block(np.array([counter], dtype=np.uint64), seed, key[1])[
                0
            ].tolist()
        )
        == expected
    )


def test_stream_is_the_blocks_of_consecutive_counters():
    counters = np.zeros((5, 4), dtype=np.uint64)
    counters[:, 0] = np.arange(1, 6)
    blocks = _philox_block(
        counters, np.array([9], dtype=np.uint64), int.from_bytes(b"test", "little")
    )
    np.testing.assert_array_equal(streams.words(9, "test", 20), blocks.ravel())
    np.testing.assert_array_equal(
        streams.words_of(9, "test", counters[:, 0]), blocks[:, 0]
    )


def test_published_vectors():
    # docs/formats.md prints these values; they may never change.
    assert [hex(w) for w in streams.words(7, "signs1", 2).tolist()] == [
        "0x47ab0b3feaf83180",
        "0x7d633033282c8966",
    ]
    signs = [1, 1, 1, 1, 1, 1, 1, -1, -1, 1, 1, 1, -1, -1, 1, 1]
    assert streams.signs(7, "signs1", 16).astype(int).tolist() == signs
    assert streams.choose(7, "columns", 5, 16).tolist() == [0, 1, 4, 6, 11]
    assert streams.indices_of(
        7, "assign", np.arange(6, dtype=np.uint64), 1000
    ).tolist() == [
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


def test_multiply_shift_is_exact():
    words = np.array(
        [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0], dtype=np.uint64
    )
    for limit in (1, 2, 3, 1000, 65_536, 2**31 + 11):
        expected = [(int(word) * limit) >> 64 for word in words]
        assert streams.multiply_shift(words, limit).tolist() == expected


def test_choose_takes_the_smallest_words_in_ascending_order():
    keys = streams.words(3, "columns", 50)
    for chosen in (0, 1, 7, 49, 50):
        expected = np.sort(np.argsort(keys, kind="stable")[:chosen])
        np.testing.assert_array_equal(
            streams.choose(3, "columns", chosen, 50), expected
        )


def test_of_equal_words_the_smaller_places_are_chosen(monkeypatch):
    """64-bit words are hardly ever equal, but the definition says what holds then."""
    keys = np.array([3, 1, 2, 2, 2, 5], dtype=np.uint64)
    monkeypatch.setattr(streams, "words", lambda *_: keys)
    for chosen in range(1, 7):
        expected = np.sort(np.argsort(keys, kind="stable")[:chosen])
        np.testing.assert_array_equal(streams.choose(0, "columns", chosen, 6), expected)


def test_purposes_and_seeds_give_different_streams():
    streams_seen = {
        tuple(streams.words(s, p, 4).tolist())
        for s in (0, 1, 2**64 - 1)
        for p in ("signs1", "columns")
    }
    assert len(streams_seen) == 6


def test_few_identifiers_and_seeds_have_the_words_of_many():
    identifiers = np.array([0, 1, 2, 5, 2**63, 2**64 - 1] * 2, dtype=np.uint64)
    together = streams.words_of(7, "frames", identifiers)
    assert [
        streams.words_of(7, "frames", identifiers[i : i + 1])[0] for i in range(12)
    ] == together.tolist()
    for count in (1, 64, 65, 1000):
        rows = streams.sign_rows(identifiers, "signs2", count)
        np.testing.assert_array_equal(
            streams.sign_rows(identifiers[:6], "signs2", count), rows[:6]
        )
    assert streams.words_of(7, "frames", identifiers[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("seed", "purpose"), [(-1, "test"), (2**64, "test"), (0, ""), (0, "nine chars")]
)
def test_other_seeds_and_purposes_are_refused(seed, purpose):
    with pytest.raises(
        ValueError, match="seed must be in" if purpose == "test" else "purpose"
    ):
        streams.words(seed, purpose, 1)

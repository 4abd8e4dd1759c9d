"""Test vectors of what is public: Philox streams, signs, columns, permutations, indices and the seeds of frames."""

import numpy as np

from sstq.frames.family import FrameFamily
from sstq.frames.tight import HadamardFrame
from sstq.mechanisms.two_level_draw import uniform_below
from sstq.randomness import streams
from sstq.randomness.secret import channel_words, unit_interval
from tests.clients.written import doubles, hashed_words, words

_LARGEST = 2**64 - 1
_SEEDS = (0, 7, 2**53 + 1, _LARGEST)


def philox():
    """Blocks, streams and words of identifiers."""
    # Known answers of the authors' Random123 library (kat_vectors, philox4x64-10).
    pi = [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89]
    blocks = [([0] * 4, [0, 0]), ([_LARGEST] * 4, [_LARGEST] * 2), (pi, [0x452821E638D01377, 0xBE5466CF34E90C6C])]
    return {
        "blocks": [
            {"counter": words(counter), "key": words(key), "output": words(_block(counter, key))}
            for counter, key in blocks
        ],
        "streams": [
            {"seed": str(seed), "purpose": purpose, "words": words(streams.words(seed, purpose, 9))}
            for seed, purpose in zip(
                (*_SEEDS, 7, 7), ("signs1", "columns", "signs3", "test", "a", "abcdefgh"), strict=True
            )
        ],
        "identifiers": [
            {
                "seed": str(seed),
                "purpose": purpose,
                "identifiers": words(numbers := np.array([0, 1, 2, 1023, 2**32, _LARGEST], dtype=np.uint64)),
                "words": words(streams.words_of(seed, purpose, numbers)),
            }
            for seed, purpose in zip(_SEEDS, ("frames", "assign", "group", "shares"), strict=True)
        ],
    }


def _block(counter, key):
    seeds = np.array([key[0]], dtype=np.uint64)
    return streams._philox_block(np.array([counter], dtype=np.uint64), seeds, key[1])[0]


def signs():
    """Signs from the bits of a stream."""
    counts = ((1, "signs1"), (3, "signs1"), (64, "signs1"), (65, "signs2"), (255, "signs3"), (300, "signs2"))
    return {
        "cases": [
            {"seed": str(seed), "purpose": purpose, "count": count, "signs": _signs_text(seed, purpose, count)}
            for seed, (count, purpose) in zip((*_SEEDS, 7, 12345), counts, strict=True)
        ]
    }


def _signs_text(seed, purpose, count):
    return "".join("+" if sign > 0 else "-" for sign in streams.signs(seed, purpose, count))


def columns():
    """The columns of a frame of one mixing."""
    shapes = ((1, 1), (1, 4), (3, 8), (8, 8), (100, 256), (300, 1024))
    return {
        "cases": [
            {
                "seed": str(seed),
                "dim": dim,
                "size": size,
                "columns": streams.choose(seed, "columns", dim, size).tolist(),
            }
            for seed, (dim, size) in zip((*_SEEDS, 7, 12345), shapes, strict=True)
        ]
    }


def permutations():
    """The first images of an identifier's permutation."""
    cases = []
    for seed, identifier, bits in ((0, 0, 0), (7, 5, 1), (7, 6, 3), (7, _LARGEST, 5), (_LARGEST, 9, 8), (3, 77, 17)):
        places = np.arange(min(1 << bits, 24))
        numbers = np.array([identifier], dtype=np.uint64)
        images = streams.permuted(seed, "rows", numbers, places[None], bits)[0]
        word = words(streams.words_of(seed, "rows", numbers))
        case = {"seed": str(seed), "purpose": "rows", "identifier": str(identifier), "word": word}
        cases.append(case | {"bits": bits, "images": images.tolist()})
    return {"cases": cases}


def numbers_of_words():
    """What a word is read as: a multiple of 2^-53, an integer below 2^62, an index below a limit."""
    given = np.concatenate([np.array([0, 1, 3, 4, 2**63, _LARGEST], dtype=np.uint64), hashed_words("words", 6)])
    cases = []
    for word in given:
        one = np.array([word], dtype=np.uint64)
        indices = {str(limit): int(streams.multiply_shift(one, limit)[0]) for limit in (1, 2, 3, 40, 65536, 2**30)}
        below = {
            str(limit): int(uniform_below(one, np.array([limit]))[0]) for limit in (1, 2, 3, 511, 65536, 2**31 - 1)
        }
        cases.append(
            {
                "word": words(word),
                "unit": doubles(unit_interval(one)),
                "integer": str(int(channel_words(one)[0])),
                "index_below": indices,
                "place_below": below,
            }
        )
    return {"cases": cases}


def frames():
    """The seeds of the frames of a family."""
    cases = []
    for seed, count, numbers in (
        (7, 1, [0]),
        (7, 40, [0, 1, 39]),
        (0, 1024, [0, 1023]),
        (_LARGEST, 2**30, [2**30 - 1]),
    ):
        family = FrameFamily(HadamardFrame(3, 8, seed, rounds=3), count)
        seeds = family.seeds(np.array(numbers))
        cases.append({"seed": str(seed), "frames": count, "numbers": numbers, "seeds": [str(own) for own in seeds]})
    return {"cases": cases}

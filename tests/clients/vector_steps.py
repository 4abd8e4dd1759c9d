"""Test vectors of what is done to a vector: norm, flip, clipping, transform, mixing, selection, representation."""

import math

import numpy as np

from sstq import kernels
from sstq.frames.kashin import Kashin, default_level, make_kashin, represent
from sstq.frames.tight import HadamardFrame
from sstq.kernels import clipping, selection
from sstq.randomness.secret import unit_interval
from tests.clients.written import doubles, hashed_singles, hashed_words, sha256_of_singles, singles, streamed, words

_TINY, _LARGEST = np.float32(1e-45), np.finfo(np.float32).max


def corner_vectors(dim, label):
    """Vectors that clients get wrong: name and numbers."""
    dense = hashed_singles(f"{label}/{dim}", dim)
    spike = np.zeros(dim, np.float32)
    spike[dim // 2] = -0.5
    return {
        "dense": dense,
        "zero": np.zeros(dim, np.float32),
        "minus zero": np.full(dim, -0.0, np.float32),
        "constant": np.full(dim, 0.25, np.float32),
        "spike": spike,
        "short": dense * np.float32(2**-10),
        "subnormal": np.where(np.arange(dim) % 2 == 0, _TINY, -3 * _TINY).astype(np.float32),
        "long": dense * np.float32(1000),
        "huge": np.where(np.arange(dim) % 3 == 0, -_LARGEST, _LARGEST / 2).astype(np.float32),
    }


def _measure(x, clip):
    return clipping.measure(x, float(clip))


def norms():
    """The length of a vector, its share of clip, and the vector clipped to the unit ball."""
    cases = []
    for dim, clip in ((1, 1.0), (3, 0.1), (8, 1.0), (23, 2.5)):
        for name, x in corner_vectors(dim, "norm").items():
            cases.append(_norm_case(name, x, clip))
    exact = np.array([3, 4, 0], np.float32)
    cases += [_norm_case("as long as clip", exact, 5.0), _norm_case("an ulp above clip", exact, math.nextafter(5.0, 0))]
    long, stated = streamed(1000, 3, -20)
    cases.append(_norm_case("streamed", long, 1.0) | stated)
    for case in cases:
        if "x_stream" in case:
            del case["x"], case["unit"]
    wide = []
    for name, x in {"huge": [1e200, -1e300, 1e308], "tiny": [1e-300, -5e-324, 0.0], "zero": [0.0, -0.0]}.items():
        x = np.array(x)
        scale, length, natural = _measure(x, 1.0)
        share = 1.0 if natural * length > 1 else natural * length
        unit = kernels.clip_to_ball(x[None], 1.0)[0][0]
        wide.append(
            {"about": name, "x_doubles": doubles(x), "clip": doubles(1.0), "scale": doubles(scale)}
            | {"length": doubles(length), "share": doubles(share), "unit": singles(unit)}
        )
    return {"cases": cases, "doubles": wide}


def _norm_case(name, x, clip):
    _, length, natural = _measure(x, clip)
    longer = natural * length > 1
    share = 1.0 if longer else natural * length
    unit, told = kernels.clip_to_ball(x[None], clip)
    assert bool(told[0]) == longer
    case = {"about": name, "x": singles(x), "clip": doubles(clip), "length": doubles(length), "share": doubles(share)}
    return case | {"longer": bool(longer), "unit": singles(unit[0]), "unit_sha256": sha256_of_singles(unit[0])}


def flips():
    """The sign that a client gives to its vector."""
    cases = []
    for share in (0.0, 5e-324, 0.25, 0.5, 1 - 2**-53, 1.0):
        bar = (1 - share) / 2
        # The word at which the sign changes, and its neighbours.
        border = min(math.ceil(bar * 2**53), 2**53 - 1) << 11
        near = {0, 2**64 - 1, border, max(border - 1, 0), border | 2047, *map(int, hashed_words(f"flip{share}", 2))}
        for word in sorted(near):
            one = unit_interval(np.array([word], dtype=np.uint64))[0]
            cases.append({"share": doubles(share), "word": words(word), "negative": bool(one < bar)})
    return {"cases": cases}


def transforms():
    """The Hadamard transform in single precision."""
    cases = []
    for bits in (0, 1, 2, 3, 4, 7):
        x = hashed_singles(f"transform/{bits}", 1 << bits)
        cases.append(_transform_case(x, {"x": singles(x)}))
    for bits in (10, 13, 16):
        cases.append(_transform_case(*streamed(1 << bits, bits, -24)))
    signed = np.array([0.0, -0.0, -0.0, 0.0, 1e-45, -1e-45, 3e38, 1e31], np.float32)
    return {"cases": [*cases, _transform_case(signed, {"x": singles(signed)})]}


def _transform_case(x, stated):
    y = x.copy()
    kernels.hadamard_transform(y)
    written = {"y": singles(y)} if len(y) <= 128 else {"y_first": singles(y[:8])}
    return stated | written | {"y_sha256": sha256_of_singles(y)}


def mixings():
    """The scores of a vector in a mixed frame."""
    cases = []
    for dim, size, rounds, seed in ((1, 1, 3, 7), (1, 16, 2, 0), (3, 16, 3, 7), (8, 8, 2, 2**63), (23, 64, 3, 9)):
        for name, x in corner_vectors(dim, "mixing").items():
            cases.append({"about": name, "x": singles(x)} | _mixing(x, size, rounds, seed))
    for dim, size, rounds in ((300, 512, 3), (5000, 8192, 2), (25_450, 32_768, 3)):
        x, stated = streamed(dim, dim, -24)
        cases.append({"about": "streamed"} | stated | _mixing(x, size, rounds, 7))
    return {"cases": cases}


def _mixing(x, size, rounds, seed):
    frame = HadamardFrame(len(x), size, seed, rounds=rounds)
    scores = np.empty(size, np.float32)
    later = np.array(np.stack(frame._later_signs))
    scale, length, _ = _measure(x, 1.0)
    sign = -1.0 if seed % 2 else 1.0
    selection._mix(x, scale, length, sign, frame.signs.copy(), later, size.bit_length() - 1, scores)
    stated = {"dim": len(x), "size": size, "rounds": rounds, "seed": str(seed), "negative": sign < 0}
    written = {"scores": singles(scores)} if size <= 64 else {"scores_first": singles(scores[:8])}
    return stated | written | {"scores_sha256": sha256_of_singles(scores)}


def selections():
    """Which signed row is at a place, from the scores."""
    dense = hashed_singles("selection", 24)
    given = {
        "dense": (dense, 7),
        "all inside": (dense, 24),
        "one": (np.array([-2.0], np.float32), 1),
        "ties across the border": (np.array([1, -1, 2, -1, 1, 0.5, 1, -2], np.float32), 4),
        "all tied": (np.full(9, -3.0, np.float32), 5),
        "zeros of both signs": (np.array([0.0, -0.0, -0.0, 0.0, -1.0], np.float32), 3),
        "subnormal": (np.array([1e-45, -1e-45, 3e-45, -2e-45, 0.0, 1e-45], np.float32), 3),
        "neighbours": (
            np.nextafter(np.float32(1), np.array([2, 0, 2, -2], np.float32)) * np.array([1, 1, -1, 1], "f4"),
            2,
        ),
        "far from each other": (np.array([1e-38, 1e38, -1e-20, 1e20, -1, 1e-45], np.float32), 4),
    }
    cases = []
    for name, (scores, inside) in given.items():
        rows = [_signed_row(scores, inside, place) for place in range(2 * len(scores))]
        assert sorted(rows) == list(range(2 * len(scores)))
        cases.append({"about": name, "scores": singles(scores), "inside": inside, "rows": rows})
    return {"cases": cases}


def _signed_row(scores, inside, place):
    size = len(scores)
    last = selection.last_inside(scores, 1.0, inside, np.empty(size + 1, np.int32))
    if place >= 2 * inside:
        return 2 * selection._place_of(scores, last, False, (place - 2 * inside) >> 1) + (place & 1)
    slot = selection._place_of(scores, last, True, place % inside)
    return 2 * slot + (int(scores[slot] < 0) ^ int(place >= inside))


_SMALL_FRAMES = ((1, 4, 7), (3, 8, 0), (16, 16, 5))
# From N = 1024 on sums are taken in blocks, of which there are several from 8192 on; then there are rows of several.
_FRAMES = ((100, 256, 7), (200, 512, 1), (300, 1024, 7), (500, 2048, 3), (1500, 4096, 7), (2500, 8192, 4))
_LARGE_FRAMES = ((25_450, 65_536, 7), (150_000, 524_288, 1), (300_000, 1_048_576, 2))


def representations():
    """The representation of a vector of the unit ball, in units of its bound."""
    cases = []
    for dim, size, seed in _SMALL_FRAMES:
        frame = HadamardFrame(dim, size, seed)
        for name, x in corner_vectors(dim, "kashin").items():
            unit = kernels.clip_to_ball(x[None], 1.0)[0][0]
            cases.append(_kashin_case(name, frame, make_kashin("certified", frame), unit, {"x": singles(unit)}))
    for dim, size, seed in _FRAMES + _LARGE_FRAMES:
        frame = HadamardFrame(dim, size, seed)
        x, stated = streamed(dim, seed, -23 - dim.bit_length() // 2)
        cases.append(_kashin_case("streamed", frame, make_kashin("certified", frame), x, stated))
    frame = HadamardFrame(100, 128, 7)
    x, stated = streamed(100, 9, -27)
    for steps in (1, 2, 3, 16):
        recipe = Kashin("certified", default_level(100, 128), steps)
        cases.append(_kashin_case(f"{steps} steps, hardly redundant", frame, recipe, x, stated))
    return {"cases": cases}


def _kashin_case(name, frame, recipe, unit, stated):
    values = represent(frame, recipe, unit[None])[0][0]
    case = {"about": name, "dim": frame.dim, "size": frame.size, "seed": str(frame.seed)}
    case |= {
        "level": doubles(recipe.level),
        "steps": recipe.steps,
        "schedule": singles(recipe.schedule(frame)[:, [0, 1, 3]]),
    }
    case |= stated
    case |= {"values": singles(values)} if frame.size <= 64 else {"values_first": singles(values[:8])}
    return case | {"values_sha256": sha256_of_singles(values)}
